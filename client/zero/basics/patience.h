// Longer timeouts for ranks that wait for each other while engines are created.
#ifndef GEMINID_CLIENT_ZERO_BASICS_PATIENCE_H_
#define GEMINID_CLIENT_ZERO_BASICS_PATIENCE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "geminid/communicator.h"

namespace geminid::zero {

// While this object lives, the trainer's communicator has at least the engine's timeout, because
// another rank may still be allocating its memory.
class Patience {
 public:
  Patience(collectives::Communicator* ranks, absl::Duration timeout)
      : ranks_(ranks), before_(ranks->timeout()) {
    ranks_->SetTimeout(std::max(before_, timeout));
  }
  ~Patience() { ranks_->SetTimeout(before_); }
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

 private:
  collectives::Communicator* const ranks_;
  const absl::Duration before_;
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_BASICS_PATIENCE_H_
