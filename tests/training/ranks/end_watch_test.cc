#include "training/ranks/end_watch.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/notification.h"

namespace geminid::trainer {
namespace {

constexpr EndWatch::Times kAtOnce = {.pause = absl::ZeroDuration()};

bool NoSave() { return false; }
absl::Status Ended() { return absl::CancelledError("as asked"); }

TEST(EndWatch, OfARunThatIsToEndAtTheThirdQuestion_TellsItOnce) {
  std::atomic<int> asked = 0, told = 0;
  absl::Notification ended;
  absl::Status why;
  {
    const EndWatch watch(
        [&] { return ++asked < 3 ? absl::OkStatus() : absl::CancelledError("as asked"); }, NoSave,
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
        NoSave, [&](const absl::Status&) { told = true; }, {.pause = absl::Hours(1)});
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
          return Ended();
        },
        NoSave, [&](const absl::Status&) { told = true; },
        {.pause = absl::ZeroDuration(), .grace = absl::Hours(1)});
    asked.WaitForNotification();
  }
  EXPECT_FALSE(told);
}

TEST(EndWatch, OfARankThatAwaitsASave_TellsWhenTheSaveIsOver) {
  std::atomic<int> asked = 0;
  absl::Notification ended;
  const EndWatch watch(
      Ended, [&] { return ++asked < 3; }, [&](const absl::Status&) { ended.Notify(); },
      {.pause = absl::ZeroDuration(), .save = absl::Hours(1)});
  ended.WaitForNotification();
  EXPECT_EQ(asked, 3);
}

TEST(EndWatch, OfARankWhoseSaveHangs_TellsAfterTheTimeOfASave) {
  absl::Notification ended;
  const EndWatch watch(
      Ended, [] { return true; }, [&](const absl::Status&) { ended.Notify(); },
      {.pause = absl::ZeroDuration(), .save = absl::Milliseconds(1)});
  ended.WaitForNotification();
}

}  // namespace
}  // namespace geminid::trainer
