#include "client/zero/basics/callback_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"

namespace geminid::zero {
namespace {

TEST(CallbackGuard, CallbackWithinACallback_RunsToo) {
  int about = 0;
  CallbackGuard<int> guard(&about);
  guard.Run([&](int* outer) {
    ++*outer;
    guard.Run([](int* inner) { ++*inner; });
  });
  EXPECT_EQ(about, 2);
}

TEST(CallbackGuard, CallbackAfterTheEnd_DoesNotRun) {
  int about = 0;
  CallbackGuard<int> guard(&about);
  guard.End();
  guard.Run([](int* late) { ++*late; });
  EXPECT_EQ(about, 0);
}

TEST(CallbackGuard, End_WaitsForTheCallbackThatRuns) {
  std::atomic<int> about = 0;
  CallbackGuard<std::atomic<int>> guard(&about);
  absl::Notification runs, may_end;
  std::thread callback([&] {
    guard.Run([&](std::atomic<int>* shared) {
      runs.Notify();
      may_end.WaitForNotification();
      *shared = 1;
    });
  });
  runs.WaitForNotification();
  std::thread ends([&] {
    guard.End();
    EXPECT_EQ(about, 1);
  });
  may_end.Notify();
  ends.join();
  callback.join();
}

}  // namespace
}  // namespace geminid::zero
