#include "collectives/shm/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/deadline.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/shm/segment.h"
#include "collectives/shm/seqpacket.h"

namespace geminid::collectives {
namespace {

using WaitCheck = std::function<absl::Status()>;

constexpr uint32_t kMagic = 0x53524d47;  // "GMRS"
constexpr uint32_t kVersion = 4;
constexpr int kPollMilliseconds = 50;  // between two checks

// From a rank to rank 0: it has come, with its pidfd; later: it has received the offer. With a
// code: the reason why it cannot.
struct Report {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  int32_t rank = 0;
  int32_t world_size = 0;
  int32_t code = 0;  // an absl::StatusCode
  char reason[1004] = {};
};

// From rank 0: an offer of the memory and the pidfds; the same without them, once all ranks have
// theirs; or a refusal with its reason. With a code: no rank gets anything.
struct Answer {
  uint32_t magic = kMagic;
  uint32_t accepted = 0;
  int32_t code = 0;  // an absl::StatusCode
  char reason[1012] = {};
};

template <size_t n>
void SetReason(absl::string_view reason, char (&to)[n]) {
  std::memcpy(to, reason.data(), std::min(reason.size(), n - 1));
}

Answer Refusal(absl::StatusCode code, absl::string_view reason) {
  Answer answer{.code = static_cast<int32_t>(code)};
  SetReason(reason, answer.reason);
  return answer;
}

absl::StatusOr<base::UniqueFd> OwnProcess() {
  base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!process.valid()) return base::WithLimits(absl::ErrnoToStatus(errno, "pidfd_open"));
  return process;
}

absl::StatusOr<base::UniqueFd> Duplicated(int fd) {
  base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return base::WithLimits(absl::ErrnoToStatus(errno, "F_DUPFD_CLOEXEC"));
  return copy;
}

// Waits for a record, or until its sender closes.
absl::Status AwaitRecord(int socket, const base::Deadline& deadline, const WaitCheck& look,
                         absl::string_view late) {
  pollfd entry{.fd = socket, .events = POLLIN, .revents = 0};
  while (::poll(&entry, 1, deadline.LeftMilliseconds(kPollMilliseconds)) <= 0) {
    if (deadline.Passed()) return absl::DeadlineExceededError(late);
    if (look) GEMINID_RETURN_IF_ERROR(look());
  }
  return absl::OkStatus();
}

// Rank 0's side: collects the ranks, then answers all of them.
class Host {
 public:
  Host(std::string name, int world_size)
      : name_(std::move(name)), members_(static_cast<size_t>(world_size)) {}

  absl::StatusOr<RendezvousResult> Run(const absl::StatusOr<int>& segment_fd,
                                       absl::Duration timeout, const WaitCheck& look) {
    const base::Deadline deadline = base::Deadline::In(timeout);
    GEMINID_ASSIGN_OR_RETURN(listener_, ListenAbstract(name_, kMaxShmRanks));
    GEMINID_ASSIGN_OR_RETURN(members_[0].process, OwnProcess());
    while (!Missing().empty()) {
      if (deadline.Passed()) {
        failure_.Update(segment_fd.status());
        return failure_.ok() ? Late(timeout) : failure_;
      }
      if (look) GEMINID_RETURN_IF_ERROR(look());
      GEMINID_RETURN_IF_ERROR(Wait(deadline));
    }
    if (failure_.ok() && !segment_fd.ok()) {
      Disappoint(segment_fd.status(), "rank 0 has no memory for the ranks to share: ");
    }
    if (failure_.ok()) Offer(*segment_fd, deadline, look);
    if (!failure_.ok()) return failure_;
    return Dismiss();
  }

 private:
  struct Member {
    base::UniqueFd socket{};
    base::UniqueFd process{};  // once admitted
    bool failed = false;       // the rank has come, and knows that the ranks cannot meet

    bool has_come() const { return failed || process.valid(); }
  };

  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (size_t r = 0; r < members_.size(); ++r) {
      if (!members_[r].has_come()) missing.push_back(static_cast<int>(r));
    }
    return missing;
  }

