// Tasks of one kernel on the threads of a pool.
//
// A kernel cuts its work into tasks that depend on its arguments alone, never on how many threads
// there are, so its results are the same bits for any pool. Each thread takes the next task when it
// is free: threads that get less of a processor do fewer.
#ifndef GEMINID_KERNELS_RUNTIME_PARALLEL_TASKS_H_
#define GEMINID_KERNELS_RUNTIME_PARALLEL_TASKS_H_

#include <algorithm>
#include <atomic>
#include <cstddef>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::kernels {

// The threads of a pool; without a pool 1, the caller.
inline size_t ThreadsOf(const ThreadPool* pool) { return pool == nullptr ? 1 : pool->threads(); }

// Calls task(index, thread) -> Status for every index in [0, count). Tasks that run at the same
// time have different `thread` in [0, ThreadsOf(pool)). After an error no more tasks begin, and one
// of the errors is returned. Tasks do not throw and do not use the pool.
template <typename Task>
Status RunTasks(ThreadPool* pool, size_t count, const Task& task) {
  const size_t threads = std::min(ThreadsOf(pool), count);
  if (pool == nullptr || threads <= 1) {
    for (size_t i = 0; i < count; ++i) {
      const Status status = task(i, size_t{0});
      if (status != Status::kOk) return status;
    }
    return Status::kOk;
  }
  std::atomic<size_t> next = 0;
  std::atomic<Status> failed = Status::kOk;
  // One granule for each thread of the pool, which then takes tasks while there are any.
  pool->Run(pool->threads(), 1, [&](const Granule& thread) {
    for (size_t i = next++; i < count && failed == Status::kOk; i = next++) {
      const Status status = task(i, thread.index);
      if (status != Status::kOk) failed.store(status);
    }
  });
  return failed;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_PARALLEL_TASKS_H_
