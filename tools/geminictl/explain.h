// geminictl explain: why a chunk is where it is.
#ifndef GEMINID_TOOLS_GEMINICTL_EXPLAIN_H_
#define GEMINID_TOOLS_GEMINICTL_EXPLAIN_H_

#include "tools/geminictl/command_line.h"
#include "tools/geminictl/context.h"

namespace geminid::ctl {

// NOT_FOUND where there is no such chunk; INVALID_ARGUMENT where `name` has no session and several
// are attached.
absl::StatusOr<int> RunExplain(const Context& context, const ChunkName& name);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_EXPLAIN_H_
