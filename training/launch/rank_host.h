// The launcher's interface to a host that ranks run on, whether this host or another one.
#ifndef GEMINID_TRAINING_LAUNCH_RANK_HOST_H_
#define GEMINID_TRAINING_LAUNCH_RANK_HOST_H_

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "training/launch/handover_memory.h"
#include "training/launch/rank_state.h"

namespace geminid::trainer {

using Variables = std::vector<std::pair<std::string, std::string>>;

struct RankStart {
  int rank = 0;
  std::vector<std::string> arguments;  // the first is the name that it shows
  Variables environment;               // added to the host's own
};

// What the host's daemon is told of a request for a move, while the job has no ranks there.
struct MoveOutcome {
  uint64_t request = 0;
  std::string state{};  // taken: it is under way; done or refused
  std::string message{};
};

class RankHost {
 public:
  virtual ~RankHost() = default;

  // How other hosts and people call it; empty: this one.
  virtual std::string name() const = 0;

  // Starts these ranks. Those of an earlier start have all ended.
  virtual absl::Status Start(const std::vector<RankStart>& starts) = 0;
  // Of the last start, in its order. They change in Look() alone.
  virtual std::vector<RankState*> ranks() = 0;
  // To those that run.
  virtual void Signal(int signal) = 0;

  // To poll: Look() has something to do when one is ready, and at that time.
  virtual void AddTo(std::vector<pollfd>* fds) const = 0;
  virtual absl::Time look_by() const { return absl::InfiniteFuture(); }
  virtual void Look(absl::Time now) = 0;

  // Whether ranks can be started, and why there will not be any. Both change in Look().
  virtual bool ready() const { return true; }
  virtual absl::Status failure() const { return absl::OkStatus(); }
  // After a failure: none of the ranks that were started there runs any more after this time. Until
  // then they may, as nobody can reach them.
  virtual absl::Time ends_by() const { return absl::InfinitePast(); }
  // Says in the failure that it took too long to become ready.
  virtual void GiveUp(absl::Duration) {}
  // The run has left it, or will not come: nothing is to be done there any more.
  virtual void Leave() {}

  // --- a run whose ranks are all here, and which may go on elsewhere ---

  // The state that ranks have left here, whole; nothing: there is none, or it is needed no more.
  virtual std::optional<Handover> handover() const { return std::nullopt; }
  // Where its ranks want to go on; nothing: here.
  virtual std::optional<MoveRequest> wanted() const { return std::nullopt; }
  // To what they want, as HandoverMemory::Answer.
  virtual void Answer(uint64_t, const absl::Status&) {}
  virtual void Tell(const MoveOutcome&) {}

  // The state goes out in pieces, from its begin after each BeginToSend(). Nothing: the next piece
  // is not here yet.
  virtual void BeginToSend() {}
  virtual std::optional<std::string> TakePiece() { return std::nullopt; }
  // The pieces of another host come in, in order, while it takes more. When all are here and their
  // checksum is right, they are this host's handover(), with the number that it had.
  virtual void BeginToReceive(const Handover&) {}
  virtual bool takes_piece() const { return false; }
  virtual void AddPiece(const std::string&) {}
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RANK_HOST_H_
