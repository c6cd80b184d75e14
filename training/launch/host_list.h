// The hosts of a run's list as one host that all its ranks are on. Which of them have ranks follows
// from the number of ranks (HostSpread), so that hosts join and leave as it changes.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_LIST_H_
#define GEMINID_TRAINING_LAUNCH_HOST_LIST_H_

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/handover_memory.h"
#include "training/launch/host_file.h"
#include "training/launch/host_spread.h"
#include "training/launch/rank_host.h"

namespace geminid::trainer {

// The first host has the first rank: its word counts for all of them. When its state of a handover
// is whole, what ranks have left at the others for the same handover is whole, too. They hear that
// before the next ranks start, and when the state is needed no more. Until then hosts without ranks
// stay, for a run that goes back to the number of ranks before.
class HostList final : public RankHost {
 public:
  struct Options {
    std::vector<HostSlots> hosts;
    // Begins to make a host ready, whose destruction ends that. With a request: for ranks that are
    // to come while the run trains, with what they will have there.
    std::function<absl::StatusOr<std::shared_ptr<RankHost>>(
        const HostSlots& host, const std::optional<MoveRequest>& joins)>
        reach{};
    std::function<void(const std::string& line)> say{};
    absl::Duration patience = absl::Seconds(60);  // for a host to become ready
    std::function<absl::Time()> now{};            // null: base::MonotonicNow
  };
  explicit HostList(Options options);

  // Gets to the hosts of so many ranks. Errors name each that is not ready, and say why.
  absl::Status Connect(int ranks);
  // The hosts of the last start that have failed.
  std::set<std::string> lost() const;

  std::string name() const override { return options_.hosts.front().name; }
  std::string AddressOfFirst(int ranks) const override;
  absl::Status Start(const std::vector<RankStart>& starts) override;
  std::vector<RankState*> ranks() override;
  void Signal(int signal) override;
  void AddTo(std::vector<pollfd>* fds) const override;
  absl::Time look_by() const override;
  void Look(absl::Time now) override;
  absl::Status failure() const override;
  void Leave() override;

  std::optional<Handover> handover() const override;
  std::optional<MoveRequest> wanted() const override;
  void Answer(uint64_t request, const absl::Status& status) override;
  void Tell(const MoveOutcome& outcome) override;
  void BeginToSend() override;
  std::optional<std::string> TakePiece() override;

 private:
  // More ranks, for which hosts join. The ranks wait for the answer while they train.
  struct GrowthRequest {
    uint64_t request = 0;  // 0: there is none
    bool is_answered = false;
    absl::Time give_up_at{};
  };

  // Without them all ranks have ended.
  RankHost* first() const { return hosts_.front().get(); }
  absl::Time Now() const;
  void FollowGrowthRequest();
  absl::Status Invite(const MoveRequest& wanted);
  void AwaitInvited();
  void LetGo();

  const Options options_;
  const HostSpread spread_;
  std::vector<std::shared_ptr<RankHost>> hosts_;  // of the list; null: not connected
  size_t used_ = 0;                               // so many have ranks
  bool is_adopted_ = false;                       // by the others, the state of the first host
  GrowthRequest growth_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_LIST_H_
