// One rank of a training run, from connecting to the report.
#ifndef GEMINID_TOOLS_TRAINER_TRAIN_H_
#define GEMINID_TOOLS_TRAINER_TRAIN_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "geminid/rank_info.h"
#include "tools/trainer/data/token_source.h"
#include "tools/trainer/options.h"
#include "tools/trainer/progress.h"

namespace geminid::trainer {

struct RankContext {
  collectives::RankInfo info;
  std::string socket;                 // of the daemon
  const TokenSource* data = nullptr;  // what to learn
  Progress::Write write_stderr;
  bool stderr_is_terminal = false;
  Progress::Width terminal_width;  // null: 80 columns
  std::function<int()> stop_signal =
      nullptr;  // the signal that asks for an end, 0 before; null: none
};

// How training ended: at most one is set.
struct TrainEnd {
  int signal = 0;         // some rank was asked to stop by it
  bool diverged = false;  // the loss was not finite, and --stop-on-nan given
};

// Trains to the end, or to the end of a step in which some rank was asked to stop: all ranks end
// after the same step, alike. Rank 0 shows progress and writes the report. Blocks; the other ranks
// must run at the same time. If it fails, the other ranks fail too, with ABORTED.
absl::StatusOr<TrainEnd> TrainAsRank(const TrainOptions& options, const RankContext& context);

// What a rank's arena must hold so that nothing ever leaves it, with room to spare.
uint64_t UnlimitedDeviceBytes(const TrainOptions& options, int world_size);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_TRAIN_H_
