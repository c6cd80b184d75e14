// Chunks in motion: gathers weights onto the device and takes gradients off it.
//
// A gather copies this rank's shard to its place in the chunk's extent under tickets, then
// all-gathers the chunk in place. A reduction reduce-scatters the gradient in the same storage,
// then copies this rank's shard home and frees the extent. One thread carries both out strictly in
// the order they were asked for, which is the same on all ranks, so that the collectives meet;
// copies of gathers further back in the queue run ahead of it.
//
//   AWAY --Gather--> QUEUED --copies--> COPYING --> COPIED --all-gather--> RESIDENT --Drop--> AWAY
//                                                                 RESIDENT --Reduce--> REDUCING -->
//                                                                 AWAY
#ifndef GEMINID_CLIENT_ZERO_MOVER_H_
#define GEMINID_CLIENT_ZERO_MOVER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/zero/arena_meter.h"
#include "client/zero/layout.h"
#include "client/zero/state_store.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

// What the mover needs to know of the rest of the engine. All outlive it.
struct MoverContext {
  Session* session = nullptr;
  const Layout* layout = nullptr;
  StateStore* store = nullptr;
  collectives::Communicator* communicator = nullptr;  // this thread's own
  DataType data_type = DataType::kBFloat16;
  int accumulate = 1;
  ArenaMeter* meter = nullptr;
  std::vector<ChunkId> gathered;  // the session's chunk of each layout chunk
  std::function<bool(uint32_t chunk)> weights_current;
  std::function<absl::Time()> clock;  // that stalls are measured by, on the waiting thread
};

class Mover {
 public:
  explicit Mover(MoverContext context);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // Asks for the chunk, at a given place or wherever there is room (then nothing may be in motion).
  void Gather(uint32_t chunk, std::optional<uint64_t> device_offset, TransferCause cause);

  // Takes the chunk's gradient off the device. `first`: of this step's micro-batches.
  void Reduce(uint32_t chunk, bool first, bool last);

  // Gives up the device copy. Must be resident and without a lease.
  void Drop(uint32_t chunk);

  // Waits until the chunk can be leased; adds what it waited for to the session's stalls.
  absl::Status WaitResident(uint32_t chunk);
  // Waits until nothing is queued or in motion.
  absl::Status WaitIdle();
  // Waits until no extent reaches beyond `limit_bytes`, which must be on its way to becoming true.
  absl::Status WaitBelow(uint64_t limit_bytes);

  // It is neither on the device nor asked for; a gradient still on its way home does not count.
  bool NeedsGather(uint32_t chunk) const;
  bool IsResident(uint32_t chunk) const;

  // Sum of squares of this rank's reduced gradients, over granules in order. Valid when idle after
  // the step's last reductions.
  double GradientSquares() const;
  void ClearGradientSquares();

  // Something the queue may wait for has changed (weights were updated), or failed.
  void Notify(const absl::Status& status);
  // Everything waiting, and every later call, gets this error. The other ranks are not told: the
  // engine aborts the communicators, in words that explain more than a failed copy can.
  void Fail(const absl::Status& status);

  // OK, or what made it fail.
  absl::Status status() const;

  // Bytes per second of the copies of gathers so far, waiting for tickets included; 0 before any.
  double HostToDeviceBytesPerSecond() const;

 private:
  enum class Where { kAway, kQueued, kCopying, kCopied, kResident, kReducing };

  struct Motion {
    Where where = Where::kAway;
    bool holds_extent = false;  // from the request for it until the daemon has taken it back
    bool leaving = false;       // the extent will be given up; a new gather may be queued already
    uint64_t device_offset = 0;
    uint64_t bytes = 0;
    uint32_t copies_pending = 0;
    absl::Time copies_began;
  };

  struct Task {
    enum class Kind { kGather, kReduce } kind = Kind::kGather;
    uint32_t chunk = 0;
    std::optional<uint64_t> device_offset;
    TransferCause cause = TransferCause::kDemand;
    bool started = false;
    bool first = true;
    bool last = true;
  };

  using Lock = std::unique_lock<std::mutex>;

  void Loop();
  Task* NextReadyGather();
  bool CanStart(const Task& task) const;
  void StartReadyGathers(Lock& lock);
  void StartCopies(const Task& task);
  void CopyDone(uint32_t chunk, const absl::Status& status);
  absl::Status FinishGather(const Task& task, Lock& lock);
  absl::Status CopyShardOnDevice(uint32_t chunk);
  absl::Status AllGather(uint32_t chunk);

  absl::Status RunReduce(const Task& task, Lock& lock);
  absl::Status ReduceScatter(uint32_t chunk);
  absl::Status MeasureShard(uint32_t chunk);
  absl::Status Measure(uint32_t granule, const std::byte* gradient, bool is_float);
  absl::Status KeepGradient(const Task& task,
                            const std::function<const std::byte*(uint32_t)>& source);
  absl::Status AccumulateGranule(uint32_t granule, const std::byte* gradient, bool first);
  void StartGradientCopies(const Task& task);
  void GradientCopyDone(uint32_t chunk, bool release, const absl::Status& status);
  absl::Status AccumulateStaged(const Task& task);
  void ReleaseExtent(uint32_t chunk);

  absl::Status Wait(const std::function<bool()>& done, const std::function<StallCause()>& cause);
  StallCause CauseOfWait(uint32_t chunk) const;
  uint64_t ShardOffset(uint32_t chunk) const;
  std::byte* Extent(uint32_t chunk) const;
  std::byte* Shard(uint32_t chunk) const;
  collectives::DType collective_type() const {
    return context_.data_type == DataType::kBFloat16 ? collectives::DType::kBFloat16
                                                     : collectives::DType::kFloat32;
  }
  size_t element_bytes() const { return SizeOf(context_.data_type); }
  uint64_t granule_bytes() const { return context_.layout->granule_elements * element_bytes(); }

  MoverContext context_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Motion> chunks_;
  std::deque<Task> queue_;
  std::vector<double> squares_;  // by granule
  uint32_t in_motion_ = 0;       // tasks not finished, extents not yet taken back
  uint32_t callbacks_pending_ = 0;
  uint64_t copied_bytes_ = 0;
  absl::Duration copying_time_;
  absl::Status status_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_MOVER_H_
