// --watch: a subcommand again and again.
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

// Runs it every `interval`. A person sees one screen that changes; others get one output after the
// other. The first must succeed; later ones that fail say why, and the next is waited for. Returns
// what the last one returned.
absl::StatusOr<int> Watch(const Context& context, const WatchOptions& options,
                          const std::function<absl::StatusOr<int>(const Context&)>& run);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_WATCH_H_
