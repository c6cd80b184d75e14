// The shared state behind a Pending.
#ifndef GEMINID_COLLECTIVES_ASYNC_PENDING_STATE_H_
#define GEMINID_COLLECTIVES_ASYNC_PENDING_STATE_H_

#include <condition_variable>
#include <functional>
#include <mutex>

#include "geminid/pending.h"

namespace geminid {

// Runs callbacks: on the thread that completes requests.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual void Run(std::function<void()> call) = 0;
};

class Pending::State {
 public:
  using Callback = std::function<void(const absl::Status&)>;

  // `executor` is used by Complete alone, and must live until then.
  explicit State(Executor* executor) : executor_(executor) {}

  // Called once, on any thread.
  void Complete(absl::Status status);

  bool ready() const;
  absl::Status Wait(absl::Duration timeout) const;
  void Then(Callback callback);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool ready_ = false;   // guarded by mutex_; status_ does not change once it is set
  absl::Status status_;  // guarded by mutex_ until ready_
  Callback callback_;    // guarded by mutex_
  Executor* const executor_;
};

}  // namespace geminid

#endif  // GEMINID_COLLECTIVES_ASYNC_PENDING_STATE_H_
