// geminictl status: the daemon, its memory and its jobs.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_STATUS_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_STATUS_H_

#include <string>

#include "geminid/v1/admin.pb.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

// Pure: totals per tier, job and kind first, the machine last.
std::string DescribeStatus(const v1::Status& status, const v1::ListSessionsResponse& sessions,
                           const Style& style);

// kExitUnhealthy if the ledger does not add up or the daemon is about to end.
absl::StatusOr<int> RunStatus(const Context& context);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_STATUS_H_
