// geminictl top: memory and ranks, live.
#ifndef GEMINID_TOOLS_GEMINICTL_TOP_H_
#define GEMINID_TOOLS_GEMINICTL_TOP_H_

#include "tools/geminictl/command_line.h"
#include "tools/geminictl/context.h"

namespace geminid::ctl {

// Until q, an interrupt or a signal; one reading where nobody watches, or where JSON is wanted. The
// first reading must succeed; later the daemon may come and go.
absl::StatusOr<int> RunTop(const Context& context, const TopOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_TOP_H_
