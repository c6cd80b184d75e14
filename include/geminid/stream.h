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
  // Everything queued before the point is complete.
  virtual bool ready() const = 0;
  // Blocks the calling thread until then, or for `timeout`: false if it is not complete.
  virtual bool WaitFor(absl::Duration timeout) const = 0;
  void Wait() const { WaitFor(absl::InfiniteDuration()); }
};

// Work runs one after another in the order it was queued. Thread-safe. Destroying a stream waits
// for all of its work.
class GEMINID_EXPORT Stream {
 public:
  virtual ~Stream() = default;

  // Runs `work` on the host once everything queued before is complete. It must not block for long,
  // and must not call into the stream's device other than to queue more.
  virtual void Enqueue(std::function<void()> work) = 0;

  // The same, but what is queued afterwards goes on meanwhile: a GPU does not stop for the host.
  virtual void CallBack(std::function<void()> work) { Enqueue(std::move(work)); }

  // The point reached when everything queued so far is complete.
  virtual std::shared_ptr<const Event> Record() = 0;

  // What is queued from now on waits for `event`, which may be of another stream.
  virtual void WaitFor(std::shared_ptr<const Event> event) = 0;

  // Blocks until everything queued so far is complete.
  void Synchronize() { Record()->Wait(); }
};

// A stream as its device knows it, for calls that take any trainer's: on the host device a Stream*,
// with CUDA a CUstream. Null: with CUDA the default stream, on the host device the calling thread,
// as in calls without a stream. Does not own it: it must outlive the work that the call queues.
struct StreamHandle {
  void* value = nullptr;
};

}  // namespace geminid

#endif  // GEMINID_STREAM_H_
