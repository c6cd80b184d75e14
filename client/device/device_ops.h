// Arithmetic on device memory, and all other access to it except copies over the link.
//
// Contract of every operation, on every device:
// * An operation is queued on a stream of its device, and the call returns. It runs after earlier
//   work of the stream, and later work sees its results. Arguments are read at the call. The memory
//   and the objects that they refer to must stay until the operation has run.
// * Addresses are those of device memory, in the arena or not, or of host memory, which must be
//   registered if the device needs that. Results for the host are written to host memory in stream
//   order, and may be read after Synchronize only.
// * Results are bit-identical to the host's kernels (kernels/), on every device, and however the
//   work is divided.
// * Errors are reported late: operations after a failed one may or may not run, and Synchronize
//   returns the first failure, which the device keeps for good.
#ifndef GEMINID_CLIENT_DEVICE_DEVICE_OPS_H_
#define GEMINID_CLIENT_DEVICE_DEVICE_OPS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "geminid/buffer.h"
#include "geminid/stream.h"
#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::device {

// Elements of kFloat32 or kBFloat16, in any memory.
struct Elements {
  const std::byte* data = nullptr;
  uint64_t count = 0;
  collectives::DType type = collectives::DType::kFloat32;

  uint64_t bytes() const { return count * collectives::SizeOf(type); }
};

// Thread-safe, like streams.
class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  virtual void Zero(Stream& stream, std::byte* to, uint64_t bytes) = 0;
  // Between any two ranges that do not overlap. Use a CopyStream for large copies over the link.
  virtual void Copy(Stream& stream, std::byte* to, const std::byte* from, uint64_t bytes) = 0;

  // to = from, or to += from: computed in fp32 and rounded once to `type`. `from` need not be
  // aligned.
  virtual void Assign(Stream& stream, const Elements& from, std::byte* to,
                      collectives::DType type) = 0;
  virtual void Add(Stream& stream, const Elements& from, std::byte* to,
                   collectives::DType type) = 0;
  // sum += scale * from, in fp32 (kernels/numeric/accumulate).
  virtual void Accumulate(Stream& stream, const Elements& from, float scale, float* sum) = 0;
  // *sum, in host memory, becomes the sum of squares (kernels/numeric/norm).
  virtual void SumSquares(Stream& stream, const Elements& values, double* sum) = 0;

  // Convert between fp32 masters and the weights and remainders that represent them. With null
  // remainders, 0 is read, and written remainders are lost.
  virtual void JoinMaster(Stream& stream, const kernels::BFloat16* weight, const int16_t* remainder,
                          uint64_t count, float* master) = 0;
  virtual void SplitMaster(Stream& stream, const float* master, uint64_t count,
                           kernels::BFloat16* weight, int16_t* remainder) = 0;

  // ShardedStep::Apply. A device that computes on the host spreads the work over `threads`, which
  // must not be used elsewhere until the operation has run. Other devices ignore `threads`.
  virtual void Apply(Stream& stream, const kernels::ShardedStep& step,
                     const kernels::Segment& segment, const kernels::ParameterArrays& to,
                     kernels::ThreadPool* threads) = 0;
  // ShardedStep::Prepare, for segments in any memory. The only operation that blocks, since ranks
  // exchange sums in its middle; `reduce` limits its own waits. `device_scales`: room in the arena
  // for FactorTotal() numbers, which kernels use until the next step; null: the host steps
  // Adafactor and CAME. With it, if the factors and all trained values are in the arena, the
  // arguments of Apply must be in the arena too.
  virtual kernels::Status Prepare(Stream& stream, kernels::ShardedStep* step,
                                  const kernels::StepScalars& scalars,
                                  std::span<const kernels::Segment> segments,
                                  const float* old_factors, const kernels::ReduceSum& reduce,
                                  float* new_factors, float* device_scales) = 0;

  // The first failure of any operation so far. Called from work on a stream: includes the work
  // queued there before it.
  virtual absl::Status status() const = 0;
  // Waits for all work queued on the stream. Returns the first failure of any operation so far, or
  // DEADLINE_EXCEEDED: then the work continues, and its memory must stay.
  virtual absl::Status Synchronize(Stream& stream, absl::Duration timeout) = 0;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_DEVICE_OPS_H_
