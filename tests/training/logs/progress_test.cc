#include "training/logs/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

ProgressSample BusySample() {
  return {.step = 98765,
          .steps = 100000,
          .loss = 10.1234,
          .tokens_per_second = 123456,
          .flops_per_second = 31.2e9,
          .arithmetic = "bf16 emulated",
          .peak_total_bytes = 1434567890,
          .model_bytes_at_peak = 1234567890,
          .device_bytes_limit = 2345678901,
          .host_bytes = 3456789012,
          .stall_share = 0.67,
          .longest_stall = "daemon 60%",
          .remaining = absl::Hours(1) + absl::Minutes(2)};
}

TEST(FormatProgress, ForEveryWidthFrom40_FitsAndKeepsStepAndLoss) {
  size_t longest = 0;
  for (size_t columns = 39; columns < 260; ++columns) {
    const std::string line = FormatProgress(BusySample(), columns);
    EXPECT_LE(line.size(), columns);
    EXPECT_GE(line.size(), longest) << "of " << columns;
    longest = line.size();
    EXPECT_THAT(line, StartsWith("step 98765/100000  loss 10.1234"));
  }
  EXPECT_EQ(FormatProgress(BusySample(), 259), FormatProgress(BusySample()));
}

TEST(FormatProgress, WithRoomForAll_SaysWhatIsWaitedForAndHowFastItComputes) {
  const std::string line = FormatProgress(BusySample());
  for (const char* part :
       {"123456 tokens/s", "31.2 GFLOP/s bf16 emulated", "stall 67% (daemon 60%)",
        "(model 1.1 GiB, other 191 MiB)", "host 3.2 GiB", "ETA 1h2m"}) {
    EXPECT_THAT(line, HasSubstr(part));
  }
  EXPECT_THAT(line, Not(HasSubstr("not finite")));
}

TEST(FormatProgress, OfLossesThatAreNotFinite_CountsThemInANarrowLineToo) {
  ProgressSample sample = {.step = 50, .steps = 60, .non_finite_losses = 41};
  EXPECT_THAT(FormatProgress(sample, 39), HasSubstr("not finite 41"));
}

TEST(FormatProgress, OfALossThatIsNotANumber_HasNoSign) {
  EXPECT_THAT(FormatProgress({.loss = -std::nan("")}), HasSubstr("loss nan"));
}

TEST(FormatFlops, ChoosesAUnit) {
  EXPECT_EQ(FormatFlops(0), "0 FLOP/s");
  EXPECT_EQ(FormatFlops(31.24e9), "31.2 GFLOP/s");
  EXPECT_EQ(FormatFlops(2e15), "2 PFLOP/s");
}

class ProgressTest : public testing::Test {
 protected:
  Progress Make(ProgressMode mode) {
    return Progress(mode, [this](const std::string& text) { written_ += text; });
  }
  std::string written_;
  const absl::Time start_ = absl::UnixEpoch();
};

TEST_F(ProgressTest, InLines_SpeaksFirstLastAndEveryFewSeconds) {
  Progress progress = Make(ProgressMode::kLines);
  EXPECT_TRUE(progress.Due(1, 100, start_));
  progress.Show({.step = 1, .steps = 100, .loss = 5.25}, start_);
  EXPECT_FALSE(progress.Due(2, 100, start_ + absl::Seconds(4)));
  EXPECT_TRUE(progress.Due(3, 100, start_ + absl::Seconds(5)));
  EXPECT_TRUE(progress.Due(100, 100, start_));
  progress.Finish();
  EXPECT_THAT(written_, testing::StartsWith("step 1/100  loss 5.2500"));
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\n'), 1);
}

TEST_F(ProgressTest, OnATerminal_RewritesOneLineAndEndsIt) {
  Progress progress = Make(ProgressMode::kTerminal);
  progress.Show({.step = 1, .steps = 9}, start_);
  progress.Show({.step = 2, .steps = 9}, start_ + absl::Seconds(1));
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\r'), 2);
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\n'), 0);
  progress.Finish();
  progress.Finish();
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\n'), 1);
}

TEST_F(ProgressTest, WhenQuiet_IsNeverDue) {
  EXPECT_FALSE(Make(ProgressMode::kNone).Due(1, 1, start_));
}

TEST_F(ProgressTest, OnANarrowTerminal_NeverWritesItsLastColumn) {
  Progress progress(
      ProgressMode::kTerminal, [this](const std::string& text) { written_ += text; },
      [] { return size_t{60}; });
  progress.Show(BusySample(), start_);
  EXPECT_LE(written_.substr(written_.rfind('\x1b')).size(), 59 + std::string("\x1b[K").size());
}

TEST_F(ProgressTest, GivenAWarningInTheMiddleOfALine_TakesTheLinesPlace) {
  Progress progress = Make(ProgressMode::kTerminal);
  progress.Show({.step = 1, .steps = 9}, start_);
  written_.clear();
  progress.Warn("the loss is not finite");
  EXPECT_EQ(written_, "\r\x1b[Kthe loss is not finite\n");
  progress.Finish();
  EXPECT_EQ(std::count(written_.begin(), written_.end(), '\n'), 1);
}

}  // namespace
}  // namespace geminid::trainer
