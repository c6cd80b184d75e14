#include "kernels/runtime/parallel/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <system_error>

namespace geminid::kernels {
namespace {

// The processors that this process may run on, in order.
std::vector<int> AllowedProcessors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  return processors;
}

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
  const std::vector<int> processors = options.pin ? AllowedProcessors() : std::vector<int>();
  if (options.pin && processors.empty()) return Status::kUnsupported;
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
    ++generation_;
    working_ = workers_.size();
  }
  wake_.notify_all();
  DoPart(body, count, granule_elements, 0, threads());
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return working_ == 0; });
}

void ThreadPool::Loop(size_t part, size_t parts) {
  uint64_t finished = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || generation_ != finished; });
    if (stop_) return;
    finished = generation_;
    const Job job = job_;
    lock.unlock();
    DoPart(*job.body, job.count, job.granule_elements, part, parts);
    lock.lock();
    if (--working_ == 0) done_.notify_one();
  }
}

}  // namespace geminid::kernels
