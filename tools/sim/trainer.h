// The training loop on one simulated rank: moments, waits, steps, as client/zero's engine runs
// them.
#ifndef GEMINID_TOOLS_SIM_TRAINER_H_
#define GEMINID_TOOLS_SIM_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tools/sim/mover.h"
#include "tools/sim/updater.h"

namespace geminid::sim {

// The state of a rank that outlives its process, in memory that the daemon retains.
struct RankRecord {
  UpdateProgress progress;
  std::vector<bool> announced;  // by chunk: the daemon knows that it is HOLD
};

struct TrainerContext {
  Process* process = nullptr;
  Port* port = nullptr;
  Rendezvous* rendezvous = nullptr;
  const RankChunks* chunks = nullptr;
  const Schedule* schedule = nullptr;
  RankRecord* record = nullptr;
  uint64_t steps = 0;
  // Called when the rank has committed a step; the rank does not wait for it.
  std::function<void(uint64_t step)> committed;
};

class Trainer {
 public:
  explicit Trainer(TrainerContext context);

  // Begins step `first_step` (from 0): all earlier steps are committed, but updates may be missing.
  void Start(uint64_t first_step);

 private:
  Process& process() const { return *context_.process; }
  const planner::Trace& trace() const { return process().workload().trace; }
  uint64_t Iteration(uint64_t step) const;
  const ScheduledMoment& Scheduled() const;

  // Runs `next` once ready() holds; records the time until then under cause().
  void WaitUntil(std::function<bool()> ready, const std::function<WaitCause()>& cause,
                 std::function<void()> next);
  void Changed();
  void NoteWait();

  void BeginMicroBatch();
  void EnterMoment();
  void Reserve(uint64_t bytes, std::function<void()> next);
  void IssueLoads();
  void Compute();
  void Hold(planner::ChunkIndex chunk);
  void LeaveMoment();
  void EndMicroBatch();
  void Barrier();
  void Commit();

  const TrainerContext context_;
  Mover mover_;
  Updater updater_;
  uint64_t first_step_ = 0;
  uint64_t step_ = 0;
  int micro_batch_ = 0;
  size_t moment_ = 0;
  uint64_t reserved_bytes_ = 0;

  struct Wait {
    std::function<bool()> ready;
    std::function<WaitCause()> cause_of;
    std::function<void()> next;
    WaitCause cause = WaitCause::kCopy;
    core::Time since;
  };
  std::optional<Wait> wait_;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_TRAINER_H_
