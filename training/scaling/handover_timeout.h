// How long ranks wait for each other while they hand their state over.
#ifndef GEMINID_TRAINING_SCALING_HANDOVER_TIMEOUT_H_
#define GEMINID_TRAINING_SCALING_HANDOVER_TIMEOUT_H_

#include <cstdint>

#include "absl/time/time.h"
#include "training/ranks/rank_session.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// What a handover moves, for HandoverTimeout.
struct HandoverWork {
  uint64_t bytes = 0;                  // of the whole state
  bool uses_disk = false;              // some of the state is in files
  bool is_over_hosts = false;          // some of the state goes to another host
  uint64_t link_bytes_per_second = 0;  // of a paced link to the device; 0: not paced
};

HandoverWork WorkOf(const TrainOptions& options, const RankContext& context, int ranks_after,
                    uint64_t state_bytes);

// Between two meetings of the ranks, one rank may do all of `work` while the others wait. The
// result is `usual`, the longest wait in training, and the time of that work at the slowest speed
// that a working machine has. It is at most an hour, or `usual` if that is longer.
absl::Duration HandoverTimeout(const HandoverWork& work, absl::Duration usual);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_HANDOVER_TIMEOUT_H_
