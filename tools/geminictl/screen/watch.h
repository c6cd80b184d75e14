// --watch: repeats a subcommand.
#ifndef GEMINID_TOOLS_GEMINICTL_SCREEN_WATCH_H_
#define GEMINID_TOOLS_GEMINICTL_SCREEN_WATCH_H_

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/geminictl/output/context.h"

namespace geminid::ctl {

struct WatchOptions {
  absl::Duration interval = absl::ZeroDuration();  // zero: once
  uint64_t times = 0;                              // 0: until q, an interrupt or a signal
};

// Calls `run` every `interval`. A person sees one screen that changes; others get one output after
// the other. The first run must succeed. A later run that fails prints why, and the next run
// follows. Returns the result of the last run.
absl::StatusOr<int> Watch(const Context& context, const WatchOptions& options,
                          const std::function<absl::StatusOr<int>(const Context&)>& run);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_WATCH_H_
