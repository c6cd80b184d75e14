// geminictl top: memory and ranks, live.
#ifndef GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_H_
#define GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_H_

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/geminictl/output/context.h"
#include "tools/geminictl/screen/top_view.h"

namespace geminid::ctl {

struct TopOptions {
  bool once = false;
  bool ascii = false;
  absl::Duration interval = absl::Seconds(2);
  TopOrder order = TopOrder::kStall;
};

// Runs until q, an interrupt or a signal. Prints one reading if the output is not interactive or is
// JSON. The first reading must succeed; later the daemon may stop and restart.
absl::StatusOr<int> RunTop(const Context& context, const TopOptions& options);

}  // namespace geminid::ctl

#endif  // GEMINID_TOOLS_GEMINICTL_SCREEN_TOP_H_
