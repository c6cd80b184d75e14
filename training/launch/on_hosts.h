// Launches a run on the hosts of --hosts, and again on the remaining hosts after one is lost.
#ifndef GEMINID_TRAINING_LAUNCH_ON_HOSTS_H_
#define GEMINID_TRAINING_LAUNCH_ON_HOSTS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/rank_info.h"
#include "training/launch/host_file.h"
#include "training/launch/launcher.h"

namespace geminid::trainer {

// What only the program that --hosts is given to understands.
inline constexpr const char* kHostsOptions[] = {"--hosts", "--remote-shell", "--host-timeout"};

// INVALID_ARGUMENT if another launcher has started this process as one of several. A script that
// Slurm runs on the first host of an allocation is none of its ranks.
absl::Status CheckNoOtherLauncher(const collectives::Environment& environment);

// What the command line says of the hosts and of the run on them.
struct RunOnHosts {
  std::vector<HostSlots> hosts;
  std::string remote_shell;     // how a command gets to another host
  absl::Duration host_timeout;  // of silence, after which a host is lost
  int ranks = 0;
  bool resume = false;
};

// Whether a run can have so many ranks.
using Fits = std::function<bool(int ranks)>;

// The most ranks, of no more than `ranks`, that fit the run and these hosts; 0: none do.
int RanksOnThoseLeft(const std::vector<HostSlots>& hosts, int ranks, const Fits& fits);

// Gets to another host for a run that is to go on there (LaunchOptions::reach), by the remote shell
// of `run`. `arguments` are those of this process.
std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> ReachByShell(
    const RunOnHosts& run, const std::vector<std::string>& arguments);

// Starts an agent on each host, and by Launch() the ranks on them. `launch` says the rest, and
// `arguments` are those of this process. Errors name the hosts that cannot be reached, have another
// program or cannot have the run; then no rank was started.
//
// With --resume and restarts left, a run whose host is lost is launched again on the hosts that are
// left, with as many ranks as fit: it goes on from its newest checkpoint.
absl::StatusOr<int> LaunchOnHosts(const RunOnHosts& run, const std::vector<std::string>& arguments,
                                  LaunchOptions launch, const Fits& fits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_ON_HOSTS_H_
