// Arithmetic on device memory, and all access to it but for the copies over the link.
//
// Contract of every operation, on every device:
//  * It is queued on a stream of its device and returns: it runs after what was queued before, and
//    what is queued after it sees what it wrote. Arguments are taken at the call. The memory that
//    they point to, and the objects that they refer to, must stay until it has run.
//  * Addresses are of the device's memory, in the arena or not, or of host memory, which must be
//    registered where the device needs that. A result for the host is written to host memory in the same order: nothing of the device
//    is read on the host but after Synchronize.
//  * Its bits are those of the host's kernels (kernels/), whatever the device and however the work
//    is cut.
//  * What fails, fails later: operations after it may or may not run, and Synchronize says so. The
//    first failure stays the device's.
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

// Elements of kFloat32 or kBFloat16, wherever they lie.
struct Elements {
  const std::byte* data = nullptr;
  uint64_t count = 0;
  collectives::DType type = collectives::DType::kFloat32;

  uint64_t bytes() const { return count * collectives::SizeOf(type); }
};

// Thread-safe, as streams are.
class DeviceOps {
 public:
  virtual ~DeviceOps() = default;

  virtual void Zero(Stream& stream, std::byte* to, uint64_t bytes) = 0;
  // Between any two places that do not overlap. Large ones over the link belong to a CopyStream.
  virtual void Copy(Stream& stream, std::byte* to, const std::byte* from, uint64_t bytes) = 0;

  // to = from, or to += from: formed in fp32 and rounded once to `type`. `from` need not be
  // aligned.
  virtual void Assign(Stream& stream, const Elements& from, std::byte* to,
                      collectives::DType type) = 0;
  virtual void Add(Stream& stream, const Elements& from, std::byte* to,
                   collectives::DType type) = 0;
  // sum += scale * from, in fp32 (kernels/numeric/accumulate).
  virtual void Accumulate(Stream& stream, const Elements& from, float scale, float* sum) = 0;
  // *sum, in host memory, becomes the sum of squares (kernels/numeric/norm).
  virtual void SumSquares(Stream& stream, const Elements& values, double* sum) = 0;

  // Between fp32 masters and the weights and remainders that make them. Without remainders (null)
  // those read are 0, and those written are lost.
  virtual void JoinMaster(Stream& stream, const kernels::BFloat16* weight, const int16_t* remainder,
                          uint64_t count, float* master) = 0;
  virtual void SplitMaster(Stream& stream, const float* master, uint64_t count,
                           kernels::BFloat16* weight, int16_t* remainder) = 0;

  // ShardedStep::Apply. Devices whose compute is the host's spread it over `threads`, which nobody
  // else may use until it has run; the others leave them alone.
  virtual void Apply(Stream& stream, const kernels::ShardedStep& step,
                     const kernels::Segment& segment, const kernels::ParameterArrays& to,
                     kernels::ThreadPool* threads) = 0;
  // ShardedStep::Prepare, of segments on either side. The one operation that blocks, since ranks
  // exchange sums in its middle; `reduce` has limits of its own to waiting. `device_scales`, of
  // FactorTotal() numbers in the arena, are for kernels until the next step; without (null)
  // Adafactor and CAME are stepped by the host. Where they are given, and factors and all that is
  // trained lie in the arena, Apply must find all of the step there, too.
  virtual kernels::Status Prepare(Stream& stream, kernels::ShardedStep* step,
                                  const kernels::StepScalars& scalars,
                                  std::span<const kernels::Segment> segments,
                                  const float* old_factors, const kernels::ReduceSum& reduce,
                                  float* new_factors, float* device_scales) = 0;

  // The first failure of any operation so far. In work that is queued on a stream: of what was
  // queued before it, too.
  virtual absl::Status status() const = 0;
  // Waits for what is queued on the stream. The first failure of any operation so far, or
  // DEADLINE_EXCEEDED: the work goes on, and its memory must stay.
  virtual absl::Status Synchronize(Stream& stream, absl::Duration timeout) = 0;
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_DEVICE_OPS_H_
