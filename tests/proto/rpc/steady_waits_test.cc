// Waits of Abseil and gRPC while the wall clock of this program, which is its own, steps.
#include <dlfcn.h>
#include <errno.h>
#include <grpc/support/sync.h>
#include <grpc/support/time.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace {

std::atomic<int> wall_offset_seconds = 0;
std::atomic<bool> steps_one_clock_alone = false;

}  // namespace

extern "C" __attribute__((visibility("default"))) int gettimeofday(timeval* now,
                                                                   void* zone) noexcept {
  static auto* const next =
      reinterpret_cast<int (*)(timeval*, void*)>(dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = next(now, zone);
  if (!steps_one_clock_alone) now->tv_sec += wall_offset_seconds;
  return result;
}

extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    timespec* now) noexcept {
  static auto* const next =
      reinterpret_cast<int (*)(clockid_t, timespec*)>(dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = next(clock, now);
  if (clock == CLOCK_REALTIME) now->tv_sec += wall_offset_seconds;
  return result;
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kHour = 3600;
constexpr milliseconds kShort(60);
constexpr std::chrono::minutes kFarTooLong(10);

timespec WallNow() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

class SteadyWaitsTest : public ::testing::TestWithParam<int> {
 protected:
  ~SteadyWaitsTest() override {
    StepTo(0);
    steps_one_clock_alone = false;
  }

  static void StepTo(int offset_seconds) { wall_offset_seconds = offset_seconds; }
};

INSTANTIATE_TEST_SUITE_P(Clock, SteadyWaitsTest, ::testing::Values(-kHour, kHour),
                         [](const auto& offset) { return offset.param < 0 ? "Behind" : "Ahead"; });

void WaitOfAbseil() {
  absl::Mutex mutex;
  absl::CondVar changed;
  absl::MutexLock lock(&mutex);
  const auto begin = steady_clock::now();
  EXPECT_TRUE(changed.WaitWithTimeout(&mutex, absl::FromChrono(kShort)));
  const auto waited = steady_clock::now() - begin;
  EXPECT_GE(waited, kShort - milliseconds(1));
  EXPECT_LT(waited, kFarTooLong);
}

void WaitOfGrpc() {
  gpr_mu mutex;
  gpr_cv changed;
  gpr_mu_init(&mutex);
  gpr_cv_init(&changed);
  gpr_mu_lock(&mutex);
  const auto begin = steady_clock::now();
  const gpr_timespec rest = gpr_time_from_millis(kShort.count(), GPR_TIMESPAN);
  EXPECT_NE(gpr_cv_wait(&changed, &mutex, gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), rest)), 0);
  const auto waited = steady_clock::now() - begin;
  EXPECT_GE(waited, kShort - milliseconds(1));
  EXPECT_LT(waited, kFarTooLong);
  gpr_mu_unlock(&mutex);
  gpr_cv_destroy(&changed);
  gpr_mu_destroy(&mutex);
}

TEST_P(SteadyWaitsTest, ConditionOfAbseil_LastingStep_WaitsAsLongAsItSays) {
  StepTo(GetParam());
  WaitOfAbseil();
}

TEST_P(SteadyWaitsTest, ConditionOfGrpc_LastingStep_WaitsAsLongAsItSays) {
  StepTo(GetParam());
  WaitOfGrpc();
}

TEST_P(SteadyWaitsTest, WaitAskedForAgain_ClockHasSteppedMeanwhile_EndsNoLater) {
  int word = 0;
  timespec until = WallNow();
  until.tv_sec += 2;
  const auto begin = steady_clock::now();
  const auto wait = [&] {
    return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &until,
                   nullptr, FUTEX_BITSET_MATCH_ANY);
  };
  ASSERT_EQ(wait(), -1);
  ASSERT_EQ(errno, EINTR) << "the wait did not end early to look at the clock";
  StepTo(GetParam());
  do {
    ASSERT_EQ(wait(), -1);
  } while (errno == EINTR && steady_clock::now() - begin < kFarTooLong);
  EXPECT_EQ(errno, ETIMEDOUT);
}

TEST_P(SteadyWaitsTest, SleepOfGrpc_ClockStepsMeanwhile_RestsNoLonger) {
  const gpr_timespec rest = gpr_time_from_millis(kShort.count(), GPR_TIMESPAN);
  const gpr_timespec until = gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), rest);
  StepTo(GetParam());
  const auto begin = steady_clock::now();
  gpr_sleep_until(until);
  EXPECT_LT(steady_clock::now() - begin, kFarTooLong);
}

TEST_P(SteadyWaitsTest, OneClockStepsAlone_BothWaitAsLongAsTheySay) {
  steps_one_clock_alone = true;
  StepTo(GetParam());
  WaitOfAbseil();
  WaitOfGrpc();
}

TEST(SteadyWaitsEdgesTest, EndHasPassed_EndsAtOnce) {
  absl::Mutex mutex;
  absl::MutexLock lock(&mutex);
  bool never = false;
  EXPECT_FALSE(mutex.AwaitWithDeadline(absl::Condition(&never), absl::UnixEpoch()));
  EXPECT_FALSE(mutex.AwaitWithDeadline(absl::Condition(&never), absl::InfinitePast()));
}

TEST(SteadyWaitsEdgesTest, OtherSystemCalls_PassUnchanged) {
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  errno = 0;
  EXPECT_EQ(syscall(SYS_close, -1), -1);
  EXPECT_EQ(errno, EBADF);
}

}  // namespace
