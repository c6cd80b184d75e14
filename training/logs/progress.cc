#include "training/logs/progress.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kTerminalInterval = absl::Milliseconds(200);
constexpr absl::Duration kLineInterval = absl::Seconds(5);
constexpr size_t kUsualColumns = 80;
// Returns to the start of the line and erases it.
constexpr char kErase[] = "\r\x1b[K";

std::string FormatRemaining(absl::Duration remaining) {
  if (remaining < absl::Seconds(1)) return "0s";
  return absl::FormatDuration(absl::Trunc(remaining, absl::Seconds(1)));
}

// The sign of what is not a number says nothing.
std::string FormatLoss(double loss) {
  return std::isnan(loss) ? "nan" : absl::StrFormat("%.4f", loss);
}

std::string FormatDevice(const ProgressSample& sample, bool in_detail) {
  std::string text = absl::StrCat("device ", base::FormatBytes(sample.peak_total_bytes), " of ",
                                  base::FormatBytes(sample.device_bytes_limit));
  if (in_detail) {
    absl::StrAppend(&text, " (model ", base::FormatBytes(sample.model_bytes_at_peak), ", other ",
                    base::FormatBytes(sample.peak_total_bytes - sample.model_bytes_at_peak), ")");
  }
  return text;
}

std::string FormatStall(const ProgressSample& sample, bool in_detail) {
  std::string text = absl::StrFormat("stall %.0f%%", 100 * sample.stall_share);
  if (in_detail && !sample.longest_stall.empty() && sample.stall_share > 0) {
    absl::StrAppend(&text, " (", sample.longest_stall, ")");
  }
  return text;
}

// A piece of the line. Those of the highest rank leave first when it is too long.
struct Piece {
  int rank = 0;
  std::string text;
};

std::string Join(const std::vector<Piece>& pieces, int highest_rank) {
  std::string line;
  for (const Piece& piece : pieces) {
    if (piece.rank > highest_rank || piece.text.empty()) continue;
    absl::StrAppend(&line, line.empty() ? "" : "  ", piece.text);
  }
  return line;
}

}  // namespace

std::string FormatFlops(double per_second) {
  constexpr std::array kUnits = {"FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"};
  constexpr double kStep = 1000;
  size_t unit = 0;
  while (per_second >= kStep && unit + 1 < kUnits.size()) {
    per_second /= kStep;
    ++unit;
  }
  return absl::StrFormat("%.3g %s", per_second, kUnits[unit]);
}

std::string FormatProgress(const ProgressSample& sample, size_t columns) {
  const std::string flops = FormatFlops(sample.flops_per_second);
  std::string validation = sample.validation_loss
                               ? absl::StrCat("validation ", FormatLoss(*sample.validation_loss))
                               : "";
  if (sample.validation_accuracy) {
    absl::StrAppendFormat(&validation, " (%.1f%%)", 100 * *sample.validation_accuracy);
  }
  constexpr size_t kDevice = 6;
  constexpr size_t kStall = 8;
  std::vector<Piece> pieces = {
      {0, absl::StrFormat("step %d/%d", sample.step, sample.steps)},
      {0, absl::StrCat("loss ", FormatLoss(sample.loss))},
      {2, validation},
      {1,
       sample.non_finite_losses == 0 ? "" : absl::StrCat("not finite ", sample.non_finite_losses)},
      {3, absl::StrFormat("%.0f tokens/s", sample.tokens_per_second)},
      {7, absl::StrCat(flops, sample.arithmetic.empty() ? "" : " ", sample.arithmetic)},
      {5, FormatDevice(sample, false)},
      {6, absl::StrCat("host ", base::FormatBytes(sample.host_bytes))},
      {4, FormatStall(sample, false)},
      {2, absl::StrCat("ETA ", FormatRemaining(sample.remaining))}};
  constexpr int kAll = 7;
  std::string all = Join(pieces, kAll);
  pieces[kDevice].text = FormatDevice(sample, true);
  pieces[kStall].text = FormatStall(sample, true);
  if (std::string in_detail = Join(pieces, kAll); in_detail.size() <= columns) return in_detail;
  if (all.size() <= columns) return all;
  pieces[kDevice].text = FormatDevice(sample, false);
  pieces[kStall].text = FormatStall(sample, false);
  for (int rank = kAll - 1; rank >= 0; --rank) {
    if (std::string line = Join(pieces, rank); line.size() <= columns) return line;
  }
  return Join(pieces, 0).substr(0, columns);
}

void Progress::Announce(const std::string& line) {
  if (mode_ != ProgressMode::kNone) Warn(line);
}

void Progress::Warn(const std::string& line) {
  const std::lock_guard lock(mutex_);
  write_(absl::StrCat(line_open_ ? kErase : "", line, "\n"));
  line_open_ = false;
}

bool Progress::Due(uint64_t step, uint64_t steps, absl::Time now) const {
  if (mode_ == ProgressMode::kNone) return false;
  if (step <= 1 || step == steps) return true;
  return now - last_ >= (mode_ == ProgressMode::kTerminal ? kTerminalInterval : kLineInterval);
}

void Progress::Show(const ProgressSample& sample, absl::Time now) {
  const std::lock_guard lock(mutex_);
  last_ = now;
  if (mode_ == ProgressMode::kTerminal) {
    const size_t columns = width_ ? width_() : kUsualColumns;
    // The last column stays free: a terminal may wrap as soon as it is written.
    write_(absl::StrCat(kErase, FormatProgress(sample, std::max<size_t>(columns, 2) - 1)));
    line_open_ = true;
  } else if (mode_ == ProgressMode::kLines) {
    write_(absl::StrCat(FormatProgress(sample), "\n"));
  }
}

void Progress::Finish() {
  const std::lock_guard lock(mutex_);
  if (line_open_) write_("\n");
  line_open_ = false;
}

}  // namespace geminid::trainer
