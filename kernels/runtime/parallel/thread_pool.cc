#include "kernels/runtime/parallel/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <system_error>

#include "base/processors.h"

namespace geminid::kernels {
namespace {

bool Bind(std::thread& thread, int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  return pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one) == 0;
}

void DoPart(const ThreadPool::Body& body, size_t count, size_t granule_elements, size_t part,
            size_t parts) {
  const GranuleRun run = RunOfPart(GranuleCount(count, granule_elements), part, parts);
  for (size_t i = run.first; i < run.last; ++i) body(GranuleAt(i, count, granule_elements));
}

}  // namespace

Status ThreadPool::Create(const Options& options, std::unique_ptr<ThreadPool>* pool) {
  if (pool == nullptr) return Status::kNullPointer;
  if (options.threads == 0) return Status::kInvalidParameter;
  std::unique_ptr<ThreadPool> made(new ThreadPool);
  const Status status = made->Start(options);
  if (status == Status::kOk) *pool = std::move(made);
  return status;
}

Status ThreadPool::Start(const Options& options) {
  const std::vector<int> processors = options.pin ? base::AllowedProcessors() : std::vector<int>();
  if (options.pin && processors.empty()) return Status::kUnsupported;
  spin_ = options.spin;
  workers_.reserve(options.threads - 1);
  for (size_t part = 1; part < options.threads; ++part) {
    try {
      workers_.emplace_back([this, part, parts = options.threads] { Loop(part, parts); });
    } catch (const std::system_error&) {
      return Status::kUnsupported;  // the destructor joins those that started
    }
    if (options.pin && !Bind(workers_.back(), processors[part % processors.size()])) {
      return Status::kUnsupported;
    }
  }
  return Status::kOk;
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(size_t count, size_t granule_elements, const Body& body) {
  {
    std::lock_guard lock(mutex_);
    job_ = {&body, count, granule_elements};
    working_ = workers_.size();
    ++generation_;
  }
  wake_.notify_all();
  DoPart(body, count, granule_elements, 0, threads());
  if (Spin([this] { return working_ == 0; })) return;
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return working_ == 0; });
}

template <typename Condition>
bool ThreadPool::Spin(const Condition& condition) const {
  if (condition()) return true;
  if (spin_.count() == 0) return false;
  constexpr int kLooksPerClock = 64;  // reading the clock takes as long as some looks
  const auto end = std::chrono::steady_clock::now() + spin_;
  do {
    for (int i = 0; i < kLooksPerClock; ++i) {
      if (condition()) return true;
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

void ThreadPool::Loop(size_t part, size_t parts) {
  uint64_t finished = 0;
  const auto called = [&] { return stop_ || generation_ != finished; };
  for (;;) {
    if (!Spin(called)) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, called);
    }
    if (stop_) return;
    finished = generation_;
    // The next Run waits for this one, so the job stays as it is.
    DoPart(*job_.body, job_.count, job_.granule_elements, part, parts);
    if (--working_ > 0) continue;
    { const std::lock_guard lock(mutex_); }  // a waiter about to sleep does so before notify_one
    done_.notify_one();
  }
}

}  // namespace geminid::kernels
