// The operations of a GPU: by the driver, or by kernels for the GPU on what lies in its memory, the
// arena or what the trainer's framework has allocated.
// Where there is no kernel (programs built without a CUDA compiler; operands in host memory; steps
// of Adafactor and CAME without a place for scales) the host's do it, on a copy in page-locked
// memory that goes there and back in pieces: the same bits, at the speed of the link.
#ifndef GEMINID_CLIENT_DEVICE_CUDA_CUDA_OPS_H_
#define GEMINID_CLIENT_DEVICE_CUDA_CUDA_OPS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "client/device/cuda/cuda_stream.h"
#include "client/device/device_ops.h"
#include "client/device/host/host_ops.h"
#include "client/device/host/inline_stream.h"

namespace geminid::device {

// Its streams are those of its device.
class CudaOps final : public DeviceOps {
 public:
  explicit CudaOps(const CudaMemory& memory) : memory_(memory), host_(nullptr) {}

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
  absl::Status status() const override { return memory_.context->status(); }
  absl::Status Synchronize(Stream& stream, absl::Duration timeout) override;

 private:
  // An array of `count` elements, on the device or in host memory; or null.
  struct Array {
    std::byte* data = nullptr;
    uint64_t element_bytes = 0;
    bool reads = false;
    bool writes = false;
  };
  // Elements [begin, begin + count) of the arrays, where the host finds them, in their order.
  struct Piece {
    std::vector<std::byte*> places;
    uint64_t begin = 0;
    uint64_t count = 0;

    template <typename T>
    T* As(size_t i) const {
      return reinterpret_cast<T*>(places[i]);
    }
  };
  using HostKernel = std::function<void(const Piece&)>;

  // Whether `launch`, of the kernel `name`, has dealt with the operation: it was queued, or its
  // arguments are bad. Else the host must: an operand is elsewhere, or there is no kernel.
  bool ByKernel(CudaStream& stream, const char* name, std::initializer_list<const void*> operands,
                const std::function<kernels::Status(CUstream)>& launch);
  bool SumSquaresByKernel(CudaStream& stream, const Elements& values, double* sum);
  bool InArena(const kernels::Segment& segment) const;
  // Whether the step copies the segment, from the arena and to it, and this has been queued.
  bool CopyThere(CudaStream& stream, const kernels::ShardedStep& step,
                 const kernels::Segment& segment, const kernels::ParameterArrays& to);
  bool ApplyByKernel(CudaStream& stream, const kernels::ShardedStep& step,
                     const kernels::Segment& segment, const kernels::ParameterArrays& to);

  // Runs `kernel` on the host for each piece of the arrays, in stream order.
  void OnHost(CudaStream& stream, const std::vector<Array>& arrays, uint64_t count,
              const HostKernel& kernel);
  void RunPiece(CudaStream& stream, const std::vector<Array>& arrays,
                const std::vector<std::byte*>& blocks, Piece piece, const HostKernel& kernel);
  absl::Status TakeBlocks(const std::vector<Array>& arrays, uint64_t count,
                          std::vector<std::byte*>* blocks);
  // What the passes of one Prepare share.
  struct StepSums {
    kernels::ShardedStep* step = nullptr;
    const float* old_factors = nullptr;
    float* new_factors = nullptr;
    float* device_scales = nullptr;
    bool made_there = false;  // factors, by kernels
    std::vector<float> old_here = {};
    std::vector<float> new_here = {};
    // By the stream's thread, until the stream is idle:
    kernels::Status host_status = kernels::Status::kOk;
    // Of segments that the host adds whole, copied once for all passes.
    std::vector<std::optional<kernels::Segment>> fetched = {};
    std::vector<std::vector<std::byte>> storage = {};
  };
  // ShardedStep::AddSums of all segments, by kernels where they lie in the arena. Returns with the
  // stream idle.
  kernels::Status AddSums(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                          std::span<const kernels::Segment> segments, std::span<double> sums);
  void AddSumsOnHost(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                     const kernels::Segment& segment, size_t index, double* sums);
  // ShardedStep::MakeFactors of factors on either side, and the scales for kernels.
  kernels::Status MakeFactors(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                              std::span<const double> sums);
  kernels::Status MakeFactorsThere(CudaStream& stream, StepSums* of, kernels::SumPass pass,
                                   std::span<const double> sums);
  // Queues copies of what of a segment lies in the arena, to be kept in `storage`.
  kernels::Segment Fetch(CudaStream& stream, const kernels::Segment& segment,
                         std::vector<std::vector<std::byte>>* storage);

  const CudaMemory memory_;
  HostOps host_;
  InlineStream inline_;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_CUDA_CUDA_OPS_H_
