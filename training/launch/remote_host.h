// Another host of the run: starts the agent there through a remote shell, and exchanges frames with
// it.
#ifndef GEMINID_TRAINING_LAUNCH_REMOTE_HOST_H_
#define GEMINID_TRAINING_LAUNCH_REMOTE_HOST_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "training/launch/host_file.h"
#include "training/launch/host_frames.h"
#include "training/launch/rank_host.h"

namespace geminid::trainer {

struct RemoteHostOptions {
  std::string name;
  int ranks = 1;       // of the run
  int ranks_here = 1;  // that this host may have
  // Begins the command, behind which come the host and what its shell is to run; none: the agent is
  // started directly, on this host.
  std::vector<std::string> remote_shell{};
  std::string program;                                // the program's path on the host
  ProgramVersion version;                             // the version that the host must have
  std::string folder;                                 // the working folder
  std::vector<std::string> environment{};             // NAME=value
  std::vector<std::string> arguments{};            // of the run, for which the host becomes ready
  std::optional<MoveRequest> move = std::nullopt;  // if the run moves there
  absl::Duration silence = absl::Milliseconds(1200);  // after which the host is lost
};

// Any thread may call Beat(). All other calls are from one thread.
class RemoteHost final : public RankHost {
 public:
  // Starts the remote shell. The shell ends with this object, or when this process dies.
  static absl::StatusOr<std::unique_ptr<RemoteHost>> Start(RemoteHostOptions options);
  ~RemoteHost() override;
  RemoteHost(const RemoteHost&) = delete;
  RemoteHost& operator=(const RemoteHost&) = delete;

  bool ready() const override { return phase_ == Phase::kReady; }
  absl::Status failure() const override { return failure_; }
  absl::Time ends_by() const override { return ends_by_; }
  void GiveUp(absl::Duration waited) override;

  std::string name() const override { return options_.name; }
  absl::Status Start(const std::vector<RankStart>& starts) override;
  std::vector<RankState*> ranks() override;
  void Signal(int signal) override;
  void AddTo(std::vector<pollfd>* fds) const override;
  absl::Time look_by() const override;
  void Look(absl::Time now) override;
  // Ends the agent, and the daemon that it may have started.
  void Leave() override;

  std::optional<Handover> handover() const override { return state_.handover; }
  std::optional<MoveRequest> wanted() const override { return state_.wanted; }
  void Adopt(const std::optional<Handover>& handover) override;
  void Answer(uint64_t request, const absl::Status& status) override;
  void Tell(const MoveOutcome& outcome) override;
  bool job_ended() const override { return state_.job_ended; }
  void BeginToSend() override;
  std::optional<std::string> TakePiece() override;
  void BeginToReceive(const Handover& handover) override;
  bool takes_piece() const override;
  void AddPiece(const std::string& piece) override;

  void Beat();

 private:
  enum class Phase { kGreeting, kPreparing, kReady };
  // The agent's last messages.
  struct State {
    std::optional<Handover> handover;
    std::optional<MoveRequest> wanted;
    std::deque<std::string> pieces;  // that TakePiece() has not taken yet
    bool job_ended = false;
  };

  // The way to the agent. The thread of Beats also uses it.
  struct Outgoing {
    base::UniqueFd to;
    mutable std::mutex mutex{};  // guards all members
    std::string unsent{};
    absl::Time sent_at = absl::InfinitePast();  // time of the last bytes
  };

  RemoteHost(RemoteHostOptions options, pid_t shell, base::UniqueFd to, base::UniqueFd from,
             base::UniqueFd errors);
  void Send(const HostFrame& frame);
  void Flush();  // the caller holds the mutex
  void ReadErrors();
  void ReadFrames(absl::Time now);
  absl::Status OnBytes(const std::string& bytes);
  absl::Status OnGreeting(const ProgramVersion& version);
  absl::Status OnFrame(const HostFrame& frame);
  RankState* RankOf(int rank);
  void Fail(const absl::Status& status);
  // Describes a shell that has closed its output. Waits a moment for the shell's end.
  std::string DescribeShellsEnd();

  const RemoteHostOptions options_;
  pid_t shell_ = -1;
  base::UniqueFd from_;  // closed when the shell closes its end, as is errors_
  base::UniqueFd errors_;
  Phase phase_ = Phase::kGreeting;
  absl::Status failure_;
  std::string lines_;  // the output up to the greeting
  HostFrameReader reader_;
  std::string last_errors_;
  absl::Time heard_at_;
  absl::Time ends_by_ = absl::InfinitePast();
  std::vector<RankState> ranks_;
  State state_;

  Outgoing outgoing_;
};

// Tells all hosts regularly that this process is alive, until its destruction.
class HeartbeatSender {
 public:
  explicit HeartbeatSender(std::vector<RemoteHost*> hosts);
  ~HeartbeatSender();
  HeartbeatSender(const HeartbeatSender&) = delete;
  HeartbeatSender& operator=(const HeartbeatSender&) = delete;

 private:
  std::jthread thread_;
};

// Returns when all hosts are ready. Errors name every host that is not, and say why. Hosts have so
// long for it.
absl::Status AwaitHosts(const std::vector<RankHost*>& hosts, absl::Duration patience);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_REMOTE_HOST_H_
