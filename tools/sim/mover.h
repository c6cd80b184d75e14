// Moves the chunks of one simulated rank by the protocol of client/zero/residency/mover.h, event by
// event.
//
// A gather copies the rank's shard under tickets, then all-gathers it; a reduction reduce-scatters,
// measures the shard, copies it home and frees the extent. Collectives run strictly in the order of
// requests; the copies of later gathers run ahead.
#ifndef GEMINID_TOOLS_SIM_MOVER_H_
#define GEMINID_TOOLS_SIM_MOVER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "tools/sim/collectives.h"
#include "tools/sim/policies/schedule.h"
#include "tools/sim/port.h"
#include "tools/sim/process.h"

namespace geminid::sim {

// The daemon's chunks of one rank, by chunk of the trace; homes by granule.
struct RankChunks {
  std::vector<core::ChunkId> gathered;
  std::vector<std::vector<core::ChunkId>> weights;
  std::vector<std::vector<core::ChunkId>> gradients;
};

struct MoverContext {
  Process* process = nullptr;
  Port* port = nullptr;
  Rendezvous* rendezvous = nullptr;
  const RankChunks* chunks = nullptr;
  // Memory without fragmentation (Schedule::counts_bytes_only).
  bool counts_bytes_only = false;
  std::function<bool(planner::ChunkIndex)> weights_current;
  std::function<void()> changed;  // called after a change that the rank may wait for
};

class Mover {
 public:
  explicit Mover(MoverContext context);

  void Gather(const ScheduledLoad& load);
  void Reduce(planner::ChunkIndex chunk);
  void Drop(planner::ChunkIndex chunk);
  // Copies the weights home, then drops them.
  void CopyBack(planner::ChunkIndex chunk);
  // Called after weights were updated or room was made.
  void Pump();

  // Bytes of the arena that chunks may occupy now.
  void SetLimit(uint64_t bytes) { limit_bytes_ = bytes; }

  bool IsResident(planner::ChunkIndex chunk) const {
    return chunks_[chunk].where == ChunkLocation::kResident;
  }
  bool NeedsGather(planner::ChunkIndex chunk) const {
    return chunks_[chunk].where == ChunkLocation::kAway ||
           chunks_[chunk].where == ChunkLocation::kReducing;
  }
  bool IsIdle() const { return in_motion_ == 0; }
  // Whether no leaving extent is above the limit; with counts_bytes_only: whether all extents fit.
  bool IsBelow(uint64_t limit_bytes) const;
  WaitCause CauseOfWait(planner::ChunkIndex chunk) const;

 private:
  enum class ChunkLocation { kAway, kQueued, kCopying, kCopied, kResident, kReducing };
  struct ChunkStatus {
    ChunkLocation where = ChunkLocation::kAway;
    bool holds_extent = false;
    bool leaving = false;
    uint64_t offset = 0;
    uint64_t bytes = 0;
    uint64_t copies_pending = 0;
  };
  struct Task {
    bool is_gather = true;
    ScheduledLoad load;
    bool started = false;
  };

  Process& process() const { return *context_.process; }
  const planner::Chunk& Traced(planner::ChunkIndex chunk) const {
    return process().workload().trace.chunks[chunk];
  }
  std::string ChunkName(planner::ChunkIndex chunk) const;
  bool CanStart(const Task& task) const;
  void StartGathers();
  void StartCopies(const ScheduledLoad& load);
  void CopyDone(planner::ChunkIndex chunk);
  void RunQueue();
  void Collective(planner::ChunkIndex chunk, const char* name, std::function<void()> done);
  void FinishGather(planner::ChunkIndex chunk);
  void FinishReduce(planner::ChunkIndex chunk);
  void Measure(planner::ChunkIndex chunk, std::function<void()> done);
  void CopyHome(planner::ChunkIndex chunk, const std::vector<core::ChunkId>& homes, uint64_t bytes);
  void Release(planner::ChunkIndex chunk);
  void Own(planner::ChunkIndex chunk, Owner from, Owner to);

  const MoverContext context_;
  std::vector<ChunkStatus> chunks_;
  std::deque<Task> queue_;
  bool thread_busy_ = false;  // in a collective, or in what follows it
  uint64_t in_motion_ = 0;
  uint64_t limit_bytes_ = 0;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_MOVER_H_
