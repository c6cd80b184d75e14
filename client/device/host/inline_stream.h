// A stream without a queue: executes work on host memory at once.
#ifndef GEMINID_CLIENT_DEVICE_HOST_INLINE_STREAM_H_
#define GEMINID_CLIENT_DEVICE_HOST_INLINE_STREAM_H_

#include <functional>
#include <memory>

#include "geminid/stream.h"

namespace geminid::device {

// Work is complete when the call that queued it returns; it runs on the caller's thread. Threads
// may share the stream, but there is no order between them.
class InlineStream final : public Stream {
 public:
  void Enqueue(std::function<void()> work) override { work(); }
  std::shared_ptr<const Event> Record() override { return std::make_shared<Complete>(); }
  void WaitFor(std::shared_ptr<const Event> event) override { event->Wait(); }

 private:
  class Complete final : public Event {
   public:
    bool ready() const override { return true; }
    bool WaitFor(absl::Duration /*timeout*/) const override { return true; }
  };
};

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_HOST_INLINE_STREAM_H_
