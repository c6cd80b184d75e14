// An operation that runs while its caller does something else.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_BEGUN_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_BEGUN_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "geminid/pending.h"

namespace geminid::collectives {

// Waited for where this ends, at the latest: buffers are the caller's again behind it.
class Begun {
 public:
  Begun() = default;  // nothing, and done
  explicit Begun(Pending pending) : pending_(std::make_shared<const Pending>(std::move(pending))) {}
  ~Begun() { (void)Wait(); }
  Begun(Begun&&) noexcept = default;
  Begun& operator=(Begun&& other) noexcept {
    (void)Wait();
    pending_ = std::move(other.pending_);
    return *this;
  }

  // How it ended, any number of times.
  absl::Status Wait() const { return pending_ == nullptr ? absl::OkStatus() : pending_->Wait(); }

  // For another operation that begins when this is done. Null: it is.
  std::shared_ptr<const Pending> pending() const { return pending_; }

 private:
  std::shared_ptr<const Pending> pending_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_BEGUN_H_
