// The optimizer on one simulated rank, by the protocol of client/zero/update/updater.h, event by
// event.
#ifndef GEMINID_TOOLS_SIM_UPDATER_H_
#define GEMINID_TOOLS_SIM_UPDATER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/sim/process.h"

namespace geminid::sim {

// The state that outlives the process: which chunks of an update are done. The next process updates
// the others from the gradients that the daemon retains.
struct UpdateProgress {
  uint64_t step = 0;          // steps committed
  std::vector<bool> current;  // by chunk; empty: all
};

// Updates chunk after chunk in the order in which the next forward pass needs them, while that pass
// already runs. State on disk, or streamed through the device, is prefetched and written back, a
// few chunks at a time.
class Updater {
 public:
  // `progress` outlives the process, the rest lives as long. Calls `updated` after each chunk.
  Updater(Process* process, UpdateProgress* progress, std::function<void()> updated);

  void Start(uint64_t step);
  // Continues the update where the last process stopped.
  void Resume();
  bool IsCurrent(planner::ChunkIndex chunk) const {
    return progress_->current.empty() || progress_->current[chunk];
  }
  bool IsIdle() const { return written_ == order_.size(); }

 private:
  const ChunkUpdate& Update(size_t position) const;
  void ReadAhead();
  void RunNext();
  void Write(size_t position);
  void Written(size_t position);
  // State on its way to or from the update: over the link, or from and to the disk.
  void Stage(bool in, size_t position, std::function<void()> done);

  Process* const process_;
  UpdateProgress* const progress_;
  const std::function<void()> updated_;
  std::vector<planner::ChunkIndex> first_use_order_;  // of the chunks that are updated at all
  std::vector<planner::ChunkIndex> order_;            // of the current update
  size_t read_ = 0;                                   // positions in order_, all of them
  size_t updated_to_ = 0;
  size_t written_ = 0;
  bool reading_ = false;
  bool busy_ = false;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_UPDATER_H_
