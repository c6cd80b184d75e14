// The operations of the host device: the host's kernels, on the stream's thread.
#ifndef GEMINID_CLIENT_DEVICE_HOST_HOST_OPS_H_
#define GEMINID_CLIENT_DEVICE_HOST_HOST_OPS_H_

#include <functional>
#include <mutex>
#include <span>

#include "client/device/device_ops.h"
#include "client/device/host/host_arena.h"

namespace geminid::device {

class HostOps final : public DeviceOps {
 public:
  // `arena` outlives this object; null: operands are all in host memory.
  explicit HostOps(const HostArena* arena) : arena_(arena) {}

  void Zero(Stream& stream, std::byte* to, uint64_t bytes) override;
  void Copy(Stream& stream, std::byte* to, const std::byte* from, uint64_t bytes) override;
  void Assign(Stream& stream, const Elements& from, std::byte* to,
              collectives::DType type) override;
  void Add(Stream& stream, const Elements& from, std::byte* to, collectives::DType type) override;
  void Accumulate(Stream& stream, const Elements& from, float scale, float* sum) override;
  void SumSquares(Stream& stream, const Elements& values, double* sum) override;
  void JoinMaster(Stream& stream, const kernels::BFloat16* weight, const int16_t* remainder,
                  uint64_t count, float* master) override;
  void SplitMaster(Stream& stream, const float* master, uint64_t count, kernels::BFloat16* weight,
                   int16_t* remainder) override;
  void Apply(Stream& stream, const kernels::ShardedStep& step, const kernels::Segment& segment,
             const kernels::ParameterArrays& to, kernels::ThreadPool* threads) override;
  kernels::Status Prepare(Stream& stream, kernels::ShardedStep* step,
                          const kernels::StepScalars& scalars,
                          std::span<const kernels::Segment> segments, const float* old_factors,
                          const kernels::ReduceSum& reduce, float* new_factors,
                          float* device_scales) override;
  absl::Status status() const override;
  absl::Status Synchronize(Stream& stream, absl::Duration timeout) override;

 private:
  template <typename T>
  T* OnHost(T* address) const {
    return arena_ == nullptr ? address : arena_->HostAddress(address);
  }
  Elements OnHost(const Elements& elements) const;
  kernels::Segment OnHost(const kernels::Segment& segment) const;
  kernels::ParameterArrays OnHost(const kernels::ParameterArrays& arrays) const;
  // Queues `kernel`, and records its failure; `name` is for the message.
  void Run(Stream& stream, const char* name, std::function<kernels::Status()> kernel);

  const HostArena* const arena_;
  mutable std::mutex mutex_;
  absl::Status status_;  // guarded by mutex_
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_HOST_OPS_H_
