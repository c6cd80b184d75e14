// geminictl status: what the daemon is and holds.
#ifndef GEMINID_TOOLS_GEMINICTL_STATUS_H_
#define GEMINID_TOOLS_GEMINICTL_STATUS_H_

#include "tools/geminictl/context.h"

namespace geminid::ctl {

// Unhealthy where the ledger does not add up or the daemon is about to end.
absl::StatusOr<int> RunStatus(const Context& context);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_STATUS_H_