  absl::Status Late(absl::Duration timeout) const {
    const std::string refused =
        refused_.empty() ? "" : absl::StrCat("; refused meanwhile: ", refused_);
    return absl::DeadlineExceededError(absl::StrFormat(
        "%s of %d did not come to the rendezvous of one host within %s; see whether all ranks live "
        "and make the same calls in the same order%s",
        NameRanks(Missing()), members_.size(), absl::FormatDuration(timeout), refused));
  }

  absl::Status Wait(const base::Deadline& deadline) {
    std::vector<pollfd> polls = {{.fd = listener_.get(), .events = POLLIN, .revents = 0}};
    for (const base::UniqueFd& socket : strangers_) polls.push_back({socket.get(), POLLIN, 0});
    for (const Member& member : members_) {
      polls.push_back({member.socket.get(), POLLIN, 0});  // poll skips -1
    }
    if (::poll(polls.data(), polls.size(), deadline.LeftMilliseconds(kPollMilliseconds)) <= 0) {
      return absl::OkStatus();
    }
    const size_t strangers = strangers_.size();
    // A rank that closes before all have come has died; its replacement may take its place.
    for (size_t r = 0; r < members_.size(); ++r) {
      if (polls[1 + strangers + r].revents != 0) members_[r] = Member();
    }
    for (size_t i = strangers; i-- > 0;) {
      if (polls[1 + i].revents == 0) continue;
      base::UniqueFd socket = std::move(strangers_[i]);
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
      Admit(std::move(socket));
    }
    return polls[0].revents != 0 ? Accept() : absl::OkStatus();
  }

