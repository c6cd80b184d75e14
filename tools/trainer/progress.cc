#include "tools/trainer/progress.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kTerminalInterval = absl::Milliseconds(200);
constexpr absl::Duration kLineInterval = absl::Seconds(5);
// Returns to the start of the line and erases it; a line that is too long for the terminal is cut
// off and not wrapped, so that the next one can take its place.
constexpr char kRewrite[] = "\r\x1b[K\x1b[?7l";
constexpr char kWrapAgain[] = "\x1b[?7h";

std::string FormatRemaining(absl::Duration remaining) {
  if (remaining < absl::Seconds(1)) return "0s";
  return absl::FormatDuration(absl::Trunc(remaining, absl::Seconds(1)));
}

}  // namespace

std::string FormatProgress(const ProgressSample& sample) {
  return absl::StrCat(absl::StrFormat("step %d/%d  loss %.4f  %.0f tokens/s", sample.step,
                                      sample.steps, sample.loss, sample.tokens_per_second),
                      "  device ", base::FormatBytes(sample.peak_total_bytes), " of ",
                      base::FormatBytes(sample.device_bytes_limit), " (model ",
                      base::FormatBytes(sample.peak_model_bytes), ", other ",
                      base::FormatBytes(sample.peak_workspace_bytes), ")  host ",
                      base::FormatBytes(sample.host_bytes),
                      absl::StrFormat("  stall %.0f%%  ETA ", 100 * sample.stall_share),
                      FormatRemaining(sample.remaining));
}

void Progress::Announce(const std::string& line) const {
  if (mode_ != ProgressMode::kNone) write_(line + "\n");
}

bool Progress::Due(uint64_t step, uint64_t steps, absl::Time now) const {
  if (mode_ == ProgressMode::kNone) return false;
  if (step <= 1 || step == steps) return true;
  return now - last_ >= (mode_ == ProgressMode::kTerminal ? kTerminalInterval : kLineInterval);
}

void Progress::Show(const ProgressSample& sample, absl::Time now) {
  last_ = now;
  if (mode_ == ProgressMode::kTerminal) {
    write_(absl::StrCat(kRewrite, FormatProgress(sample), kWrapAgain));
    line_open_ = true;
  } else if (mode_ == ProgressMode::kLines) {
    write_(absl::StrCat(FormatProgress(sample), "\n"));
  }
}

void Progress::Finish() {
  if (line_open_) write_("\n");
  line_open_ = false;
}

}  // namespace geminid::trainer
