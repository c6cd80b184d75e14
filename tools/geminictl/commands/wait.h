// geminictl wait: waits until the daemon, or a job, is in a state.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_WAIT_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_WAIT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/v1/job.pb.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// A state besides those of a job (v1::JobInfo.state): no job of this name is left.
inline constexpr char kGone[] = "gone";

struct WaitOptions {
  std::string job{};     // empty: waits for the daemon
  std::string tenant{};  // empty: any
  std::string state{};   // of the job
  absl::Duration at_most = absl::Seconds(60);
};

// INVALID_ARGUMENT if `state` is not a state of a job.
absl::Status CheckJobState(const std::string& state);

// The condition that is still missing, as "job demo to be running; it is queued"; empty: none.
// Pure.
std::string LeftToWaitFor(const v1::ListJobsResponse& jobs, const WaitOptions& options);

// Waits until the daemon serves, admits new jobs and its accounts add up. The daemon may start
// later. DEADLINE_EXCEEDED says what was missing last.
absl::StatusOr<int> RunWaitDaemon(const Context& context, const WaitOptions& options);

// Waits until one of the jobs is in the state, even if the daemon restarts meanwhile.
absl::StatusOr<int> RunWaitJob(const Context& context, const WaitOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_WAIT_H_
