// Goes on as another number of ranks, or at another host, without a checkpoint: all ranks leave the
// run's state in the launcher's memory and end, and the launcher starts as many ranks as were asked
// for, where they were asked for, which begin with that state. docs/adr says why.
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
#include "training/scaling/state_image.h"
#include "training/settings/options.h"

namespace geminid::trainer {

// Before a rank of a start that follows another number of ranks connects to the daemon: ends what
// those have left there. Of the first rank.
absl::Status EndEarlierRanks(const TrainOptions& options, const RankContext& context);

// So many ranks, each of which has such an arena.
struct RanksOfArenas {
  int ranks = 0;
  uint64_t arena_bytes = 0;
};
// Whether the devices, which ranks take in turn, have room for the arenas of the ranks after once
// the ranks before have gone. An arena lies on one device.
absl::Status CheckRoom(const RanksOfArenas& after, const RanksOfArenas& before,
                       std::vector<JobScaling::Device> devices);

// Of one rank, between steps. All ranks make the same calls but for Poll.
class Scaling {
 public:
  using Warn = std::function<void(const std::string& line)>;
  // All outlive it.
  Scaling(const TrainOptions& options, const RankContext& context, Session* session,
          collectives::Communicator* communicator, zero::ModelState* state,
          const std::vector<zero::Parameter>* parameters, Warn warn);

  // Before the first values: the daemon's ledger has the state that the ranks before have left, for
  // as long as it is there.
  void ChargeWhatIsLeft();
  // The state that the ranks before have left, taken; nothing: they left none.
  absl::StatusOr<std::optional<RunPosition>> TakeOver();
  int ranks_before() const { return ranks_before_; }

  // Of the first rank: to how many ranks the run is to go on, and may; 0: none. Tells the daemon
  // that this job takes such requests, and refuses those that cannot be. One for another host is
  // passed on to the launcher after the step, and comes back when that host is ready.
  int Poll(absl::Time now);
  // After a step: whoever asked for these ranks is told, and with `trained` since the beginning the
  // state that was taken over is in every rank's memory, and its image goes. `step`: for the
  // daemon, where it shares the node.
  void AfterStep(uint64_t trained, const ShareStep& step = {});

  // True: the state is left for so many ranks, and this one ends. False: it is not, which the first
  // rank has said, and the run goes on as it is.
  // `health`: of the step before.
  absl::StatusOr<bool> HandOver(int ranks, const checkpoint::RunState& run,
                                checkpoint::Health health,
                                const std::function<absl::StatusOr<bool>()>& ends);
  // Of the first rank, when the run ends: requests are refused from now on, also one of which
  // Poll has not heard yet.
  void Close();

 private:
  bool leads() const { return context_.info.rank == 0; }
  std::string WhyNot() const;
  absl::Status CheckRanks(int ranks);
  absl::Status CheckMove() const;
  absl::Status WantMove();
  int PollMove();
  std::string WhyUndone(const std::optional<Handover>& left, int ranks) const;
  absl::Status CheckDevices(int ranks);
  absl::Status Charge(uint64_t bytes);
  void FreeCharge();
  // `wanted`: with ranks_after, step, bytes and began.
  absl::Status MakeRoom(Handover wanted);
  absl::Status WriteState(const StateImage& image, const RunPosition& position) const;
  bool Stay(const absl::Status& why);
  void Refuse(const absl::Status& why);
  bool HasUntold() const;
  void TellOutcome();
  void Tell(const std::string& state, const std::string& message);
  absl::StatusOr<JobScaling::Asked> Offer();

  const TrainOptions& options_;
  const RankContext& context_;
  Session* const session_;
  collectives::Communicator* const communicator_;
  zero::ModelState* const state_;
  const std::vector<zero::Parameter>* const parameters_;
  const Warn warn_;
  std::unique_ptr<JobScaling> daemon_;  // of the first rank
  JobScaling::Asked asked_;             // the request that this rank has taken
  JobScaling::Outcome outcome_;         // that the daemon has not heard of yet
  absl::Time next_poll_ = absl::InfinitePast();
  bool is_closed_ = false;
  std::optional<ChunkId> charge_;
  int ranks_before_ = 0;  // it began with the state of so many; 0: it did not
  std::optional<ShareOffer> share_;  // of the first rank of a run that the daemon may change
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_SCALING_H_
