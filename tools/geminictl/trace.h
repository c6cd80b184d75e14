// geminictl trace: what a session's plan was made from, as a file; and what such a file holds.
#ifndef GEMINID_TOOLS_GEMINICTL_TRACE_H_
#define GEMINID_TOOLS_GEMINICTL_TRACE_H_

#include <string>

#include "tools/geminictl/context.h"

namespace geminid::ctl {

struct TraceOptions {
  std::string session;  // "3", or "demo/0" for a job's rank; empty: the only one
  std::string file;
};

// NOT_FOUND where there is no such session, or no plan was made for it.
absl::StatusOr<int> RunTraceSave(const Context& context, const TraceOptions& options);

// Needs no daemon. INVALID_ARGUMENT where the file is no trace.
absl::StatusOr<int> RunTraceShow(const Context& context, const TraceOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_TRACE_H_
