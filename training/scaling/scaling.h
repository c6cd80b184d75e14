// Goes on as another number of ranks, or at another host, without a checkpoint: all ranks leave the
// run's state in memory of whoever started them on their host and end, and the launcher starts as
// many ranks as were asked for, where they were asked for, which begin with that state. docs/adr
// says why.
#ifndef GEMINID_TRAINING_SCALING_SCALING_H_
#define GEMINID_TRAINING_SCALING_SCALING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/src/job_scaling.h"
#include "geminid/communicator.h"
#include "geminid/session.h"
#include "geminid/zero.h"
#include "training/launch/handover_memory.h"
#include "training/ranks/rank_session.h"
#include "training/ranks/share_offer.h"
#include "training/scaling/room.h"
#include "training/scaling/spread_state.h"
#include "training/scaling/state_image.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Of one rank, between steps. All ranks make the same calls but for Poll.
class Scaling {
 public:
  using Warn = std::function<void(const std::string& line)>;
  // All arguments outlive this object.
  Scaling(const TrainOptions& options, const RankContext& context, Session* session,
          collectives::Communicator* communicator, zero::ModelState* state,
          const std::vector<zero::Parameter>* parameters, Warn warn);

  // Called before the parameters get their first values. Charges the state that earlier ranks have
  // left to the daemon's ledger, for as long as the state exists.
  void ChargeInheritedState();
  // Loads the state that earlier ranks have left, and returns its position; nothing: they left
  // none.
  absl::StatusOr<std::optional<RunPosition>> TakeOver();
  int ranks_before() const { return ranks_before_; }

  // Called by the first rank. Returns the number of ranks with which the run is to go on, if it
  // can; 0: no change. Offers the daemon to take such requests, and refuses those that cannot be
  // done. A request for another host goes to the launcher after the step, and is returned when that
  // host is ready.
  int Poll(absl::Time now);
  // Called after a step. Tells the requester of these ranks the outcome. `trained` is the number of
  // steps since this start. When it shows that every rank has committed the state that it took
  // over, the first rank frees the image. `step` is for the daemon, if the daemon may change the
  // number of ranks.
  void AfterStep(uint64_t trained, const ShareStep& step = {});

  // True: the state was left for `ranks` ranks, and this rank ends. False: this failed, the first
  // rank has reported why, and the run goes on unchanged. `health` is that of the last step.
  absl::StatusOr<bool> HandOver(int ranks, const checkpoint::RunState& run,
                                checkpoint::Health health,
                                const std::function<absl::StatusOr<bool>()>& ends);
  // Called by the first rank when the run ends. From then on requests are refused, including one
  // that Poll has not received yet.
  void Close();

 private:
  bool leads() const { return context_.info.rank == 0; }
  bool leads_host() const;
  // Of so many ranks, those on this rank's host.
  absl::StatusOr<int> Here(int ranks) const;
  // Whether ranks are on several hosts, or their state is in parts.
  absl::StatusOr<std::unique_ptr<SpreadState>> SpreadOf(const StateImage& image) const;
  bool NeedsLauncher() const;
  std::string WhyNot() const;
  absl::Status CheckRanks(int ranks);
  absl::Status CheckMove() const;
  absl::Status WantMove();
  int PollMove();
  std::string WhyUndone(const std::optional<Handover>& left, int ranks) const;
  absl::Status CheckDevices(int ranks) const;
  absl::Status Charge(uint64_t bytes);
  void FreeCharge();
  // `wanted`: with ranks_after, step, bytes and began; of a spread state with its number, too.
  absl::Status MakeRoom(Handover wanted, const StateImage& image, const SpreadState* spread);
  absl::Status WriteState(const StateImage& image, SpreadState* spread,
                          const RunPosition& position) const;
  absl::StatusOr<RunPosition> ReadState(const StateImage& image) const;
  bool Stay(const absl::Status& why);
  void Refuse(const absl::Status& why);
  bool HasUnreportedOutcome() const;
  void TellOutcome();
  void Tell(const std::string& state, const std::string& message);
  absl::StatusOr<JobScaling::RankChange> Offer();

  const TrainOptions& options_;
  const RankContext& context_;
  Session* const session_;
  collectives::Communicator* const communicator_;
  zero::ModelState* const state_;
  const std::vector<zero::Parameter>* const parameters_;
  const Warn warn_;
  std::unique_ptr<JobScaling> daemon_;  // of the first rank of each host
  JobScaling::RankChange asked_;        // the request that this rank has taken
  JobScaling::Outcome outcome_;         // that the daemon has not heard of yet
  absl::Time next_poll_ = absl::InfinitePast();
  bool is_closed_ = false;
  std::optional<ChunkId> charge_;
  int ranks_before_ = 0;             // if it began with their state; 0: it did not
  std::optional<ShareOffer> share_;  // in the first rank, if the daemon may change the ranks
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_SCALING_H_
