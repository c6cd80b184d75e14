// The host that all ranks of a run are on, and its way to another one.
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

// The ranks ask to go on at another host (RankHost::wanted). While they train, that host is made
// ready, and they are answered. When they have left their state for it, the state is carried there.
// The host before keeps it until the ranks there have no more need of it; until then GoTo leads
// back.
class RunPlace {
 public:
  struct Options {
    // Begins to make the host ready for what is wanted; who destroys it ends that. Null: the run
    // stays.
    std::function<absl::StatusOr<std::shared_ptr<RankHost>>(const MoveRequest&)> reach{};
    std::function<void(const std::string& line)> say{};
    absl::Duration patience = absl::Seconds(60);  // for the host to become ready
    std::function<absl::Time()> now{};            // null: base::MonotonicNow
  };
  // `first` is where the run begins, under the name "".
  RunPlace(std::shared_ptr<RankHost> first, Options options);
  // Whoever asked is told that the run ends, if nothing was told before.
  ~RunPlace();
  RunPlace(const RunPlace&) = delete;
  RunPlace& operator=(const RunPlace&) = delete;

  RankHost* host() const { return at_.host.get(); }

  // To poll, beside host() with ranks on it: Look() has something to do when one is ready, and at
  // that time.
  void AddTo(std::vector<pollfd>* fds) const;
  absl::Time look_by() const;
  void Look();

  // When all ranks have ended: the next ones are to start there, and `why` the last ones failed, if
  // they did. Look() carries the state while carries() says so; then status() says whether host()
  // is that host.
  void GoTo(const std::string& name, const std::string& why);
  bool carries() const { return carried_.has_value(); }
  // Whether the next ranks must not start yet: the state is on its way, or ranks that were lost
  // with a host may still run there.
  bool waits() const { return carries() || Now() < free_at_; }
  const absl::Status& status() const { return status_; }

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

  const Options options_;
  Stop at_;
  std::optional<Stop> destination_;  // that is made ready, is ready, or gets the state
  std::optional<Stop> origin_;       // still has the state
  absl::Time give_up_at_;
  uint64_t wanted_ = 0;  // the request for which the destination is, or was refused
  bool is_answered_ = false;
  Handover move_;                    // the last that was to another host
  std::optional<uint64_t> carried_;  // bytes of it
  absl::Time followed_at_;           // its first step there was done; the past: it was not
  absl::Time told_at_;
  absl::Time free_at_ = absl::InfinitePast();
  absl::Status status_;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RUN_PLACE_H_
