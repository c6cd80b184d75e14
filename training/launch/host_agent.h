// The agent on each host of --hosts, and on a host that a run goes to. It starts the ranks that the
// launcher asks for, and reports how each of them ends.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_
#define GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/rank_host.h"
#include "training/launch/ranks_range.h"

namespace geminid::trainer {

// How often both ends say that they are there.
inline constexpr absl::Duration kBeatInterval = absl::Milliseconds(100);

// What the host is to be ready for.
struct HostTask {
  std::vector<std::string> arguments{};
  int ranks = 1;  // of the run
  int ranks_here = 1;
  std::optional<MoveRequest> move = std::nullopt;  // of a run that is to go on here
};
struct HostReady {
  Variables environment{};                         // added to that of the ranks
  std::optional<RanksRange> share = std::nullopt;  // the daemon may change their number
};

struct HostAgentOptions {
  int in_fd = -1;                          // both are the agent's from now on
  int out_fd = -1;                         // nobody else writes there
  std::string program = "/proc/self/exe";  // of the ranks
  // Called once.
  std::function<absl::StatusOr<HostReady>(const HostTask& task)> prepare;
  // Tells the host's daemon. Null: nobody asks.
  std::function<void(const MoveOutcome& outcome)> tell{};
};

// Speaks as host_frames.h has it until the other end closes, which ends the ranks. GEMINID_*
// variables of the other end hold here too, but for those that are set here. UNAVAILABLE if the
// other end is silent for as long as it said; no rank is left then.
absl::Status RunHostAgent(const HostAgentOptions& options);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_
