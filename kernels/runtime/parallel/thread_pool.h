#ifndef GEMINID_KERNELS_RUNTIME_PARALLEL_THREAD_POOL_H_
#define GEMINID_KERNELS_RUNTIME_PARALLEL_THREAD_POOL_H_

#include <atomic>
#include <chrono>
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

// A few threads that work through the granules of arrays, as granules.h divides them. Results
// are the same bits for any number of threads if the work on a granule depends on that granule
// alone. A sum over the array is therefore one partial sum per granule, added in order
// afterwards.
//
// Waiting threads sleep. Waking one costs some 50 us on a virtual machine, so give the pool
// milliseconds of work, or let its threads spin first.
class ThreadPool {
 public:
  struct Options {
    size_t threads = 1;  // >= 1, the caller of Run included
    // Binds each thread except the caller's to its own processor, in the order of those this
    // process may use; threads share one only if there are more threads than processors. A part of
    // an array is then always touched from the same processor, hence near its memory.
    bool pin = false;
    // How long a waiting thread, the caller of Run included, spins before it sleeps. For work of
    // microseconds on otherwise idle processors. A spin as long as a wake-up costs at most twice
    // what the best choice would (the ski rental problem).
    std::chrono::microseconds spin{0};
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
  // Whether the condition became true before the time to spin was over.
  template <typename Condition>
  bool Spin(const Condition& condition) const;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::chrono::microseconds spin_{0};
  // Written under mutex_, so that no thread sleeps through a change; read without it to spin.
  Job job_ = {};                          // the current generation's; set before generation_
  std::atomic<uint64_t> generation_ = 0;  // one more for every Run
  std::atomic<size_t> working_ = 0;       // workers that have not finished this generation
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> workers_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_PARALLEL_THREAD_POOL_H_
