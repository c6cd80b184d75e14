// One rank of a training run, from connecting to the report.
#ifndef GEMINID_TOOLS_TRAINER_TRAIN_H_
#define GEMINID_TOOLS_TRAINER_TRAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "geminid/rank_info.h"
#include "tools/trainer/options.h"
#include "tools/trainer/progress.h"

namespace geminid::trainer {

struct RankContext {
  collectives::RankInfo info;
  std::string socket;         // of the daemon
  std::vector<uint8_t> text;  // what to learn
  Progress::Write write_stderr;
  bool stderr_is_terminal = false;
};

// Trains to the end. Rank 0 shows progress and writes the report. Blocks; the other ranks must run
// at the same time. If it fails, the other ranks fail too, with ABORTED.
absl::Status TrainAsRank(const TrainOptions& options, const RankContext& context);

// What a rank's arena must hold so that nothing ever leaves it, with room to spare.
uint64_t UnlimitedDeviceBytes(const TrainOptions& options, int world_size);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_TRAIN_H_
