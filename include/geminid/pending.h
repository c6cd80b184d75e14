// The outcome of a request that is still on its way.
#ifndef GEMINID_PENDING_H_
#define GEMINID_PENDING_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "geminid/export.h"

namespace geminid {

// Move-only. May be dropped at any time: the request goes on. May outlive its session, whose end
// completes it. Thread-safe apart from moving.
class GEMINID_EXPORT Pending {
 public:
  // Complete from the start, with OK or with `status`.
  Pending() = default;
  explicit Pending(absl::Status status);

  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  // Complete, well or badly.
  bool ready() const;

  // Blocks until complete and returns the outcome, any number of times. DEADLINE_EXCEEDED when the
  // time is over: the request goes on, and Wait may be called again. Not for use in callbacks.
  absl::Status Wait(absl::Duration timeout = absl::InfiniteDuration()) const;

  // Calls `callback` once with the outcome: here and now if complete, else on the thread that
  // completes it, a session's transfer thread or an AsyncCommunicator's. The callback must not
  // block, and may make further requests. At most one callback.
  void Then(std::function<void(const absl::Status&)> callback);

  class State;  // of the library
  explicit Pending(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;  // null: complete with OK
};

}  // namespace geminid

#endif  // GEMINID_PENDING_H_
