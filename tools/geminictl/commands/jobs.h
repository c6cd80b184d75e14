// geminictl ls jobs, drain, evict, scale, migrate and end: several jobs on a node.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_JOBS_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_JOBS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "geminid/v1/job.pb.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

struct JobOptions {
  std::string job;
  std::string tenant;  // empty: the caller's own
  uint32_t ranks = 0;  // of scale; 0: the number that the daemon finds best
  std::string host;    // of migrate; empty: the job stays at its host
  bool undo = false;
  bool yes = false;  // does not ask before it acts
  bool wait = false;
  absl::Duration wait_at_most = absl::InfiniteDuration();
};

absl::StatusOr<int> RunListJobs(const Context& context);
// With `wait`: waits until no job is left, and prints how many are. DEADLINE_EXCEEDED names the
// jobs that are left.
absl::StatusOr<int> RunDrain(const Context& context, const JobOptions& options);
// With `wait`: waits until the job has given its device memory back.
absl::StatusOr<int> RunEvict(const Context& context, const JobOptions& options);
// Waits until the job goes on with so many ranks, or at that host. FAILED_PRECONDITION: the job
// goes on as before, and the error says why. DEADLINE_EXCEEDED: the outcome is not known yet.
absl::StatusOr<int> RunScale(const Context& context, const JobOptions& options);
// Asks on a terminal. Without a terminal it needs `yes`, else INVALID_ARGUMENT.
absl::StatusOr<int> RunEnd(const Context& context, const JobOptions& options);

// Why the job of this request cannot answer yet, as in "evicted, and takes the request when it is
// back". Empty: it runs, or is not listed.
std::string WhyScaleWaits(const v1::ListJobsResponse& jobs, const v1::ScaleRequest& scale);

// The table of ls jobs.
std::string DescribeJobs(const v1::ListJobsResponse& jobs, const Style& style);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_JOBS_H_
