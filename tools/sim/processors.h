// The processors of a node, as the kernel's scheduler hands them to threads.
#ifndef GEMINID_TOOLS_SIM_PROCESSORS_H_
#define GEMINID_TOOLS_SIM_PROCESSORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "tools/sim/event_queue.h"

namespace geminid::sim {

enum class ThreadId : uint32_t {};
enum class WorkId : uint64_t {};

// Each processor runs one thread at a time; the others of its run queue wait. The rule is that of
// Linux since 6.6 (EEVDF: Stoica and Abdel-Wahab, 1995), for threads of equal weight:
//   - virtual time is time on a processor; a thread is eligible if it had no more than the mean of
//     its queue; of the eligible ones the one with the earliest virtual deadline is next;
//   - a deadline is a slice after the thread's virtual time, and renewed once it has passed, which
//     the kernel notices only at its ticks and when it wakes a thread there: so two threads that
//     compute take turns of whole ticks;
//   - a woken thread begins with the mean of the queue (lag 0) and preempts; if it had more than
//     that before it slept, it keeps it and waits until it is picked;
//   - it is woken on an idle processor if there is one, else on its last one or its waker's,
//     whichever has fewer threads, the last one if equal;
//   - a processor without threads takes one that waits elsewhere and has not run within the cost of
//     a migration; at ticks, any.
//
// Not thread-safe. Deterministic. Cost of a wake-up or an end: linear in the run queue and in the
// processors; a tick costs something only while a thread waits.
class Processors {
 public:
  // `count` > 0. A processor that goes from one thread to another is busy with that for
  // `switch_seconds`.
  Processors(EventQueue* events, int count, double switch_seconds = 0);
  Processors(const Processors&) = delete;
  Processors& operator=(const Processors&) = delete;

  // Sleeps until it is given work.
  ThreadId AddThread();
  // The thread's work goes in order of the calls; it sleeps when none is left. `done` is called by
  // the thread: what it gives the same thread to do is done without a pause.
  WorkId Run(ThreadId thread, double seconds, std::function<void()> done);
  // The work, if it is not done yet, ends without a call.
  void Cancel(ThreadId thread, WorkId work);

  // By all processors together.
  double BusySeconds() const;

 private:
  using Nanoseconds = int64_t;
  struct Work {
    WorkId id{};
    Nanoseconds left = 0;
    std::function<void()> done;
  };
  struct Thread {
    std::deque<Work> work;
    size_t processor = 0;  // where it is, or was last
    bool runnable = false;
    Nanoseconds virtual_time = 0;
    Nanoseconds deadline = 0;
    Nanoseconds ran_at = 0;  // when it last ran
  };
  struct Processor {
    std::optional<size_t> current;
    std::optional<size_t> last;  // who ran last
    std::vector<size_t> queue;   // who waits, in order of arrival
    Nanoseconds accounted_to = 0;
    Nanoseconds busy = 0;
    uint64_t generation = 0;           // of the appointment for the end of the current work
    bool in_call = false;              // the current thread is calling `done`
    bool resched = false;              // once the call returns
    std::optional<size_t> preempting;  // who was woken and goes next
  };

  Nanoseconds now() const { return events_->now().nanoseconds(); }
  size_t Runnable(const Processor& p) const { return p.queue.size() + (p.current ? 1 : 0); }
  size_t Choose(const Thread& thread) const;
  void Wake(size_t thread);
  void Place(size_t thread, size_t processor);
  void Account(Processor* p);
  bool RenewDeadline(Thread* thread) const;
  Nanoseconds VirtualTimes(const Processor& p) const;
  bool IsEligible(const Processor& p, size_t thread) const;
  std::optional<size_t> Pick(const Processor& p) const;
  void Resched(size_t processor);
  void SwitchTo(size_t processor, std::optional<size_t> next);
  void Appoint(size_t processor);
  void EndWork(size_t processor);
  void Block(size_t processor);
  bool Steal(size_t processor, bool takes_hot);
  void ScheduleTick();
  void Tick();

  EventQueue* const events_;
  const Nanoseconds slice_;
  const Nanoseconds switch_;
  std::vector<Thread> threads_;
  std::vector<Processor> processors_;
  std::optional<size_t> calling_;  // the processor whose thread's call is being made
  uint64_t next_work_ = 0;
  bool tick_is_due_ = false;
};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_PROCESSORS_H_
