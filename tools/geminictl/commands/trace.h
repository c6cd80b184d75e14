// geminictl trace: saves the trace from which a session's plan was made, shows a trace file, and
// exports the step that follows from it.
#ifndef GEMINID_TOOLS_GEMINICTL_COMMANDS_TRACE_H_
#define GEMINID_TOOLS_GEMINICTL_COMMANDS_TRACE_H_

#include <string>

#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

struct TraceOptions {
  std::string session;  // "3", or "demo/0" for a job's rank; empty: the only one
  std::string file;
  std::string perfetto;  // of export: a file to write; empty: none
  std::string svg;
};

// NOT_FOUND if there is no such session, or no plan was made for it.
absl::StatusOr<int> RunTraceSave(const Context& context, const TraceOptions& options);

// Needs no daemon. INVALID_ARGUMENT if the file is not a trace.
absl::StatusOr<int> RunTraceShow(const Context& context, const TraceOptions& options);

// Exports one step of one rank as the simulator plays it with the engine's plan. Computation is as
// recorded; transfers and waits follow from the plan and the links. Reads `file` if it is set,
// which needs no daemon; else asks the session. RESOURCE_EXHAUSTED if no plan fits.
absl::StatusOr<int> RunTraceExport(const Context& context, const TraceOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_COMMANDS_TRACE_H_
