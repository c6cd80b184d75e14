// Lets the ranks of a run agree to end after the same micro-batch or step, or to go on as another
// number of ranks.
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

  // The sum over the ranks. The signals that asked some rank for an end travel with it, and what
  // the first rank was asked.
  absl::StatusOr<double> Add(double mine);

  // Of the first rank: how many ranks the run is to have; 0: as many as it has.
  void Ask(int ranks) { my_ask_ = ranks; }
  // What it had been asked before the last Add, the same on all ranks.
  int asked() const { return asked_; }

  // The signal that ends the run, the same on all ranks; 0: none yet.
  int signal() const { return signal_; }

 private:
  collectives::Communicator* const communicator_;
  Session* const session_;
  const std::function<int()> own_signal_;
  int signal_ = 0;
  int my_ask_ = 0;
  int asked_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_END_AGREEMENT_H_
