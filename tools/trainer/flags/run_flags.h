// The flags of a run's processes, of its messages and log files, and of its checkpoints.
#ifndef GEMINID_TOOLS_TRAINER_FLAGS_RUN_FLAGS_H_
#define GEMINID_TOOLS_TRAINER_FLAGS_RUN_FLAGS_H_

#include <span>

#include "absl/status/status.h"
#include "tools/trainer/flags/flags.h"
#include "training/settings/options.h"

namespace geminid::trainer {

std::span<const FlagSpec> ProcessFlags();
std::span<const FlagSpec> HostsFlags();
std::span<const FlagSpec> OutputFlags();
std::span<const FlagSpec> CheckpointFlags();
inline constexpr FlagSpec kLoadFlag = {"--load", &Flags::load, "DIR",
                                       "Begin with the values of a checkpoint or a Hugging Face "
                                       "folder, and with its shape if no other "
                                       "is given"};

// INVALID_ARGUMENT names the flag.
// For commands that do not train: the daemon cannot change their number of ranks.
absl::Status CheckRanksAreFixed(const TrainOptions& options);
absl::Status ParseProcesses(const Flags& flags, TrainOptions* options);
absl::Status ParseOutput(const Flags& flags, TrainOptions* options);
absl::Status ParseCheckpoints(const Flags& flags, TrainOptions* options);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_FLAGS_RUN_FLAGS_H_
