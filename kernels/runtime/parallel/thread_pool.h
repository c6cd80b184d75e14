#ifndef GEMINID_KERNELS_RUNTIME_PARALLEL_THREAD_POOL_H_
#define GEMINID_KERNELS_RUNTIME_PARALLEL_THREAD_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/runtime/common/status.h"
#include "kernels/runtime/parallel/granules.h"

namespace geminid::kernels {

// A few threads that work through the granules of arrays; see granules.h for who does what. Results
// are the same bits for any number of threads provided that what is done for a granule depends on
// that granule alone. A sum over the array is therefore one partial sum per granule, added in order
// afterwards.
//
// Waiting threads sleep: waking one costs some 50 us on a virtual machine, so give it milliseconds.
class ThreadPool {
 public:
  struct Options {
    size_t threads = 1;  // >= 1, the caller of Run included
    // Binds each thread but the caller's to a processor of its own, of those this process may use,
    // in their order; two threads share one only where there are more threads than processors.
    // A part of an array is then always touched from the same processor, hence near its memory.
    bool pin = false;
  };

  // kInvalidParameter for 0 threads, kUnsupported if the system gives no thread or no binding.
  static Status Create(const Options& options, std::unique_ptr<ThreadPool>* pool);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Calls body for every granule of [0, count), each part in order on its own thread, part 0 on the
  // caller's. Returns when all are done; their writes are then visible. One Run at a time.
  // `granule_elements` >= 1. Body does not throw and does not call Run.
  using Body = std::function<void(const Granule&)>;
  void Run(size_t count, size_t granule_elements, const Body& body);

  size_t threads() const { return workers_.size() + 1; }

 private:
  struct Job {
    const Body* body;
    size_t count;
    size_t granule_elements;
  };

  ThreadPool() = default;
  Status Start(const Options& options);
  void Loop(size_t part, size_t parts);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  Job job_ = {};             // guarded by mutex_
  uint64_t generation_ = 0;  // guarded by mutex_; one more for every Run
  size_t working_ = 0;       // guarded by mutex_; workers that have not finished this generation
  bool stop_ = false;        // guarded by mutex_
  std::vector<std::thread> workers_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_PARALLEL_THREAD_POOL_H_
