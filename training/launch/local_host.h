// Starts ranks as child processes of this host.
#ifndef GEMINID_TRAINING_LAUNCH_LOCAL_HOST_H_
#define GEMINID_TRAINING_LAUNCH_LOCAL_HOST_H_

#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/unique_fd.h"
#include "training/launch/handover_memory.h"
#include "training/launch/outcome_teller.h"
#include "training/launch/rank_host.h"
#include "training/launch/rank_process.h"
#include "training/launch/ranks_range.h"
#include "training/launch/state_pieces.h"

namespace geminid::trainer {

// The variable with the pid of the process that started a rank; see IsLaunched().
inline constexpr char kLauncherVariable[] = "GEMINID_LAUNCHER_PID";

// Destroying it kills the ranks that still run.
class LocalHost final : public RankHost {
 public:
  // Ranks have this process's environment, overridden by `environment` and then by their own
  // variables. Their signal mask is `signal_mask`.
  LocalHost(std::string program, Variables environment, const sigset_t& signal_mask);

  std::string name() const override { return ""; }
  absl::Status Start(const std::vector<RankStart>& starts) override;
  std::vector<RankState*> ranks() override;
  void Signal(int signal) override;
  void AddTo(std::vector<pollfd>* fds) const override;
  void Look(absl::Time now) override;
  absl::Status failure() const override { return failure_; }
  void Leave() override;

  std::optional<Handover> handover() const override;
  void Adopt(const std::optional<Handover>& handover) override;
  std::optional<MoveRequest> wanted() const override;
  void Answer(uint64_t request, const absl::Status& status) override;
  void Tell(const MoveOutcome& outcome) override;
  bool job_ended() const override { return teller_ != nullptr && teller_->job_ended(); }
  void BeginToSend() override;
  std::optional<std::string> TakePiece() override;
  void BeginToReceive(const Handover& handover) override;
  bool takes_piece() const override { return writer_.has_value(); }
  void AddPiece(const std::string& piece) override;

  // Lets ranks that start from now on hand over their state. While there is state, ranks start with
  // the stop signals blocked: a signal before they watch signals would kill them and lose the
  // state. `share`: the range in which the daemon may change the number of ranks.
  absl::Status MakeHandover(const std::optional<RanksRange>& share);
  // Makes room for state that is to come. RESOURCE_EXHAUSTED: this host does not have the room.
  absl::Status Reserve(uint64_t bytes);
  // Sets what tells the daemon an outcome. Null: the daemon is not told.
  void SetTeller(OutcomeTeller* teller) { teller_ = teller; }

 private:
  absl::Status StartRanks(const std::vector<RankStart>& starts);
  absl::Status MakeRunMemoryFor(int ranks);
  sigset_t MaskOfRanks() const;

  const std::string program_;
  const Variables environment_;
  const sigset_t signal_mask_;
  base::UniqueFd run_memory_;                 // of all starts; once there was one
  int run_memory_ranks_ = 0;                  // the number of ranks that its mesh is for
  std::unique_ptr<HandoverMemory> handover_;  // null: state is not handed over
  std::vector<RankProcess> processes_;
  OutcomeTeller* teller_ = nullptr;
  std::optional<StateReader> reader_;  // of state that leaves this host
  std::optional<StateWriter> writer_;  // of state that comes to this host
  absl::Status failure_;               // of the reader or the writer
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_LOCAL_HOST_H_
