#include "training/launch/host_agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/system_error.h"
#include "base/unique_fd.h"
#include "training/launch/host_frames.h"
#include "training/launch/local_host.h"

namespace geminid::trainer {
namespace {

// The ranks' output stays in their pipes while so much waits for the launcher.
constexpr size_t kMaxBacklogBytes = 1 << 20;
constexpr size_t kReadBytes = 64 * 1024;

std::pair<std::string, std::string> Split(const std::string& entry) {
  const size_t equals = std::min(entry.find('='), entry.size());
  return {entry.substr(0, equals), entry.substr(std::min(equals + 1, entry.size()))};
}

class HostAgent {
 public:
  explicit HostAgent(const HostAgentOptions& options)
      : options_(options), in_(options.in_fd), out_(options.out_fd) {
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);  // the launcher may end while we write
    sigprocmask(SIG_BLOCK, &pipe, &signal_mask_);
    fcntl(out_.get(), F_SETFL, fcntl(out_.get(), F_GETFL) | O_NONBLOCK);
  }
  ~HostAgent() { sigprocmask(SIG_SETMASK, &signal_mask_, nullptr); }

  absl::Status Run() {
    GEMINID_ASSIGN_OR_RETURN(const ProgramVersion version, OwnVersion());
    unsent_ = GreetingOf(version);
    while (!over_) {
      Flush();
      Wait();
      // What arrives before this time does not count as silence, even if it is read late.
      const absl::Time now = base::MonotonicNow();
      GEMINID_RETURN_IF_ERROR(Read());
      if (host_ == nullptr) continue;
      if (unsent_.size() < kMaxBacklogBytes) Report(now);
      if (now - beat_at_ >= kBeatInterval) {
        beat_at_ = now;
        Send({.type = HostFrameType::kBeat});
      }
      if (now - heard_at_ > silence_) {
        return absl::UnavailableError(absl::StrCat(
            "nothing was heard for ", absl::FormatDuration(silence_),
            " from the geminid-train that started this host's ranks; they were ended"));
      }
    }
    return absl::OkStatus();
  }

 private:
  void Send(const HostFrame& frame) { unsent_ += Encode(frame); }

  void Flush() {
    while (!unsent_.empty()) {
      const ssize_t count = write(out_.get(), unsent_.data(), unsent_.size());
      if (count > 0) {
        unsent_.erase(0, static_cast<size_t>(count));
      } else if (errno != EINTR) {
        over_ = over_ || errno != EAGAIN;
        return;
      }
    }
  }

