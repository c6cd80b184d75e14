// A run on the hosts of --hosts.
#ifndef GEMINID_TOOLS_TRAINER_ON_HOSTS_H_
#define GEMINID_TOOLS_TRAINER_ON_HOSTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/rank_info.h"
#include "tools/trainer/launcher.h"
#include "tools/trainer/options.h"

namespace geminid::trainer {

// What only the program that --hosts is given to understands.
inline constexpr const char* kHostsOptions[] = {"--hosts", "--remote-shell", "--host-timeout"};

// INVALID_ARGUMENT if another launcher has started this process as one of several. A script that
// Slurm runs on the first host of an allocation is none of its ranks.
absl::Status CheckNoOtherLauncher(const collectives::Environment& environment);

// As many as --ranks says, else as there are slots.
int RanksOnHosts(const TrainOptions& options);

// Starts an agent on each host, and by Launch() the ranks on them. `launch` says the rest, and
// `arguments` are those of this process. Errors name the hosts that cannot be reached, have another
// program or cannot have the run; then no rank was started.
absl::StatusOr<int> LaunchOnHosts(const TrainOptions& options,
                                  const std::vector<std::string>& arguments, LaunchOptions launch);

}  // namespace geminid::trainer

#endif  // GEMINID_TOOLS_TRAINER_ON_HOSTS_H_
