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
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/shm/segment.h"
#include "collectives/shm/seqpacket.h"

namespace geminid::collectives {
namespace {

using Look = std::function<absl::Status()>;

constexpr uint32_t kMagic = 0x53524d47;  // "GMRS"
constexpr uint32_t kVersion = 3;
constexpr int kPollMilliseconds = 50;  // between two looks

// From a rank to rank 0, with its pidfd.
struct Hello {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  int32_t rank = 0;
  int32_t world_size = 0;
};

// From rank 0: accepted with the memory and the pidfds, or refused with the reason. With a code:
// all are here, but rank 0 has no memory for them.
struct Answer {
  uint32_t magic = kMagic;
  uint32_t accepted = 0;
  int32_t code = 0;  // an absl::StatusCode
  char reason[1012] = {};
};

Answer Refusal(absl::StatusCode code, absl::string_view reason) {
  Answer answer{.code = static_cast<int32_t>(code)};
  std::memcpy(answer.reason, reason.data(), std::min(reason.size(), sizeof(answer.reason) - 1));
  return answer;
}

base::UniqueFd OwnProcess() {
  return base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
}

absl::StatusOr<base::UniqueFd> Duplicated(int fd) {
  base::UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return absl::ErrnoToStatus(errno, "F_DUPFD_CLOEXEC");
  return copy;
}

// Rank 0's side: collects the ranks, then tells them all.
class Host {
 public:
  Host(std::string name, int world_size)
      : name_(std::move(name)),
        sockets_(static_cast<size_t>(world_size)),
        processes_(static_cast<size_t>(world_size)) {}

  absl::StatusOr<Meeting> Run(const absl::StatusOr<int>& segment_fd, absl::Duration timeout,
                              const Look& look) {
    const base::Deadline deadline = base::Deadline::In(timeout);
    auto listener = ListenAbstract(name_, kMaxShmRanks);
    if (!listener.ok()) return listener.status();
    processes_[0] = OwnProcess();
    if (!processes_[0].valid()) return absl::ErrnoToStatus(errno, "pidfd_open");
    while (!Missing().empty()) {
      if (deadline.Passed()) return segment_fd.ok() ? Late(timeout) : segment_fd.status();
      if (look) GEMINID_RETURN_IF_ERROR(look());
      Wait(listener->get(), deadline);
    }
    if (!segment_fd.ok()) return Disappoint(segment_fd.status());
    return Dismiss(*segment_fd);
  }

 private:
  std::vector<int> Missing() const {
    std::vector<int> missing;
    for (size_t r = 0; r < processes_.size(); ++r) {
      if (!processes_[r].valid()) missing.push_back(static_cast<int>(r));
    }
    return missing;
  }

  absl::Status Late(absl::Duration timeout) const {
    const std::string refused =
        refused_.empty() ? "" : absl::StrCat("; refused meanwhile: ", refused_);
    return absl::DeadlineExceededError(absl::StrFormat(
        "%s of %d did not come to the rendezvous of one host within %s%s", NameRanks(Missing()),
        processes_.size(), absl::FormatDuration(timeout), refused));
  }

  void Wait(int listener, const base::Deadline& deadline) {
    std::vector<pollfd> polls = {{.fd = listener, .events = POLLIN, .revents = 0}};
    for (const base::UniqueFd& socket : strangers_) polls.push_back({socket.get(), POLLIN, 0});
    for (const base::UniqueFd& socket : sockets_) {
      polls.push_back({socket.get(), POLLIN, 0});  // poll skips -1
    }
    if (::poll(polls.data(), polls.size(), deadline.LeftMilliseconds(kPollMilliseconds)) <= 0) {
      return;
    }
    const size_t strangers = strangers_.size();
    // A rank that hangs up before the others are here has died; its successor may take its place.
    for (size_t r = 0; r < sockets_.size(); ++r) {
      if (polls[1 + strangers + r].revents == 0) continue;
      sockets_[r].Reset();
      processes_[r].Reset();
    }
    for (size_t i = strangers; i-- > 0;) {
      if (polls[1 + i].revents == 0) continue;
      base::UniqueFd socket = std::move(strangers_[i]);
      strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
      Admit(std::move(socket));
    }
    if (polls[0].revents != 0) Accept(listener);
  }

  void Accept(int listener) {
    base::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    // Strangers that never speak are bounded: the oldest gives way.
    if (!socket.valid() || !PeerIsSameUser(socket.get())) return;
    if (strangers_.size() >= kMaxShmRanks) strangers_.erase(strangers_.begin());
    strangers_.push_back(std::move(socket));
  }

  void Admit(base::UniqueFd socket) {
    Hello hello;
    auto fds = ReceiveRecord(socket.get(), std::as_writable_bytes(std::span(&hello, 1)), 1);
    if (!fds.ok()) return;
    const auto world_size = static_cast<int32_t>(sockets_.size());
    std::string reason;
    if (hello.magic != kMagic || hello.version != kVersion || fds->size() != 1) {
      reason = "it speaks another version of the rendezvous";
    } else if (hello.world_size != world_size) {
      reason = absl::StrFormat("it says there are %d ranks, rank 0 says %d", hello.world_size,
                               world_size);
    } else if (hello.rank <= 0 || hello.rank >= world_size) {
      reason = absl::StrFormat("rank %d is not one of the %d others", hello.rank, world_size - 1);
    } else if (processes_[static_cast<size_t>(hello.rank)].valid()) {
      reason = absl::StrFormat("rank %d is already here", hello.rank);
    }
    if (!reason.empty()) return Refuse(socket.get(), reason);
    sockets_[static_cast<size_t>(hello.rank)] = std::move(socket);
    processes_[static_cast<size_t>(hello.rank)] = std::move(fds->front());
  }

