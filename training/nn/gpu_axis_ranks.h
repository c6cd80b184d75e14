// Exchanges of a grid's layers between memory of GPUs.
#ifndef GEMINID_TRAINING_NN_GPU_AXIS_RANKS_H_
#define GEMINID_TRAINING_NN_GPU_AXIS_RANKS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "geminid/communicator.h"
#include "training/nn/gpu_queue.h"
#include "training/nn/parallel/axis_ranks.h"
#include "training/nn/parallel/memory.h"

namespace geminid::trainer {

// Each call waits for the work that was queued before it, and is complete when it returns, but for
// copies to the device, which are queued. Buffers go from GPU to GPU, or a piece at a time through
// host memory. Both ways give the same bits.
class GpuAxisRanks final : public collectives::AxisRanks {
 public:
  // The most host memory that pieces take at a time, and the most bytes of an all-reduce or a
  // reduce between GPUs at a time.
  static constexpr size_t kHostBytes = size_t{4} << 20;
  static constexpr size_t kDeviceBytes = size_t{16} << 20;

  // `ranks` exchange host memory. `devices` exchange memory of the same ranks' GPUs; null: buffers
  // pass through host memory from `memory`. `ranks`, `queue` and `memory` outlive this object.
  GpuAxisRanks(collectives::Communicator& ranks, std::unique_ptr<collectives::Communicator> devices,
               GpuQueue& queue, collectives::Memory& memory, size_t host_bytes = kHostBytes)
      : ranks_(ranks),
        devices_(std::move(devices)),
        queue_(queue),
        memory_(memory),
        host_bytes_(host_bytes) {}

  int Rank() const override { return ranks_.Rank(); }
  absl::Status AllGather(collectives::ConstBuffer in, collectives::Buffer out) override;
  absl::Status ReduceScatter(collectives::ConstBuffer in, collectives::Buffer out) override;
  absl::Status Reduce(collectives::ConstBuffer in, collectives::Buffer out, int root) override;
  absl::Status AllReduce(collectives::ConstBuffer in, collectives::Buffer out,
                         collectives::ReduceOp op) override;
  absl::Status Broadcast(collectives::ConstBuffer own, collectives::Buffer out, int root) override;
  absl::Status Exchange(collectives::ConstBuffer mine, collectives::Buffer theirs,
                        int peer) override;
  // As Communicator's.
  absl::Status SendReceive(collectives::ConstBuffer mine, int to, collectives::Buffer theirs,
                           int from);
  void Abort(const std::string& reason) override;

 private:
  size_t ranks() const { return static_cast<size_t>(ranks_.WorldSize()); }
  // Waits for the queued work.
  absl::Status Drain(collectives::ConstBuffer any);
  absl::Status Copy(collectives::ConstBuffer from, collectives::Buffer to);

  // Elements of a buffer, from `at` on.
  struct BufferSlice {
    size_t at;
    size_t count;
  };
  // Calls `work` for pieces of at most `most` elements, which cover `count`.
  static absl::Status InPieces(size_t count, size_t most,
                               const std::function<absl::Status(BufferSlice)>& work);
  // The same with host memory for `copies` of a piece.
  absl::Status ThroughHost(size_t count, collectives::DType type, size_t copies,
                           const std::function<absl::Status(BufferSlice, std::byte* host)>& work);
  absl::Status Down(collectives::ConstBuffer from, BufferSlice piece, std::byte* host);
  absl::Status Up(const std::byte* host, collectives::Buffer to, BufferSlice piece);

  collectives::Communicator& ranks_;
  const std::unique_ptr<collectives::Communicator> devices_;
  GpuQueue& queue_;
  collectives::Memory& memory_;
  const size_t host_bytes_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_GPU_AXIS_RANKS_H_
