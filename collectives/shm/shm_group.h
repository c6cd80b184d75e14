// The waiting part of an shm communicator: waits for peers' counters, with a deadline, and watches
// for peers that fail, leave or die.
#ifndef GEMINID_COLLECTIVES_SHM_SHM_GROUP_H_
#define GEMINID_COLLECTIVES_SHM_SHM_GROUP_H_

#include <poll.h>

#include <chrono>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/deadline.h"
#include "base/unique_fd.h"
#include "collectives/operation.h"
#include "collectives/shm/segment.h"

namespace geminid::collectives {

// One thread at a time may wait. Fail() and failure() may be called on any thread.
class ShmGroup {
 public:
  ShmGroup(Segment segment, std::vector<base::UniqueFd> processes, int rank,
           absl::Duration spin_limit, int first_rank = 0);
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  const Segment& segment() const { return segment_; }
  int rank() const { return rank_; }
  // The rank's number in errors.
  int NameOf(int rank) const { return first_rank_ + rank; }
  int world_size() const { return static_cast<int>(segment_.shape().world_size); }

  // The waiting operation, for messages, and the limits of the wait.
  struct Context {
    const Operation& operation;
    absl::Duration timeout;
    base::Deadline deadline;
  };

  // Returns when `ready()`. `counter` changes when that may become true; `absent()` returns the
  // ranks being waited for. Spins briefly, then sleeps. A failure of the group ends the wait.
  template <class Ready, class Absent>
  absl::Status Await(const Context& context, Counter& counter, Ready ready, Absent absent) {
    if (SpinUntil(ready)) return absl::OkStatus();
    for (;;) {
      const auto slice = std::min<std::chrono::nanoseconds>(kSlice, context.deadline.Left());
      const bool in_time = counter.Sleep(slice, [&] { return ready() || HasFailed(); });
      if (ready()) return absl::OkStatus();
      const absl::Status status = Judge(context, absent(), /*look_for_the_dead=*/!in_time);
      if (status.ok()) continue;
      // A peer may have completed its part just before it left or died; that counts.
      if (ready()) return absl::OkStatus();
      return Fail(status);
    }
  }

  // Makes `status` the group's failure, unless it has one already. Returns the group's failure.
  absl::Status Fail(const absl::Status& status);
  absl::Status failure() const;
  // The group's failure; a rank's death becomes one. For the waiting thread.
  absl::Status DetectDeadRanks();
  // Whether that rank has died or left. On any thread.
  bool IsGone(int peer) const;

 private:
  // The longest sleep between two checks of the peers.
  static constexpr std::chrono::milliseconds kSlice{50};

  template <class Ready>
  bool SpinUntil(Ready ready) const {
    if (ready()) return true;
    if (spin_limit_.count() == 0) return false;
    const auto end = base::Deadline::Clock::now() + spin_limit_;
    do {
      for (int i = 0; i < 16; ++i) {
        if (ready()) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    } while (base::Deadline::Clock::now() < end);
    return false;
  }

  bool HasFailed() const { return segment_.failure().state.load(std::memory_order_acquire) != 0; }
  // OK: continue to wait.
  absl::Status Judge(const Context& context, const std::vector<int>& missing,
                     bool look_for_the_dead);
  bool HasLeft(int peer) const {
    return segment_.control(peer).left.load(std::memory_order_acquire) != 0;
  }
  // The lowest rank whose process has ended without leaving the group; -1: none.
  int FirstDead();
  void WakeEverybody();

  Segment segment_;
  const std::vector<base::UniqueFd> processes_;
  const int rank_;
  const int first_rank_;
  std::chrono::nanoseconds spin_limit_;
  std::vector<pollfd> polls_;  // by rank; the own entry is never ready
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SHM_GROUP_H_
