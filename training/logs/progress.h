// The progress line of a training run: step, loss, speed and time left.
#ifndef GEMINID_TRAINING_LOGS_PROGRESS_H_
#define GEMINID_TRAINING_LOGS_PROGRESS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace geminid::trainer {

// kTerminal rewrites one line several times a second; kLines writes a line every few seconds.
enum class ProgressMode { kNone, kLines, kTerminal };

struct ProgressSample {
  uint64_t step = 0;  // done
  uint64_t steps = 0;
  double loss = 0;
  std::optional<double> validation_loss = std::nullopt;  // the last one measured
  std::optional<double> validation_accuracy = std::nullopt;  // likewise, of a classifier
  uint64_t non_finite_losses = 0;
  double tokens_per_second = 0;
  double flops_per_second = 0;
  std::string arithmetic{};  // how the products are computed: "bf16 native"
  uint64_t peak_total_bytes = 0;
  uint64_t model_bytes_at_peak = 0;  // of that
  uint64_t device_bytes_limit = 0;
  uint64_t host_bytes = 0;
  double stall_share = 0;       // of the time so far
  std::string longest_stall{};  // the cause of the longest waits: "daemon 60%"
  absl::Duration remaining = absl::ZeroDuration();
};

inline constexpr size_t kAnyColumns = ~size_t{0};

// At most `columns` characters: the least important figures are left out first. 39 are enough for
// step, loss and usually the remaining time.
std::string FormatProgress(const ProgressSample& sample, size_t columns = kAnyColumns);

std::string FormatFlops(double per_second);  // "31.2 GFLOP/s"

// Decides when to print. It has no clock: callers pass the time. Any thread may call Warn.
class Progress {
 public:
  using Write = std::function<void(const std::string& text)>;
  using Width = std::function<size_t()>;  // of the terminal, in columns; asked for every line
  Progress(ProgressMode mode, Write write, Width width = nullptr)
      : mode_(mode), write_(std::move(write)), width_(std::move(width)) {}

  // One line, before the first step or between steps.
  void Announce(const std::string& line);
  // A line that every mode prints.
  void Warn(const std::string& line);
  // Whether Show would print; ask before gathering the figures. The first and the last step are
  // always due.
  bool Due(uint64_t step, uint64_t steps, absl::Time now) const;
  void Show(const ProgressSample& sample, absl::Time now);
  // Ends the progress line on a terminal, so that later output starts on a new line.
  void Finish();

 private:
  const ProgressMode mode_;
  const Write write_;
  const Width width_;
  std::mutex mutex_;  // guards write_ and line_open_
  absl::Time last_ = absl::InfinitePast();
  bool line_open_ = false;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LOGS_PROGRESS_H_
