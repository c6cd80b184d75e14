// In-order queues of work on a device, and points in them.
#ifndef GEMINID_STREAM_H_
#define GEMINID_STREAM_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/time/time.h"
#include "geminid/export.h"

namespace geminid {

// A point in a stream. Thread-safe.
class GEMINID_EXPORT Event {
 public:
  virtual ~Event() = default;
  // Whether all work queued before the point is complete.
  virtual bool ready() const = 0;
  // Blocks the calling thread until then, or for `timeout`; false if it is not complete.
  virtual bool WaitFor(absl::Duration timeout) const = 0;
  void Wait() const { WaitFor(absl::InfiniteDuration()); }
};

// Work runs in the order in which it was queued. Thread-safe. Destroying a stream waits for all of
// its work.
class GEMINID_EXPORT Stream {
 public:
  virtual ~Stream() = default;

  // Runs `work` on the host once all earlier work is complete. It must not block for long, and must
  // not call the stream's device except to queue more work.
  virtual void Enqueue(std::function<void()> work) = 0;

  // The same, but later work does not wait for `work`: a GPU does not stop for the host.
  virtual void CallBack(std::function<void()> work) { Enqueue(std::move(work)); }

  // The point that is reached when all work queued so far is complete.
  virtual std::shared_ptr<const Event> Record() = 0;

  // Later work waits for `event`, which may belong to another stream.
  virtual void WaitFor(std::shared_ptr<const Event> event) = 0;

  // Blocks until all work queued so far is complete.
  void Synchronize() { Record()->Wait(); }
};

// A stream by its device's own handle, for calls that accept a trainer's streams: on the host
// device a Stream*, with CUDA a CUstream. Null: with CUDA the default stream, on the host device
// the calling thread. Not owned: the stream must outlive the work that the call queues.
struct StreamHandle {
  void* value = nullptr;
};

}  // namespace geminid

#endif  // GEMINID_STREAM_H_