  absl::Status Accept() {
    base::UniqueFd socket(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid() && (errno == EMFILE || errno == ENFILE)) {
      if (!failure_.ok()) return failure_;
      Disappoint(base::WithLimits(absl::ErrnoToStatus(
          errno, absl::StrCat("rank 0 cannot meet ", members_.size(), " ranks"))));
    }
    // Connections that never speak are limited: the oldest one is closed.
    if (!socket.valid() || !PeerIsSameUser(socket.get())) return absl::OkStatus();
    if (strangers_.size() >= kMaxShmRanks) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(socket));
    return absl::OkStatus();
  }

  void Admit(base::UniqueFd socket) {
    Report report;
    auto fds = ReceiveRecord(socket.get(), std::as_writable_bytes(std::span(&report, 1)), 1);
    if (absl::IsUnavailable(fds.status())) return;
    if (absl::IsResourceExhausted(fds.status())) Disappoint(fds.status(), "rank 0: ");
    const auto world_size = static_cast<int32_t>(members_.size());
    const bool failed = report.code != 0 || !failure_.ok();
    std::string reason;
    const bool brings_itself = fds.ok() && fds->size() == 1;
    if (report.magic != kMagic || report.version != kVersion || !(brings_itself || failed)) {
      reason = "it speaks another version of the rendezvous";
    } else if (report.world_size != world_size) {
      reason = absl::StrFormat("it says there are %d ranks, rank 0 says %d", report.world_size,
                               world_size);
    } else if (report.rank <= 0 || report.rank >= world_size) {
      reason = absl::StrFormat("rank %d is not one of the %d others", report.rank, world_size - 1);
    } else if (members_[static_cast<size_t>(report.rank)].process.valid()) {
      reason = absl::StrFormat("rank %d is already here", report.rank);
    }
    if (!reason.empty()) return Refuse(socket.get(), reason);
    Member& member = members_[static_cast<size_t>(report.rank)];
    member.socket = std::move(socket);
    if (!failed) {
      member.process = std::move(fds->front());
    } else {
      Disappoint(report.code != 0 ? FailureOf(report) : failure_);
    }
  }

  static absl::Status FailureOf(const Report& report) {
    return absl::Status(
        static_cast<absl::StatusCode>(report.code),
        absl::StrCat(
            "rank ", report.rank, ": ",
            absl::string_view(report.reason, ::strnlen(report.reason, sizeof(report.reason)))));
  }

  void Refuse(int socket, const std::string& reason) {
    refused_ = reason;
    // The peer may be gone already; it has its own timeout.
    Tell(socket, Refusal(absl::StatusCode::kOk, reason));
  }

  static void Tell(int socket, const Answer& answer) {
    (void)SendRecord(socket, std::as_bytes(std::span(&answer, 1)), {});
  }

  // Records the first reason why the ranks cannot meet. Ranks that are here are told now, later
  // ones when they come.
  void Disappoint(const absl::Status& why, absl::string_view before = "") {
    if (failure_.ok()) {
      failure_ = why;
      refusal_ = Refusal(why.code(), absl::StrCat(before, why.message()));
    }
    for (size_t r = 1; r < members_.size(); ++r) {
      if (!members_[r].socket.valid()) continue;
      Tell(members_[r].socket.get(), refusal_);
      members_[r] = Member{.failed = true};
    }
  }

  // To one rank after the other, so that few descriptors are in flight at a time: the kernel limits
  // them per user. No rank proceeds before all have theirs.
  void Offer(int segment_fd, const base::Deadline& deadline, const WaitCheck& look) {
    auto segment = Duplicated(segment_fd);
    if (!segment.ok()) return Disappoint(segment.status(), "rank 0: ");
    segment_ = *std::move(segment);
    std::vector<int> fds = {segment_fd};
    for (const Member& member : members_) fds.push_back(member.process.get());
    for (size_t r = 1; r < members_.size() && failure_.ok(); ++r) {
      const absl::Status given = Give(static_cast<int>(r), fds, deadline, look);
      if (!given.ok()) Disappoint(given);
    }
  }

  RendezvousResult Dismiss() {
    RendezvousResult meeting;
    meeting.segment = std::move(segment_);
    for (Member& member : members_) {
      if (member.socket.valid()) Tell(member.socket.get(), Answer{.accepted = 1});
      meeting.processes.push_back(std::move(member.process));
    }
    return meeting;
  }

  // OK also if the rank has just died: its pidfd shows that, as it would later.
  absl::Status Give(int rank, std::span<const int> fds, const base::Deadline& deadline,
                    const WaitCheck& look) {
    const int socket = members_[static_cast<size_t>(rank)].socket.get();
    const Answer offer{.accepted = 1};
    const absl::Status sent = SendRecord(socket, std::as_bytes(std::span(&offer, 1)), fds);
    if (absl::IsResourceExhausted(sent)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("rank 0 meets rank ", rank, ": ", sent.message()));
    }
    if (!sent.ok()) return absl::OkStatus();
    GEMINID_RETURN_IF_ERROR(AwaitRecord(
        socket, deadline, look,
        absl::StrCat("rank ", rank, " came to the rendezvous and does not answer there")));
    Report report;
    const auto taken = ReceiveRecord(socket, std::as_writable_bytes(std::span(&report, 1)), 0);
    return taken.ok() && report.code != 0 ? FailureOf(report) : absl::OkStatus();
  }

  const std::string name_;
  base::UniqueFd listener_;
  std::vector<Member> members_;            // by rank
  std::vector<base::UniqueFd> strangers_;  // connected and silent so far
  std::string refused_;
  base::UniqueFd segment_;
  absl::Status failure_;  // why the ranks cannot meet
  Answer refusal_;        // for failure_
};

absl::Status ErrorOf(Answer answer, int rank) {
  answer.reason[sizeof(answer.reason) - 1] = '\0';
  // UNAVAILABLE would mean a retry.
  const bool again = answer.code == static_cast<int32_t>(absl::StatusCode::kUnavailable);
  if (answer.code != 0) {
    const auto code = static_cast<absl::StatusCode>(answer.code);
    return absl::Status(again ? absl::StatusCode::kAborted : code,
                        static_cast<const char*>(answer.reason));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("rank 0 refused rank %d: %s", rank, answer.reason));
}

