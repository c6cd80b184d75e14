// The agent on each host of --hosts, and on a host that a run moves to. The agent starts the ranks
// that the launcher asks for, and reports how each of them ends.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_
#define GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/outcome_teller.h"
#include "training/launch/rank_host.h"
#include "training/launch/ranks_range.h"

namespace geminid::trainer {

// Launcher and agent tell each other this often that they are alive.
inline constexpr absl::Duration kBeatInterval = absl::Milliseconds(100);

// What the host must be ready for.
struct HostTask {
  std::vector<std::string> arguments{};
  int ranks = 1;                                   // of the run
  int ranks_here = 1;                              // that may come here
  std::optional<MoveRequest> move = std::nullopt;  // of a run that is to go on here
};
struct HostReady {
  Variables environment{};                         // added to the environment of the ranks
  std::optional<RanksRange> share = std::nullopt;  // if the daemon may change the number of ranks
};

struct HostAgentOptions {
  int in_fd = -1;                          // the agent owns both descriptors from now on
  int out_fd = -1;                         // nobody else writes to it
  std::string program = "/proc/self/exe";  // of the ranks
  // Makes the host ready. It is called once.
  std::function<absl::StatusOr<HostReady>(const HostTask& task)> prepare;
  OutcomeTeller* teller = nullptr;  // to the host's daemon; null: the daemon is not told
};

// Speaks the protocol of host_frames.h until the launcher closes the connection, which ends the
// ranks. The launcher's GEMINID_* variables hold here too, except those that are set here.
// UNAVAILABLE if the launcher is silent for as long as kPrepare said; then all ranks have been
// ended.
absl::Status RunHostAgent(const HostAgentOptions& options);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_
