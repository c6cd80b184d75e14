// The host that all ranks of a run are on, and the run's moves to other hosts.
#ifndef GEMINID_TRAINING_LAUNCH_RUN_PLACE_H_
#define GEMINID_TRAINING_LAUNCH_RUN_PLACE_H_

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "training/launch/handover_memory.h"
#include "training/launch/rank_host.h"

namespace geminid::trainer {

// Ranks ask to go on at another host (RankHost::wanted). While they train, this class makes that
// host ready and answers them. After the ranks have left their state, it copies the state there.
// The old host retains the state until the ranks at the new host do not need it any more. Until
// then, GoTo can return to the old host.
class RunPlace {
 public:
  struct Options {
    // Begins to make a host ready for the request. Destroying the host ends this. Null: the run
    // cannot move.
    std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> reach{};
    std::function<void(const std::string& line)> say{};
    absl::Duration patience = absl::Seconds(60);  // for the host to become ready
    std::function<absl::Time()> now{};            // null: base::MonotonicNow
  };
  // The run begins on `first`, whose name here is "".
  RunPlace(std::shared_ptr<RankHost> first, Options options);
  // Tells the requester that the run ends, unless it was told an outcome.
  ~RunPlace();
  RunPlace(const RunPlace&) = delete;
  RunPlace& operator=(const RunPlace&) = delete;

  RankHost* host() const { return at_.host.get(); }

  // Adds the descriptors to poll, together with those of host() while it has ranks. Look() has work
  // when one is ready, and at look_by().
  void AddTo(std::vector<pollfd>* fds) const;
  absl::Time look_by() const;
  void Look();

  // Called when all ranks have ended. The next ranks are to start at the host `name`; `why` says
  // why the last ranks failed, and is empty if they did not. While carries() is true, Look() copies
  // the state. After that, status() says whether host() is the host `name`.
  void GoTo(const std::string& name, const std::string& why);
  bool carries() const { return carried_.has_value(); }
  // Whether the next ranks must wait: the state is still being copied, or ranks of a lost host may
  // still run.
  bool waits() const { return carries() || Now() < free_at_; }
  const absl::Status& status() const { return status_; }
  // Whether a person has ended the job while it had no ranks at the old host. A state that was
  // being copied is given back at the new host, and carries() is false.
  bool job_ended() const { return job_ended_; }

 private:
  struct Stop {
    std::shared_ptr<RankHost> host;
    std::string name;
  };

  absl::Time Now() const;
  void Say(const std::string& words) const;
  void Follow();
  void Prepare(const MoveRequest& wanted);
  void Answer(const absl::Status& status);
  void GiveUpDestination();
  void Carry();
  void FailToCarry(const absl::Status& why);
  void Arrive();
  void FollowArrival();
  void TellOrigin(const std::string& state, const std::string& message);
  void KeepAsking();
  void EndIfAsked();

  const Options options_;
  Stop at_;
  std::optional<Stop> destination_;  // becomes ready, is ready, or receives the state
  std::optional<Stop> origin_;       // the old host, while it retains the state
  absl::Time give_up_at_;
  uint64_t wanted_ = 0;  // the request of destination_, or one that was refused
  bool is_answered_ = false;
  Handover move_;                    // the last handover to another host
  std::optional<uint64_t> carried_;  // bytes of the state that were copied
  absl::Time followed_at_;  // when the first step at the new host was done; the past: not yet
  absl::Time told_at_;
  absl::Time free_at_ = absl::InfinitePast();
  absl::Status status_;
  bool job_ended_ = false;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RUN_PLACE_H_
