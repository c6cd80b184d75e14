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

// Options that only the launcher understands, and that its agents and ranks do not get.
inline constexpr const char* kHostsOptions[] = {"--hosts", "--remote-shell", "--host-timeout"};

// INVALID_ARGUMENT if another launcher has started this process as one of several ranks. A script
// that Slurm runs on the first host of an allocation is not a rank.
absl::Status CheckNoOtherLauncher(const collectives::Environment& environment);

// The command line's settings of the hosts and of the run on them.
struct RunOnHosts {
  std::vector<HostSlots> hosts;
  std::string remote_shell;     // the command that reaches another host
  absl::Duration host_timeout;  // of silence, after which a host is lost
  int ranks = 0;
  int most_ranks = 0;  // that it may have later
  bool resume = false;
};

// Whether a run can have so many ranks.
using RanksFit = std::function<bool(int ranks)>;

// The largest number of ranks, up to `ranks`, that fits the run and these hosts; 0: none fits.
int RanksOnThoseLeft(const std::vector<HostSlots>& hosts, int ranks, const RanksFit& fits);

// For LaunchOptions::reach: starts an agent on the host that a run moves to, by the remote shell of
// `run`. `arguments` are those of this process.
std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> ReachByShell(
    const RunOnHosts& run, const std::vector<std::string>& arguments);

// Starts an agent on each host, and the ranks through Launch(). `launch` has the other settings,
// and `arguments` are those of this process. An error names the hosts that cannot be reached, have
// another program or cannot have the run. In this case no rank was started.
//
// With --resume and restarts left, a run that lost a host is launched again on the remaining hosts,
// with as many ranks as fit. It resumes from its newest checkpoint.
absl::StatusOr<int> LaunchOnHosts(const RunOnHosts& run, const std::vector<std::string>& arguments,
                                  LaunchOptions launch, const RanksFit& fits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_ON_HOSTS_H_
