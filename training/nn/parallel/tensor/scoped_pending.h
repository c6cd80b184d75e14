// An operation that runs while its caller does other work.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_SCOPED_PENDING_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_SCOPED_PENDING_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "geminid/pending.h"

namespace geminid::collectives {

// The destructor waits for the operation, so the caller may then use its buffers again.
class ScopedPending {
 public:
  ScopedPending() = default;  // no operation; done
  explicit ScopedPending(Pending pending)
      : pending_(std::make_shared<const Pending>(std::move(pending))) {}
  ~ScopedPending() { (void)Wait(); }
  ScopedPending(ScopedPending&&) noexcept = default;
  ScopedPending& operator=(ScopedPending&& other) noexcept {
    (void)Wait();
    pending_ = std::move(other.pending_);
    return *this;
  }

  // Returns the operation's status, any number of times.
  absl::Status Wait() const { return pending_ == nullptr ? absl::OkStatus() : pending_->Wait(); }

  // For an operation that must begin after this one. Null: this one is done.
  std::shared_ptr<const Pending> pending() const { return pending_; }

 private:
  std::shared_ptr<const Pending> pending_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_SCOPED_PENDING_H_
