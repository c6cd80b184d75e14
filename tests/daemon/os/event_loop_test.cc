#include "daemon/os/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "base/unique_fd.h"
#include "daemon/os/event.h"

namespace geminid::os {
namespace {

TEST(EventLoop, Watch_CallsWhenReadable) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  absl::StatusOr<base::UniqueFd> event = CreateEvent();
  ASSERT_TRUE(event.ok());
  int calls = 0;
  ASSERT_TRUE((*loop)
                  ->Watch(event->get(), EPOLLIN,
                          [&](uint32_t) {
                            ++calls;
                            Clear(*event);
                          })
                  .ok());
  (*loop)->RunOnce(0);
  EXPECT_EQ(calls, 0);
  Signal(*event);
  (*loop)->RunOnce(0);
  (*loop)->RunOnce(0);
  EXPECT_EQ(calls, 1);
}

TEST(WakeUp, OurEnd_NeverBlocksAndTheirsIsReadableOnce) {
  absl::StatusOr<WakeUp> wake_up = CreateWakeUp();
  ASSERT_TRUE(wake_up.ok());
  // The peer may change the flags of its own end.
  ASSERT_EQ(::fcntl(wake_up->theirs.get(), F_SETFL, 0), 0);
  for (int i = 0; i < 100000; ++i) Wake(wake_up->ours);
  char bytes[64];
  EXPECT_GT(::read(wake_up->theirs.get(), bytes, sizeof(bytes)), 0);
  EXPECT_EQ(::recv(wake_up->theirs.get(), bytes, sizeof(bytes), MSG_DONTWAIT), -1);
  Wake(wake_up->ours);
  EXPECT_EQ(::read(wake_up->theirs.get(), bytes, sizeof(bytes)), 1);
  wake_up->theirs.Reset();
  Wake(wake_up->ours);
}

TEST(EventLoop, Unwatch_WithinAnotherCallbackOfTheSameRound_IsNotCalled) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  absl::StatusOr<base::UniqueFd> a = CreateEvent();
  absl::StatusOr<base::UniqueFd> b = CreateEvent();
  ASSERT_TRUE(a.ok() && b.ok());
  EventLoop::WatchId ids[2] = {};
  int calls = 0;
  const auto end_both = [&](uint32_t) {
    ++calls;
    (*loop)->Unwatch(ids[0]);
    (*loop)->Unwatch(ids[1]);
  };
  ids[0] = *(*loop)->Watch(a->get(), EPOLLIN, end_both);
  ids[1] = *(*loop)->Watch(b->get(), EPOLLIN, end_both);
  Signal(*a);
  Signal(*b);
  (*loop)->RunOnce(0);
  (*loop)->RunOnce(0);
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, Post_FromAnotherThread_WakesAndRuns) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  bool ran = false;
  std::thread poster([&] { (*loop)->Post([&] { ran = true; }); });
  while (!ran) (*loop)->RunOnce(-1);
  poster.join();
  EXPECT_TRUE(ran);
}

TEST(EventLoop, RunUntilAMomentThatHasPassed_ReturnsAtOnce) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  (*loop)->RunUntil(0);
  (*loop)->RunUntil(MonotonicNanoseconds() - 1);
}

TEST(EventLoop, RunUntilSomethingHappens_ReturnsThen) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok());
  int runs = 0;
  (*loop)->Post([&] { ++runs; });
  (*loop)->RunUntil(std::nullopt);
  EXPECT_EQ(runs, 1);
  (*loop)->Post([&] { ++runs; });
  (*loop)->RunUntil(MonotonicNanoseconds() + int64_t{3'600'000'000'000});
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace geminid::os
