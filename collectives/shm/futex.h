// A counter in shared memory that threads can sleep on.
#ifndef GEMINID_COLLECTIVES_SHM_FUTEX_H_
#define GEMINID_COLLECTIVES_SHM_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>

namespace geminid::collectives {

// Two processes share it, so its futex calls are not the private ones. `waiters` only saves the
// system call if no thread sleeps. A sleeper that is killed between its two updates leaves it too
// high, which only costs a call per update.
struct alignas(64) Counter {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> waiters{0};

  // Sequentially consistent with Sleep(): either the sleeper sees the new value, or this call sees
  // the sleeper.
  void Set(uint32_t next) {
    value.store(next, std::memory_order_seq_cst);
    if (waiters.load(std::memory_order_seq_cst) != 0) WakeAll();
  }
  void Bump() {
    value.fetch_add(1, std::memory_order_seq_cst);
    if (waiters.load(std::memory_order_seq_cst) != 0) WakeAll();
  }
  void WakeAll() { ::syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

  // Sleeps while the value is `seen`, at most for `limit`; false if the limit has passed. Registers
  // as a waiter only around the call; `recheck` tests the condition again after the registration.
  template <class Recheck>
  bool Sleep(std::chrono::nanoseconds limit, Recheck recheck) {
    waiters.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = value.load(std::memory_order_seq_cst);
    bool in_time = true;
    if (!recheck()) {
      timespec wait{.tv_sec = limit.count() / 1'000'000'000,
                    .tv_nsec = limit.count() % 1'000'000'000};
      const long rc = ::syscall(SYS_futex, &value, FUTEX_WAIT, seen, &wait, nullptr, 0);
      in_time = !(rc == -1 && errno == ETIMEDOUT);
    }
    waiters.fetch_sub(1, std::memory_order_seq_cst);
    return in_time;
  }
};
static_assert(sizeof(Counter) == 64 && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_FUTEX_H_
