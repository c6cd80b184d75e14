// How a run ends before its last step, or goes on as another number of ranks: its ranks agree on
// both after the same micro-batch or step.
#ifndef GEMINID_TRAINING_RANKS_RUN_END_H_
#define GEMINID_TRAINING_RANKS_RUN_END_H_

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/communicator.h"
#include "geminid/session.h"

namespace geminid::trainer {

// How training ended: at most one is set.
struct TrainEnd {
  int signal = 0;         // some rank was asked to stop by it
  bool diverged = false;  // the loss was not finite, and --stop-on-nan given
  bool spent = false;     // a rank may write no more to disk (--state-disk-endurance)
  bool no_data = false;   // a rank could not read its data

  bool is_early() const { return signal != 0 || diverged || spent || no_data; }
};

// Of one rank; all ranks make the same calls.
class RunEnd {
 public:
  // `own_signal` says which signal asks this rank for an end, 0 before; null: none does. Both
  // pointers outlive this. `stops_on_nan`: --stop-on-nan.
  RunEnd(collectives::Communicator* communicator, Session* session, std::function<int()> own_signal,
         bool stops_on_nan);

  // The same on all ranks.
  const TrainEnd& how() const { return how_; }
  bool has_come() const { return how_.is_early(); }

  // The sum over the ranks. The signals that asked some rank for an end travel with it, and what
  // the first rank was asked.
  absl::StatusOr<double> Add(double mine);
  // Whether the run is to end, after an Add of nothing.
  absl::StatusOr<bool> Ask();

  // After a step. A signal that came before remains the reason.
  void NoteLoss(double loss);
  // A step that would write more to disk than a rank may ends the run; any other error returns.
  absl::Status NoteRefusedStep(const absl::Status& refused);
  // This rank could not read its data. The run ends with the next Add.
  void NoteNoData(absl::Status why) { my_no_data_ = std::move(why); }
  // Where `how().no_data`: the error of this rank's data, ABORTED where those of another failed.
  absl::Status NoData() const;

  // Of the first rank: how many ranks the run is to have; 0: as many as it has.
  void AskForRanks(int ranks) { my_ask_ = ranks; }
  // What it had been asked before the last Add, the same on all ranks.
  int asked_ranks() const { return asked_; }

 private:
  collectives::Communicator* const communicator_;
  Session* const session_;
  const std::function<int()> own_signal_;
  const bool stops_on_nan_;
  TrainEnd how_;
  absl::Status my_no_data_;
  int my_ask_ = 0;
  int asked_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_RUN_END_H_
