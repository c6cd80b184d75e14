#include "collectives/tcp/member.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/deadline.h"
#include "base/loopback.h"
#include "base/start_thread.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/tcp/heartbeat_monitor.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {

absl::StatusOr<std::shared_ptr<Member>> Member::Join(int rank, int world_size, TcpOptions options) {
  std::shared_ptr<Member> member(new Member(rank, world_size, std::move(options)));
  GEMINID_RETURN_IF_ERROR(member->Connect());
  return member;
}

absl::Status Member::Connect() {
  const base::Deadline deadline = base::Deadline::In(options_.connect_timeout);
  uint16_t port = options_.port;
  if (rank_ == 0) {
    GEMINID_ASSIGN_OR_RETURN(port, Serve());
  }
  auto socket = DialTcp(options_.host, port, deadline);
  if (absl::IsDeadlineExceeded(socket.status())) {
    return absl::DeadlineExceededError(
        absl::StrCat("cannot reach rank 0: ", socket.status().message(),
                     "; check MASTER_ADDR, MASTER_PORT and that rank 0 runs"));
  }
  if (!socket.ok()) return socket.status();
  line_.emplace(*std::move(socket));
  GEMINID_ASSIGN_OR_RETURN(peer_listener_,
                           PeerListener::Open(options_.host, options_.interface_address));
  stop_ = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Run(); }));
  GEMINID_RETURN_IF_ERROR(SayHello());
  return AwaitWelcome(deadline);
}

absl::StatusOr<uint16_t> Member::Serve() {
  base::UniqueFd& listener = options_.listener;
  if (!listener.valid()) {
    GEMINID_ASSIGN_OR_RETURN(listener, ListenTcp(options_.host, options_.port));
  }
  GEMINID_ASSIGN_OR_RETURN(const uint16_t port, PortOf(listener.get()));
  GEMINID_ASSIGN_OR_RETURN(server_, CoordinatorServer::Start(std::move(listener), world_size_,
                                                             options_.job, options_.silence));
  return port;
}

absl::Status Member::SayHello() {
  RankAddress rank_address{.address = options_.interface_address,
                           .port = peer_listener_->port(),
                           .rank_0 = PeerAddress(line_->fd()),
                           .machine = options_.machine};
  if (rank_address.address.empty()) {
    rank_address.address = LocalAddress(line_->fd());
    if (base::IsLoopback(rank_address.address)) rank_address.address.clear();
  }
  return line_->Send(
      {.type = FrameType::kHello,
       .rank = rank_,
       .number = world_size_,
       .key = options_.job,
       .value = absl::StrCat(kProtocol, "\n", EncodeRankAddresses({&rank_address, 1}))});
}

Member::~Member() {
  if (!thread_.joinable()) return;
  (void)line_->Send({.type = FrameType::kBye, .rank = rank_});
  (void)::eventfd_write(stop_.get(), 1);
  thread_.join();
}

absl::Status Member::AwaitWelcome(const base::Deadline& deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.time(), [&] { return !welcome_.empty() || !broken_.ok(); });
  if (!welcome_.empty()) {
    auto rank_addresses = DecodeRankAddresses(welcome_);
    if (!rank_addresses.has_value() || rank_addresses->size() != static_cast<size_t>(world_size_)) {
      return absl::InternalError("rank 0 did not send the addresses of all ranks");
    }
    rank_addresses_ = *std::move(rank_addresses);
    return absl::OkStatus();
  }
  if (!broken_.ok()) return broken_;
  const std::string timeout = absl::FormatDuration(options_.connect_timeout);
  if (server_ == nullptr) {
    return absl::DeadlineExceededError(absl::StrFormat(
        "rank 0 is there, but not all ranks came within %s (rank %d waited)", timeout, rank_));
  }
  return absl::DeadlineExceededError(
      absl::StrFormat("%s of %d did not come to the rendezvous within %s",
                      NameRanks(server_->missing_ranks()), world_size_, timeout));
}

absl::Status Member::health() const {
  std::lock_guard lock(mutex_);
  return broken_;
}

void Member::ReportFailure(const std::string& group, const absl::Status& status) {
  (void)line_->Send({.type = FrameType::kFailure,
                     .rank = rank_,
                     .number = static_cast<int32_t>(status.code()),
                     .key = group,
                     .value = std::string(status.message())});
}

void Member::ReportLeave(const std::string& group) {
  (void)line_->Send({.type = FrameType::kLeave, .rank = rank_, .key = group});
}

void Member::Run() {
  constexpr int kCoordinator = 0;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  HeartbeatMonitor heartbeats(options_.silence, now());
  for (;;) {
    pollfd polls[] = {{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                      // After the coordinator left, only stop_ matters: poll skips -1.
                      {.fd = coordinator_left_ ? -1 : line_->fd(), .events = POLLIN, .revents = 0}};
    const int wait = coordinator_left_ ? -1 : heartbeats.MillisecondsLeft(now());
    if (::poll(polls, 2, wait) < 0 && errno != EINTR) return;
    if (polls[0].revents != 0) return;
    if (coordinator_left_) continue;
    if (heartbeats.Turn(now())) line_->SendBeat(rank_);
    if (polls[1].revents != 0) {
      // Begins when the coordinator begins to serve; connecting has a timeout of its own.
      heartbeats.Heard(kCoordinator);
      if (!Receive()) Lose({.rank = 0});
    }
    if (coordinator_left_ || heartbeats.Silent().empty()) continue;
    Lose({.rank = 0, .silence = options_.silence, .address = PeerAddress(line_->fd())});
    line_->HangUp();
  }
}

bool Member::Receive() {
  std::vector<Frame> frames;
  const bool hears = line_->Receive(&frames);
  for (const Frame& frame : frames) Handle(frame);
  return hears;
}

void Member::Handle(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kWelcome:
    case FrameType::kRefused: {
      std::lock_guard lock(mutex_);
      if (frame.type == FrameType::kWelcome) welcome_ = frame.value;
      if (frame.type == FrameType::kRefused) {
        broken_ = absl::InvalidArgumentError(
            absl::StrFormat("rank 0 refused rank %d: %s", rank_, frame.value));
      }
      changed_.notify_all();
      return;
    }
    case FrameType::kFailure: {
      const absl::Status status(static_cast<absl::StatusCode>(frame.number), frame.value);
      if (!status.ok()) events_.Failed(frame.key, status);
      return;
    }
    case FrameType::kLeave:
      return events_.Left(frame.key, frame.rank);
    case FrameType::kDeath:
      return RecordDeath({.rank = frame.rank,
                          .silence = absl::Milliseconds(frame.number),
                          .address = frame.value});
    case FrameType::kBye: {
      coordinator_left_ = true;
      std::lock_guard lock(mutex_);
      if (broken_.ok()) broken_ = LeftError(0);
      changed_.notify_all();
      return;
    }
    default:
      return;  // only ranks send the other types
  }
}

void Member::Lose(const RankDeath& how) {
  const bool expected = coordinator_left_;
  coordinator_left_ = true;
  if (!expected) RecordDeath(how);
}

void Member::RecordDeath(const RankDeath& death) {
  events_.Died(death);
  std::lock_guard lock(mutex_);
  if (broken_.ok()) broken_ = DeathError(death);
  changed_.notify_all();
}

}  // namespace geminid::collectives
