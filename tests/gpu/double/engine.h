// The double's contexts and streams. A stream is a thread that runs queued work in order, so the
// work really runs while its caller continues.
#ifndef GEMINID_TESTS_GPU_DOUBLE_ENGINE_H_
#define GEMINID_TESTS_GPU_DOUBLE_ENGINE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "gpu/driver_api.h"

namespace geminid::gpu_double {

class Context;

// Thread-safe.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  // Starts the stream's thread, which owns the stream until Close and the end of its work.
  static std::shared_ptr<Stream> Make(Context* context, bool blocking);

  // Returns how many operations have been queued, this one included.
  uint64_t Enqueue(std::function<void()> operation);
  uint64_t queued() const;
  bool IsDone(uint64_t operations) const;
  void Wait(uint64_t operations) const;
  void Close();

  Context* context() const { return context_; }
  bool blocking() const { return blocking_; }

 private:
  Stream(Context* context, bool blocking) : context_(context), blocking_(blocking) {}
  void Run();

  Context* const context_;
  const bool blocking_;  // ordered with the context's legacy stream
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<std::function<void()>> operations_;
  uint64_t queued_ = 0;
  uint64_t done_ = 0;
  bool closed_ = false;
};

// The work that was queued on a stream at one time.
struct Point {
  std::shared_ptr<Stream> stream;
  uint64_t operations = 0;

  bool IsDone() const { return stream == nullptr || stream->IsDone(operations); }
  void Wait() const {
    if (stream != nullptr) stream->Wait(operations);
  }
};

struct Event {
  std::mutex mutex;
  unsigned flags = 0;
  std::optional<Point> point;  // of the last record
  std::shared_ptr<std::chrono::steady_clock::time_point> reached;
};

// The primary context of a device. Lives as long as the process.
class Context {
 public:
  explicit Context(int device) : device_(device) {}

  int device() const { return device_; }
  // The first error stays. Queued work is then dropped, and calls return the error.
  void Fail(CUresult error);
  CUresult error();
  bool failed() { return error() != CUDA_SUCCESS; }

  // The stream of a handle. Null and CU_STREAM_LEGACY are the legacy stream, which is made on first
  // use.
  std::shared_ptr<Stream> Find(CUstream handle);
  std::shared_ptr<Stream> MakeStream(bool blocking);
  bool Destroy(CUstream handle);
  // Queues in the order that the legacy stream requires, if it is in use.
  uint64_t Enqueue(const std::shared_ptr<Stream>& stream, std::function<void()> operation);
  void Synchronize();

  // Held by the copy engine of a direction: one copy at a time.
  std::mutex& link(bool to_device) { return links_[to_device ? 1 : 0]; }

  int retained = 0;  // guarded by the lock of contexts

 private:
  const int device_;
  std::atomic<CUresult> error_ = CUDA_SUCCESS;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::shared_ptr<Stream> legacy_;
  std::mutex links_[2];
};

// Whether this thread runs a function of cuLaunchHostFunc, which may call nothing of the driver.
bool& InHostFunction();

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_ENGINE_H_