// One attempt of another rank to join.
class JoinAttempt {
 public:
  JoinAttempt(int rank, int world_size, const base::Deadline& deadline, const WaitCheck& look)
      : rank_(rank), world_size_(world_size), deadline_(deadline), look_(look) {}

  // UNAVAILABLE means that the caller should retry.
  absl::StatusOr<RendezvousResult> Join(const std::string& name) {
    GEMINID_ASSIGN_OR_RETURN(socket_, ConnectAbstract(name));
    if (absl::Status come = Come(); !come.ok()) return Fail(come);
    auto offer = ReceiveAnswer(kMaxShmRanks + 1);
    if (absl::IsResourceExhausted(offer.status())) return Fail(offer.status());
    if (!offer.ok()) return offer.status();
    if (offer->size() != static_cast<size_t>(world_size_) + 1) {
      return Fail(absl::InvalidArgumentError("rank 0 sent a wrong number of descriptors"));
    }
    (void)Say(absl::OkStatus(), {});
    GEMINID_RETURN_IF_ERROR(ReceiveAnswer(0).status());
    RendezvousResult meeting;
    meeting.segment = std::move(offer->front());
    std::move(offer->begin() + 1, offer->end(), std::back_inserter(meeting.processes));
    return meeting;
  }

 private:
  // Rank 0 may have closed already: its answer says more.
  absl::Status Come() {
    GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd process, OwnProcess());
    const int fds[] = {process.get()};
    const absl::Status said = Say(absl::OkStatus(), fds);
    return absl::IsResourceExhausted(said) ? said : absl::OkStatus();
  }

  absl::Status Say(const absl::Status& status, std::span<const int> fds) {
    Report report{
        .rank = rank_, .world_size = world_size_, .code = static_cast<int>(status.code())};
    SetReason(status.message(), report.reason);
    return SendRecord(socket_.get(), std::as_bytes(std::span(&report, 1)), fds);
  }

  // Tells rank 0 that the other ranks need not wait for this one.
  absl::Status Fail(const absl::Status& why) {
    (void)Say(why, {});
    return why;
  }

  absl::StatusOr<std::vector<base::UniqueFd>> ReceiveAnswer(size_t most_fds) {
    GEMINID_RETURN_IF_ERROR(AwaitRecord(socket_.get(), deadline_, look_,
                                        "rank 0 is there, but another rank is missing"));
    Answer answer;
    auto fds =
        ReceiveRecord(socket_.get(), std::as_writable_bytes(std::span(&answer, 1)), most_fds);
    if (fds.ok() && (answer.magic != kMagic || answer.accepted != 1)) return ErrorOf(answer, rank_);
    return fds;
  }

  const int rank_;
  const int world_size_;
  const base::Deadline& deadline_;
  const WaitCheck& look_;
  base::UniqueFd socket_;
};

}  // namespace

absl::StatusOr<RendezvousResult> MeetOnHost(const std::string& name, int rank, int world_size,
                                            const absl::StatusOr<int>& segment_fd,
                                            absl::Duration timeout, const WaitCheck& look) {
  if (rank == 0) return Host(name, world_size).Run(segment_fd, timeout, look);
  // Nothing announces that an abstract socket begins to listen, so retry at growing intervals.
  constexpr auto kFirstPause = std::chrono::milliseconds(1);
  constexpr auto kLongestPause = std::chrono::milliseconds(32);
  auto pause = kFirstPause;
  const base::Deadline deadline = base::Deadline::In(timeout);
  for (;;) {
    auto meeting = JoinAttempt(rank, world_size, deadline, look).Join(name);
    if (meeting.ok() || meeting.status().code() != absl::StatusCode::kUnavailable) return meeting;
    if (deadline.Passed()) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "rank 0 did not come to the rendezvous of one host within %s (rank %d waited; %s); see "
          "whether rank 0 lives, and whether all ranks make the same calls in the same order",
          absl::FormatDuration(timeout), rank, std::string(meeting.status().message())));
    }
    if (look) GEMINID_RETURN_IF_ERROR(look());
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace geminid::collectives
