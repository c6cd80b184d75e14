#include "tools/sim/processors.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace geminid::sim {
namespace {

// CONFIG_HZ=250, what most distributions build.
constexpr int64_t kTickNanoseconds = 4'000'000;
// kernel/sched/fair.c: sysctl_sched_base_slice, times 1 + log2 of the processors, of which at most
// eight count; sysctl_sched_migration_cost.
constexpr int64_t kBaseSliceNanoseconds = 700'000;
constexpr unsigned kMostCountedProcessors = 8;
constexpr int64_t kMigrationCostNanoseconds = 500'000;

int64_t SliceFor(int processors) {
  const unsigned counted = std::min(static_cast<unsigned>(processors), kMostCountedProcessors);
  return kBaseSliceNanoseconds * std::bit_width(counted);
}

}  // namespace

Processors::Processors(EventQueue* events, int count, double switch_seconds)
    : events_(events),
      slice_(SliceFor(count)),
      switch_(FromSeconds(switch_seconds).nanoseconds()),
      processors_(static_cast<size_t>(count)) {}

ThreadId Processors::AddThread() {
  const size_t number = threads_.size();
  Thread& thread = threads_.emplace_back();
  thread.processor = number % processors_.size();
  thread.ran_at = -kMigrationCostNanoseconds;
  return static_cast<ThreadId>(number);
}

WorkId Processors::Run(ThreadId thread, double seconds, std::function<void()> done) {
  const auto number = static_cast<size_t>(thread);
  const WorkId id{next_work_++};
  threads_[number].work.push_back({id, FromSeconds(seconds).nanoseconds(), std::move(done)});
  if (!threads_[number].runnable) Wake(number);
  return id;
}

void Processors::Cancel(ThreadId id, WorkId work) {
  const auto number = static_cast<size_t>(id);
  Thread& thread = threads_[number];
  Processor& p = processors_[thread.processor];
  Account(&p);
  const bool was_first = !thread.work.empty() && thread.work.front().id == work;
  std::erase_if(thread.work, [work](const Work& one) { return one.id == work; });
  if (!was_first || !thread.runnable) return;
  if (p.current != number) {
    if (!thread.work.empty()) return;
    std::erase(p.queue, number);
    if (p.preempting == number) p.preempting.reset();
    thread.runnable = false;
  } else if (!p.in_call) {
    if (thread.work.empty()) return Block(thread.processor);
    Appoint(thread.processor);
  }
}

double Processors::BusySeconds() const {
  Nanoseconds busy = 0;
  for (const Processor& p : processors_) {
    busy += p.busy + (p.current.has_value() ? now() - p.accounted_to : 0);
  }
  return core::Duration::Nanoseconds(busy).seconds();
}

// --- time ----------------------------------------------------------------------------------------

bool Processors::RenewDeadline(Thread* thread) const {
  if (thread->virtual_time < thread->deadline) return false;
  thread->deadline = thread->virtual_time + slice_;
  return true;
}

// Ticks that found nobody waiting did nothing but renew the deadline.
void Processors::Account(Processor* p) {
  const Nanoseconds from = std::exchange(p->accounted_to, now());
  if (!p->current.has_value() || from == now()) return;
  Thread& thread = threads_[*p->current];
  const Nanoseconds began = thread.virtual_time - from;
  if (p->queue.empty()) {
    for (Nanoseconds tick = (from / kTickNanoseconds + 1) * kTickNanoseconds; tick < now();
         tick += kTickNanoseconds) {
      thread.virtual_time = began + tick;
      RenewDeadline(&thread);
    }
  }
  thread.virtual_time = began + now();
  thread.ran_at = now();
  if (!thread.work.empty()) thread.work.front().left -= now() - from;
  p->busy += now() - from;
}

void Processors::ScheduleTick() {
  if (tick_is_due_) return;
  tick_is_due_ = true;
  const Nanoseconds next = (now() / kTickNanoseconds + 1) * kTickNanoseconds;
  events_->At(core::Time::FromNanoseconds(next), [this] { Tick(); });
}

void Processors::Tick() {
  tick_is_due_ = false;
  bool waits = false;
  for (size_t i = 0; i < processors_.size(); ++i) {
    Processor& p = processors_[i];
    if (p.queue.empty() || !p.current.has_value()) continue;
    Account(&p);
    if (RenewDeadline(&threads_[*p.current])) Resched(i);
  }
  for (size_t i = 0; i < processors_.size(); ++i) {
    if (!processors_[i].current.has_value()) Steal(i, /*takes_hot=*/true);
    waits |= !processors_[i].queue.empty();
  }
  if (waits) ScheduleTick();
}

// --- who runs ------------------------------------------------------------------------------------

size_t Processors::Choose(const Thread& thread) const {
  const auto is_idle = [](const Processor& p) { return !p.current.has_value(); };
  if (is_idle(processors_[thread.processor])) return thread.processor;
  const auto idle = std::find_if(processors_.begin(), processors_.end(), is_idle);
  if (idle != processors_.end()) return static_cast<size_t>(idle - processors_.begin());
  if (calling_.has_value() &&
      Runnable(processors_[*calling_]) < Runnable(processors_[thread.processor])) {
    return *calling_;
  }
  return thread.processor;
}

