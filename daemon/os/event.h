// Descriptors that become readable when something happens.
#ifndef GEMINID_DAEMON_OS_EVENT_H_
#define GEMINID_DAEMON_OS_EVENT_H_

#include <sys/types.h>

#include <cstdint>
#include <initializer_list>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace geminid::os {

// A non-blocking eventfd with value 0.
absl::StatusOr<base::UniqueFd> CreateEvent();
// Makes `event` readable. Any thread; never blocks.
void Signal(const base::UniqueFd& event);
// Makes `event` unreadable again until the next Signal.
void Clear(const base::UniqueFd& event);

// Two ends of a one-way wake-up between processes that do not trust each other. Each end has its
// own file flags. An eventfd's flags are shared, so one side can make the other's write block. A
// pipe's lock is held while the kernel reads the writer's memory, which may be slow.
struct WakeUp {
  base::UniqueFd ours;    // see Wake
  base::UniqueFd theirs;  // readable after Wake; non-blocking; nothing can be sent back over it
};
absl::StatusOr<WakeUp> CreateWakeUp();
// Makes the other end readable, if it is not already. Any thread; never blocks. But the kernel
// walks all waiters at the other end, and lets nothing else use that processor meanwhile: a million
// epoll entries take 64 ms.
void Wake(const base::UniqueFd& ours);

// Blocks `signals` for the calling thread, and so for the threads it starts later, and returns a
// descriptor that receives them instead. Call before any other thread exists.
absl::StatusOr<base::UniqueFd> CreateSignalFd(std::initializer_list<int> signals);
struct ReceivedSignal {
  int number = 0;    // 0: there is none
  pid_t sender = 0;  // 0: the kernel, or a process of another namespace
};
ReceivedSignal NextSignal(const base::UniqueFd& signal_fd);

// Readable once process `pid` has ended. NOT_FOUND when it already has.
absl::StatusOr<base::UniqueFd> OpenPidfd(pid_t pid);

// The monotonic clock, in nanoseconds since an arbitrary point.
int64_t MonotonicNanoseconds();
// The processor time of the calling thread, in nanoseconds.
int64_t ThreadNanoseconds();

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_EVENT_H_
