// geminictl trace: what a session's plan was made from, as a file; what such a file holds; and the
// step that follows from it.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_TRACE_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_TRACE_H_

#include <string>

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

struct TraceOptions {
  std::string session;  // "3", or "demo/0" for a job's rank; empty: the only one
  std::string file;
  std::string perfetto;  // of export: files to write; empty: not
  std::string svg;
};

// NOT_FOUND where there is no such session, or no plan was made for it.
absl::StatusOr<int> RunTraceSave(const Context& context, const TraceOptions& options);

// Needs no daemon. INVALID_ARGUMENT where the file is no trace.
absl::StatusOr<int> RunTraceShow(const Context& context, const TraceOptions& options);

// One step of one rank as the simulator plays it with the engine's plan: computation as it was
// recorded, transfers and waits as they follow from the plan and the links. From `file` if it is
// set, which needs no daemon, else from the session. RESOURCE_EXHAUSTED where no plan fits.
absl::StatusOr<int> RunTraceExport(const Context& context, const TraceOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_TRACE_H_
