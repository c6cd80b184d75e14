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
  int ranks = 1;                       // of the run
  std::vector<std::string> arguments;  // the first is the name that it shows
  Variables environment;               // added to the host's own
};

// An outcome or state of a request to move, for the host's daemon while the job has no ranks there.
struct MoveOutcome {
  uint64_t request = 0;
  std::string state{};  // taken (in progress), done, refused, or ended on the daemon's answer
  std::string message{};
  friend bool operator==(const MoveOutcome&, const MoveOutcome&) = default;
};

class RankHost {
 public:
  virtual ~RankHost() = default;

  // The host's name for other hosts and people; empty: this host.
  virtual std::string name() const = 0;

  // By which so many ranks reach the first of them.
  virtual std::string AddressOfFirst(int) const { return "127.0.0.1"; }

  // Starts these ranks. Those of an earlier start have all ended. Tells each which rank it is, and
  // which of the host's.
  virtual absl::Status Start(const std::vector<RankStart>& starts) = 0;
  // The ranks of the last start, in its order. Only Look() changes them.
  virtual std::vector<RankState*> ranks() = 0;
  // Sends the signal to the ranks that run.
  virtual void Signal(int signal) = 0;

  // Adds the descriptors to poll. Look() has work when one of them is ready, and at look_by().
  virtual void AddTo(std::vector<pollfd>* fds) const = 0;
  virtual absl::Time look_by() const { return absl::InfiniteFuture(); }
  virtual void Look(absl::Time now) = 0;

  // Whether ranks can be started, and why they never can. Look() changes both.
  virtual bool ready() const { return true; }
  virtual absl::Status failure() const { return absl::OkStatus(); }
  // After a failure: the time after which no rank of that host runs any more. Until then ranks may
  // run, because nobody can reach them.
  virtual absl::Time ends_by() const { return absl::InfinitePast(); }
  // Sets the failure: the host was not ready within this time.
  virtual void GiveUp(absl::Duration) {}
  // The run has left the host, or will not come: there is nothing more to do there.
  virtual void Leave() {}

  // --- state that ranks hand over ---

  // The complete state that ranks have left here; nothing: there is none, or it is not needed any
  // more.
  virtual std::optional<Handover> handover() const { return std::nullopt; }
  // As the first host of a run over several has it, before the next ranks start here: what ranks
  // have left here for it is part of it. Nothing: it is needed no more.
  virtual void Adopt(const std::optional<Handover>&) {}

  // --- a run whose ranks are all here, and which may go on elsewhere ---

  // Where its ranks want to go on; nothing: here.
  virtual std::optional<MoveRequest> wanted() const { return std::nullopt; }
  // Answers this request, as HandoverMemory::Answer.
  virtual void Answer(uint64_t, const absl::Status&) {}
  virtual void Tell(const MoveOutcome&) {}
  // Whether the daemon has answered that a person ended the job, which has no ranks there.
  virtual bool job_ended() const { return false; }

  // Sends the state in pieces. BeginToSend() starts at the state's begin. TakePiece() returns
  // nothing while the next piece has not arrived from the host.
  virtual void BeginToSend() {}
  virtual std::optional<std::string> TakePiece() { return std::nullopt; }
  // Receives the pieces of another host in order, while takes_piece() is true. When all pieces are
  // here and their checksum is right, they become this host's handover(), with the same number.
  virtual void BeginToReceive(const Handover&) {}
  virtual bool takes_piece() const { return false; }
  virtual void AddPiece(const std::string&) {}
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_RANK_HOST_H_