  void Wait() {
    std::vector<pollfd> fds = {{in_.get(), POLLIN, 0}};
    if (!unsent_.empty()) fds.push_back({out_.get(), POLLOUT, 0});
    if (host_ != nullptr && unsent_.size() < kMaxBacklogBytes) host_->AddTo(&fds);
    const absl::Duration wait = host_ == nullptr ? absl::Hours(1) : kBeatInterval;
    poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(wait)));
  }

  // Reads no longer than until the next beat, however much arrives.
  absl::Status Read() {
    pollfd ready = {in_.get(), POLLIN, 0};
    const absl::Time until = base::MonotonicNow() + kBeatInterval;
    std::vector<char> buffer(kReadBytes);
    while (!over_ && base::MonotonicNow() < until && poll(&ready, 1, 0) > 0) {
      const ssize_t count = read(in_.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      over_ = over_ || count <= 0;
      if (count <= 0) break;
      heard_at_ = base::MonotonicNow();
      reader_.Append(std::string(buffer.data(), static_cast<size_t>(count)));
      for (;;) {
        GEMINID_ASSIGN_OR_RETURN(const std::optional<HostFrame> frame, reader_.Next());
        if (!frame.has_value()) break;
        GEMINID_RETURN_IF_ERROR(Handle(*frame));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Handle(const HostFrame& frame) {
    absl::Status status;
    switch (frame.type) {
      case HostFrameType::kPrepare:
        status = Prepare(frame);
        break;
      case HostFrameType::kStart:
        status = Start(frame);
        break;
      case HostFrameType::kSignal: {
        GEMINID_ASSIGN_OR_RETURN(const int signal, FieldReader(frame).Number());
        if (host_ != nullptr) host_->Signal(signal);
        break;
      }
      default:
        if (host_ != nullptr) status = HandleState(frame);
        break;
    }
    if (!status.ok()) {
      Send({.type = HostFrameType::kRefused,
            .fields = {absl::StrCat(status.raw_code()), std::string(status.message())}});
    }
    return absl::OkStatus();
  }

  // That ranks hand over.
  absl::Status HandleState(const HostFrame& frame) {
    FieldReader fields(frame);
    switch (frame.type) {
      case HostFrameType::kFetch: {
        GEMINID_ASSIGN_OR_RETURN(const int more, fields.Number());
        GEMINID_ASSIGN_OR_RETURN(const std::string anew, fields.Text());
        if (!anew.empty()) host_->BeginToSend();
        to_send_ = anew.empty() ? to_send_ + more : more;
        break;
      }
      case HostFrameType::kReceive: {
        GEMINID_ASSIGN_OR_RETURN(const std::optional<Handover> handover,
                                 HandoverFrom(frame.fields, base::MonotonicNow()));
        if (handover.has_value()) host_->BeginToReceive(*handover);
        break;
      }
      case HostFrameType::kAdopt: {
        GEMINID_ASSIGN_OR_RETURN(const std::optional<Handover> handover,
                                 HandoverFrom(frame.fields, base::MonotonicNow()));
        host_->Adopt(handover);
        break;
      }
      case HostFrameType::kPiece: {
        GEMINID_ASSIGN_OR_RETURN(const std::string piece, fields.Text());
        host_->AddPiece(piece);
        break;
      }
      case HostFrameType::kAnswer: {
        GEMINID_ASSIGN_OR_RETURN(const uint64_t request, fields.Count());
        GEMINID_ASSIGN_OR_RETURN(const int code, fields.Number());
        GEMINID_ASSIGN_OR_RETURN(const std::string message, fields.Text());
        host_->Answer(request, absl::Status(static_cast<absl::StatusCode>(code), message));
        break;
      }
      case HostFrameType::kTell: {
        MoveOutcome outcome;
        GEMINID_ASSIGN_OR_RETURN(outcome.request, fields.Count());
        GEMINID_ASSIGN_OR_RETURN(outcome.state, fields.Text());
        GEMINID_ASSIGN_OR_RETURN(outcome.message, fields.Text());
        host_->Tell(outcome);
        break;
      }
      default:
        break;
    }
    return host_->failure();
  }

  absl::Status Prepare(const HostFrame& frame) {
    FieldReader fields(frame);
    HostTask task;
    GEMINID_ASSIGN_OR_RETURN(task.ranks, fields.Number());
    GEMINID_ASSIGN_OR_RETURN(task.ranks_here, fields.Number());
    GEMINID_ASSIGN_OR_RETURN(const int milliseconds, fields.Number());
    GEMINID_ASSIGN_OR_RETURN(const std::string folder, fields.Text());
    GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> variables, fields.List());
    GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> move, fields.List());
    GEMINID_ASSIGN_OR_RETURN(task.move, MoveFrom(move));
    task.arguments = fields.Rest();
    if (chdir(folder.c_str()) != 0) {
      return base::SystemError(errno, "chdir", absl::StrCat("the folder of the run, ", folder));
    }
    for (const std::string& entry : variables) {
      const auto [name, value] = Split(entry);
      setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
    }
    GEMINID_ASSIGN_OR_RETURN(HostReady ready, options_.prepare(task));
    auto host =
        std::make_unique<LocalHost>(options_.program, std::move(ready.environment), signal_mask_);
    GEMINID_RETURN_IF_ERROR(host->MakeHandover(ready.share));
    if (task.move) GEMINID_RETURN_IF_ERROR(host->Reserve(task.move->state_bytes));
    host->SetTeller(options_.teller);
    host_ = std::move(host);
    silence_ = absl::Milliseconds(milliseconds);
    heard_at_ = base::MonotonicNow();
    Send({.type = HostFrameType::kReady});
    return absl::OkStatus();
  }

  absl::Status Start(const HostFrame& frame) {
    if (host_ == nullptr) return absl::FailedPreconditionError("a rank before the host was ready");
    if (!frame.fields.empty()) {
      FieldReader fields(frame);
      RankStart start;
      GEMINID_ASSIGN_OR_RETURN(start.rank, fields.Number());
      GEMINID_ASSIGN_OR_RETURN(start.ranks, fields.Number());
      GEMINID_ASSIGN_OR_RETURN(const std::vector<std::string> variables, fields.List());
      for (const std::string& entry : variables) start.environment.push_back(Split(entry));
      start.arguments = fields.Rest();
      starts_.push_back(std::move(start));
      return absl::OkStatus();
    }
    const absl::Status started = host_->Start(std::exchange(starts_, {}));
    reported_.ended.assign(host_->ranks().size(),
                           false);  // ranks that ran before an error, too
    GEMINID_RETURN_IF_ERROR(started);
    for (const RankState* rank : host_->ranks()) {
      Send({.type = HostFrameType::kStarted,
            .fields = {absl::StrCat(rank->rank()), absl::StrCat(rank->pid())}});
    }
    return absl::OkStatus();
  }

  void Report(absl::Time now) {
    host_->Look(now);
    ReportState();
    const std::vector<RankState*> ranks = host_->ranks();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const std::string number = absl::StrCat(ranks[i]->rank());
      const std::string words = ranks[i]->TakeNewWords();
      if (!words.empty()) Send({.type = HostFrameType::kWords, .fields = {number, words}});
      if (ranks[i]->running() || reported_.ended[i]) continue;
      reported_.ended[i] = true;
      Send({.type = HostFrameType::kEnded,
            .fields = {number, absl::StrCat(*ranks[i]->wait_status()),
                       ranks[i]->said_done() ? "done" : ""}});
    }
  }

  // Called before the ends of ranks are reported, so that the launcher knows of their state first.
  void ReportState() {
    if (std::optional<Handover> handover = host_->handover(); handover != reported_.handover) {
      Send({.type = HostFrameType::kHandover, .fields = TextsOf(handover, base::MonotonicNow())});
      reported_.handover = std::move(handover);
    }
    if (std::optional<MoveRequest> wanted = host_->wanted(); wanted != reported_.wanted) {
      Send({.type = HostFrameType::kWanted, .fields = TextsOf(wanted)});
      reported_.wanted = std::move(wanted);
    }
    if (host_->job_ended() && !std::exchange(reported_.job_ended, true)) {
      Send({.type = HostFrameType::kJobEnded});
    }
    while (to_send_ > 0 && unsent_.size() < kMaxBacklogBytes) {
      const std::optional<std::string> piece = host_->TakePiece();
      if (!piece.has_value()) break;
      --to_send_;
      Send({.type = HostFrameType::kPiece, .fields = {*piece}});
    }
  }

  // What the launcher was told.
  struct ReportedState {
    std::vector<bool> ended;  // by the rank's index on this host
    std::optional<Handover> handover;
    std::optional<MoveRequest> wanted;
    bool job_ended = false;
  };

  const HostAgentOptions& options_;
  const base::UniqueFd in_;
  const base::UniqueFd out_;
  sigset_t signal_mask_;
  HostFrameReader reader_;
  std::string unsent_;
  std::unique_ptr<LocalHost> host_;  // null before kPrepare
  std::vector<RankStart> starts_;
  ReportedState reported_;
  int to_send_ = 0;  // pieces of state that the launcher waits for
  absl::Duration silence_ = absl::InfiniteDuration();
  absl::Time heard_at_;
  absl::Time beat_at_;
  bool over_ = false;
};

}  // namespace

absl::Status RunHostAgent(const HostAgentOptions& options) { return HostAgent(options).Run(); }

}  // namespace geminid::trainer