// At the mean of those that are there, or where it was if that is later.
void Processors::Place(size_t number, size_t processor) {
  Processor& p = processors_[processor];
  Thread& thread = threads_[number];
  if (const size_t count = Runnable(p); count > 0) {
    const Nanoseconds mean = VirtualTimes(p) / static_cast<Nanoseconds>(count);
    const bool has_been_here = thread.processor == processor;
    thread.virtual_time = has_been_here ? std::max(thread.virtual_time, mean) : mean;
  }
  thread.deadline = thread.virtual_time + slice_;
  thread.processor = processor;
  p.queue.push_back(number);
}

void Processors::Wake(size_t number) {
  threads_[number].runnable = true;
  const size_t processor = Choose(threads_[number]);
  Processor& p = processors_[processor];
  Account(&p);
  bool resched = false;
  if (p.current.has_value() && RenewDeadline(&threads_[*p.current])) resched = !p.queue.empty();
  Place(number, processor);
  if (!p.current.has_value()) return SwitchTo(processor, number);
  ScheduleTick();
  if (IsEligible(p, number)) {
    p.preempting = number;
    Resched(processor);
  } else if (resched) {
    Resched(processor);
  }
}

Processors::Nanoseconds Processors::VirtualTimes(const Processor& p) const {
  Nanoseconds sum = 0;
  for (const size_t number : p.queue) sum += threads_[number].virtual_time;
  if (p.current.has_value()) sum += threads_[*p.current].virtual_time;
  return sum;
}

bool Processors::IsEligible(const Processor& p, size_t number) const {
  return threads_[number].virtual_time * static_cast<Nanoseconds>(Runnable(p)) <= VirtualTimes(p);
}

// Of those with the same deadline one that waits goes first.
std::optional<size_t> Processors::Pick(const Processor& p) const {
  std::vector<size_t> all = p.queue;
  if (p.current.has_value()) all.push_back(*p.current);
  std::optional<size_t> best;
  for (const size_t number : all) {
    if (!IsEligible(p, number)) continue;
    if (!best.has_value() || threads_[number].deadline < threads_[*best].deadline) best = number;
  }
  return best;
}

void Processors::Resched(size_t processor) {
  Processor& p = processors_[processor];
  if (p.in_call) {
    p.resched = true;
    return;
  }
  std::optional<size_t> next = std::exchange(p.preempting, std::nullopt);
  if (!next.has_value()) next = Pick(p);
  if (next != p.current) SwitchTo(processor, next);
}

void Processors::SwitchTo(size_t processor, std::optional<size_t> next) {
  Processor& p = processors_[processor];
  if (p.current.has_value()) p.queue.push_back(*p.current);
  p.current = next;
  if (next.has_value()) {
    std::erase(p.queue, *next);
    if (p.last.has_value() && p.last != next) threads_[*next].work.front().left += switch_;
    p.last = next;
  }
  Appoint(processor);
}

void Processors::Appoint(size_t processor) {
  Processor& p = processors_[processor];
  const uint64_t generation = ++p.generation;
  if (!p.current.has_value()) return;
  const Nanoseconds left = std::max<Nanoseconds>(0, threads_[*p.current].work.front().left);
  events_->After(core::Duration::Nanoseconds(left), [this, processor, generation] {
    if (generation == processors_[processor].generation) EndWork(processor);
  });
}

void Processors::EndWork(size_t processor) {
  Processor& p = processors_[processor];
  Account(&p);
  Thread* thread = &threads_[*p.current];
  const std::function<void()> done = std::move(thread->work.front().done);
  thread->work.pop_front();
  p.in_call = true;
  calling_ = processor;
  done();
  calling_.reset();
  p.in_call = false;
  const bool resched = std::exchange(p.resched, false);
  if (threads_[*p.current].work.empty()) return Block(processor);
  Appoint(processor);
  if (resched) Resched(processor);
}

void Processors::Block(size_t processor) {
  Processor& p = processors_[processor];
  threads_[*p.current].runnable = false;
  p.current.reset();
  p.resched = false;
  std::optional<size_t> next = std::exchange(p.preempting, std::nullopt);
  SwitchTo(processor, next.has_value() ? next : Pick(p));
  if (!p.current.has_value()) Steal(processor, /*takes_hot=*/false);
}

// From the longest queue, who waits longest.
bool Processors::Steal(size_t processor, bool takes_hot) {
  const auto busiest = std::max_element(
      processors_.begin(), processors_.end(),
      [](const Processor& a, const Processor& b) { return a.queue.size() < b.queue.size(); });
  for (const size_t number : busiest->queue) {
    if (!takes_hot && now() - threads_[number].ran_at < kMigrationCostNanoseconds) continue;
    std::erase(busiest->queue, number);
    if (busiest->preempting == number) busiest->preempting.reset();
    processors_[processor].accounted_to = now();
    Place(number, processor);
    SwitchTo(processor, number);
    return true;
  }
  return false;
}

}  // namespace geminid::sim
