// The outcome of a request in progress.
#ifndef GEMINID_PENDING_H_
#define GEMINID_PENDING_H_

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "geminid/export.h"

namespace geminid {

// Move-only. May be destroyed at any time: the request goes on. May outlive its session, whose end
// completes it. Thread-safe, except for moves.
class GEMINID_EXPORT Pending {
 public:
  // Already complete, with OK or with `status`.
  Pending() = default;
  explicit Pending(absl::Status status);

  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&&) noexcept = default;

  // Whether the request is complete, with or without an error.
  bool ready() const;

  // Blocks until complete and returns the outcome, any number of times. DEADLINE_EXCEEDED after
  // `timeout`: the request goes on, and Wait may be called again. Not for use in callbacks.
  absl::Status Wait(absl::Duration timeout = absl::InfiniteDuration()) const;

  // Calls `callback` once with the outcome: at once if complete, else on the thread that completes
  // it, which is a session's transfer thread or that of an AsyncCommunicator. The callback must not
  // block, and may make further requests. At most one callback.
  void Then(std::function<void(const absl::Status&)> callback);

  class State;  // internal
  explicit Pending(std::shared_ptr<State> state);

 private:
  std::shared_ptr<State> state_;  // null: complete with OK
};

}  // namespace geminid

#endif  // GEMINID_PENDING_H_
