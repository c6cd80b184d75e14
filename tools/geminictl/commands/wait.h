// geminictl wait: until the daemon, or a job, is as somebody needs it.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_WAIT_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_WAIT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/v1/job.pb.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// Besides the states of a job (v1::JobInfo.state): no job of that name is left.
inline constexpr char kGone[] = "gone";

struct WaitOptions {
  std::string job{};     // empty: for the daemon
  std::string tenant{};  // empty: any
  std::string state{};   // of the job
  absl::Duration at_most = absl::Seconds(60);
};

// INVALID_ARGUMENT for what is no state of a job.
absl::Status CheckJobState(const std::string& state);

// What there still is to wait for, as "job demo to be running; it is queued"; empty: nothing. Pure.
std::string LeftToWaitFor(const v1::ListJobsResponse& jobs, const WaitOptions& options);

// Until it serves, admits new jobs and its accounts add up. Also for a daemon that is not there
// yet. DEADLINE_EXCEEDED with what was missing at last.
absl::StatusOr<int> RunWaitDaemon(const Context& context, const WaitOptions& options);

// Until one of the jobs is in the state. A daemon that ends in between is waited for too.
absl::StatusOr<int> RunWaitJob(const Context& context, const WaitOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_WAIT_H_
