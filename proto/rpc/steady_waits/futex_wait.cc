// Replaces the C library's function syscall(), in this program and in the libraries that it
// loads.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace {

// Abseil's Mutex and CondVar wait on a futex until a time of the wall clock; gRPC's timers and
// pollers wait through them. If the wall clock steps back meanwhile, the kernel waits longer by
// that step. Here the same wait ends at a time of the monotonic clock. It may end early, with EINTR
// as for a signal, so that its caller asks again. It never ends late.

using SystemCall = long(long, ...);

constexpr int64_t kNanosecondsPerSecond = 1'000'000'000;
// If a clock steps between a caller's reading and ours, one wait is late by no more than this.
constexpr int64_t kLongestWait = kNanosecondsPerSecond;
constexpr int64_t kLongestSeconds = std::numeric_limits<int64_t>::max() / kNanosecondsPerSecond / 4;

SystemCall* CLibrary() {
  // Not a static with an initialiser: its guard may itself wait by a system call.
  static std::atomic<SystemCall*> found = nullptr;
  SystemCall* function = found.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<SystemCall*>(dlsym(RTLD_NEXT, "syscall"));
    found.store(function, std::memory_order_relaxed);
  }
  return function;
}

int64_t Nanoseconds(const timespec& time) {
  const int64_t seconds = std::clamp<int64_t>(time.tv_sec, -kLongestSeconds, kLongestSeconds);
  return seconds * kNanosecondsPerSecond + time.tv_nsec;
}

int64_t Now(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return Nanoseconds(now);
}

// The time left until `wall_end`. To compute that end, gRPC read clock_gettime() and Abseil's
// timeouts gettimeofday(). If a preloaded library steps only one of these clocks, the caller read
// the one nearer to the end. absl::Now() is neither of them: it notices a step seconds later.
int64_t WallLeft(int64_t wall_end) {
  timeval now = {};
  gettimeofday(&now, nullptr);
  const int64_t by_day =
      wall_end - Nanoseconds({.tv_sec = now.tv_sec, .tv_nsec = now.tv_usec * 1000});
  const int64_t by_clock = wall_end - Now(CLOCK_REALTIME);
  return std::abs(by_day) < std::abs(by_clock) ? by_day : by_clock;
}

// The end of a wait by the monotonic clock. A caller that repeats a wait gets an end no later than
// the one it had, however the wall clock stepped since.
int64_t MonotonicEnd(const void* word, int64_t wall_end, int64_t now) {
  struct Wait {
    const void* word = nullptr;
    int64_t wall_end = 0;
    int64_t end = 0;
  };
  static thread_local constinit Wait last;
  const int64_t end = now + WallLeft(wall_end);
  const bool again = last.word == word && last.wall_end == wall_end;
  last = {.word = word, .wall_end = wall_end, .end = again ? std::min(last.end, end) : end};
  return last.end;
}

long WaitUntil(long word, int operation, long value, const timespec& wall_end, long mask) {
  const int64_t now = Now(CLOCK_MONOTONIC);
  const int64_t end = MonotonicEnd(reinterpret_cast<const void*>(word), Nanoseconds(wall_end), now);
  const int64_t until = std::clamp<int64_t>(end, 0, now + kLongestWait);
  const timespec monotonic = {.tv_sec = until / kNanosecondsPerSecond,
                              .tv_nsec = until % kNanosecondsPerSecond};
  const long result = CLibrary()(SYS_futex, word, operation & ~FUTEX_CLOCK_REALTIME, value,
                                 &monotonic, nullptr, mask);
  if (result == -1 && errno == ETIMEDOUT && until < end) errno = EINTR;
  return result;
}

bool WaitsByTheWallClock(long number, int operation, const void* until) {
  return number == SYS_futex && (operation & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET &&
         (operation & FUTEX_CLOCK_REALTIME) != 0 && until != nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) long syscall(long number, ...) noexcept {
  long words[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& word : words) word = va_arg(arguments, long);
  va_end(arguments);
  const auto* const until = reinterpret_cast<const timespec*>(words[3]);
  const auto operation = static_cast<int>(words[1]);
  if (WaitsByTheWallClock(number, operation, until)) {
    return WaitUntil(words[0], operation, words[2], *until, words[5]);
  }
  return CLibrary()(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
