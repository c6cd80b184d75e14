// Lets the ranks of a run agree to end after the same micro-batch or step.
#ifndef GEMINID_TRAINING_RANKS_END_AGREEMENT_H_
#define GEMINID_TRAINING_RANKS_END_AGREEMENT_H_

#include <functional>

#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/session.h"

namespace geminid::trainer {

// Of one rank; all ranks make the same calls.
class EndAgreement {
 public:
  // `own_signal` says which signal asks this rank for an end, 0 before; null: none does. Both
  // pointers outlive this.
  EndAgreement(collectives::Communicator* communicator, Session* session,
               std::function<int()> own_signal);

  // The sum over the ranks. The signals that asked some rank for an end travel with it.
  absl::StatusOr<double> Add(double mine);

  // The signal that ends the run, the same on all ranks; 0: none yet.
  int signal() const { return signal_; }

 private:
  collectives::Communicator* const communicator_;
  Session* const session_;
  const std::function<int()> own_signal_;
  int signal_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_END_AGREEMENT_H_
