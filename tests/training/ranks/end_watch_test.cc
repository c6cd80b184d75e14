#include "training/ranks/end_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"

namespace geminid::trainer {
namespace {

constexpr EndWatch::Times kAtOnce = {.pause = absl::ZeroDuration()};

TEST(EndWatch, OfARunThatIsToEndAtTheThirdQuestion_TellsItOnce) {
  std::atomic<int> asked = 0, told = 0;
  absl::Notification ended;
  absl::Status why;
  {
    const EndWatch watch(
        [&] { return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("as asked"); },
        [&](const absl::Status& status) {
          why = status;
          if (++told == 1) ended.Notify();
        },
        kAtOnce);
    ended.WaitForNotification();
  }
  EXPECT_EQ(why, absl::CancelledError("as asked"));
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(told, 1);
}

// The pause is longer than the test may take, so the destructor ends it.
TEST(EndWatch, ThatIsDestroyedWhileNobodyEndsTheRun_TellsNothing) {
  absl::Notification asked;
  std::atomic<bool> told = false;
  {
    const EndWatch watch(
        [&] {
          asked.Notify();
          return absl::OkStatus();
        },
        [&](const absl::Status&) { told = true; }, {.pause = absl::Hours(1)});
    asked.WaitForNotification();
  }
  EXPECT_FALSE(told);
}

// The rank ends by itself within the grace time.
TEST(EndWatch, ThatIsDestroyedWithinTheGraceTime_TellsNothing) {
  absl::Notification asked;
  std::atomic<bool> told = false;
  {
    const EndWatch watch(
        [&] {
          asked.Notify();
          return absl::CancelledError("as asked");
        },
        [&](const absl::Status&) { told = true; },
        {.pause = absl::ZeroDuration(), .grace = absl::Hours(1)});
    asked.WaitForNotification();
  }
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace geminid::trainer
