// The agent on each host of --hosts. It starts the ranks that the launcher asks for, and reports
// how each of them ends.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_
#define GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/rank_host.h"

namespace geminid::trainer {

// How often both ends say that they are there.
inline constexpr absl::Duration kBeatInterval = absl::Milliseconds(100);

struct HostAgentOptions {
  int in_fd = -1;                          // both are the agent's from now on
  int out_fd = -1;                         // nobody else writes there
  std::string program = "/proc/self/exe";  // of the ranks
  // Makes the host ready for `ranks_here` of the `ranks` of a run with these arguments, and returns
  // what is added to their environment. Called once.
  std::function<absl::StatusOr<Variables>(const std::vector<std::string>& arguments, int ranks,
                                          int ranks_here)>
      prepare;
};

// Speaks as host_frames.h has it until the other end closes, which ends the ranks. GEMINID_*
// variables of the other end hold here too, but for those that are set here. UNAVAILABLE if the
// other end is silent for as long as it said; no rank is left then.
absl::Status RunHostAgent(const HostAgentOptions& options);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_AGENT_H_