  void Refuse(int socket, const std::string& reason) {
    refused_ = reason;
    const Answer answer = Refusal(absl::StatusCode::kOk, reason);
    // It may be gone already; it has its own timeout.
    (void)SendRecord(socket, std::as_bytes(std::span(&answer, 1)), {});
  }

  absl::Status Disappoint(const absl::Status& why) {
    const Answer answer = Refusal(why.code(), why.message());
    for (size_t r = 1; r < sockets_.size(); ++r) {
      (void)SendRecord(sockets_[r].get(), std::as_bytes(std::span(&answer, 1)), {});
    }
    return why;
  }

  absl::StatusOr<Meeting> Dismiss(int segment_fd) {
    std::vector<int> fds = {segment_fd};
    for (const base::UniqueFd& process : processes_) fds.push_back(process.get());
    const Answer answer{.accepted = 1};
    for (size_t r = 1; r < sockets_.size(); ++r) {
      // A rank that died just now is seen by its pidfd, like one that dies later.
      (void)SendRecord(sockets_[r].get(), std::as_bytes(std::span(&answer, 1)), fds);
    }
    auto segment = Duplicated(segment_fd);
    if (!segment.ok()) return segment.status();
    return Meeting{.segment = *std::move(segment), .processes = std::move(processes_)};
  }

  const std::string name_;
  std::vector<base::UniqueFd> sockets_;    // by rank, once admitted
  std::vector<base::UniqueFd> processes_;  // by rank, once admitted
  std::vector<base::UniqueFd> strangers_;  // connected and silent so far
  std::string refused_;
};

absl::Status ErrorOf(const Answer& answer, int rank) {
  // UNAVAILABLE would mean to try again.
  const bool again = answer.code == static_cast<int32_t>(absl::StatusCode::kUnavailable);
  if (answer.code != 0) {
    const auto code = static_cast<absl::StatusCode>(answer.code);
    return absl::Status(again ? absl::StatusCode::kAborted : code,
                        absl::StrCat("rank 0 has no memory for the ranks to share: ",
                                     static_cast<const char*>(answer.reason)));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("rank 0 refused rank %d: %s", rank, answer.reason));
}

// One attempt of another rank: UNAVAILABLE means try again.
absl::StatusOr<Meeting> Join(const std::string& name, int rank, int world_size,
                             const base::Deadline& deadline, const Look& look) {
  auto socket = ConnectAbstract(name);
  if (!socket.ok()) return socket.status();
  const base::UniqueFd process = OwnProcess();
  if (!process.valid()) return absl::ErrnoToStatus(errno, "pidfd_open");
  const Hello hello{.rank = rank, .world_size = world_size};
  const int fds[] = {process.get()};
  if (!SendRecord(socket->get(), std::as_bytes(std::span(&hello, 1)), fds).ok()) {
    return absl::UnavailableError("rank 0 hung up");
  }
  pollfd poll_entry{.fd = socket->get(), .events = POLLIN, .revents = 0};
  while (::poll(&poll_entry, 1, deadline.LeftMilliseconds(kPollMilliseconds)) <= 0) {
    if (deadline.Passed()) {
      return absl::DeadlineExceededError("rank 0 is there, but some other rank did not come");
    }
    if (look) GEMINID_RETURN_IF_ERROR(look());
  }
  Answer answer;
  auto received =
      ReceiveRecord(socket->get(), std::as_writable_bytes(std::span(&answer, 1)), kMaxShmRanks + 1);
  if (!received.ok()) return received.status();
  if (answer.magic != kMagic || answer.accepted != 1) {
    answer.reason[sizeof(answer.reason) - 1] = '\0';
    return ErrorOf(answer, rank);
  }
  if (received->size() != static_cast<size_t>(world_size) + 1) {
    return absl::InvalidArgumentError("rank 0 sent another number of descriptors");
  }
  Meeting meeting;
  meeting.segment = std::move(received->front());
  std::move(received->begin() + 1, received->end(), std::back_inserter(meeting.processes));
  return meeting;
}

}  // namespace

absl::StatusOr<Meeting> MeetOnHost(const std::string& name, int rank, int world_size,
                                   const absl::StatusOr<int>& segment_fd, absl::Duration timeout,
                                   const Look& look) {
  if (rank == 0) return Host(name, world_size).Run(segment_fd, timeout, look);
  // Nothing announces that an abstract socket begins to listen, so ask at growing intervals.
  constexpr auto kFirstPause = std::chrono::milliseconds(1);
  constexpr auto kLongestPause = std::chrono::milliseconds(32);
  auto pause = kFirstPause;
  const base::Deadline deadline = base::Deadline::In(timeout);
  for (;;) {
    auto meeting = Join(name, rank, world_size, deadline, look);
    if (meeting.ok() || meeting.status().code() != absl::StatusCode::kUnavailable) return meeting;
    if (deadline.Passed()) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "rank 0 did not come to the rendezvous of one host within %s (rank %d waited; %s)",
          absl::FormatDuration(timeout), rank, std::string(meeting.status().message())));
    }
    if (look) GEMINID_RETURN_IF_ERROR(look());
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace geminid::collectives
