#include "collectives/gloo/member.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
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
#include "collectives/gloo/tcp.h"

namespace geminid::collectives {
namespace {

constexpr std::chrono::milliseconds kLookInterval{50};

}  // namespace

absl::StatusOr<std::shared_ptr<Member>> Member::Join(MemberOptions options) {
  std::shared_ptr<Member> member(new Member(options.rank, options.world_size, options.silence));
  GEMINID_RETURN_IF_ERROR(member->Connect(std::move(options)));
  return member;
}

absl::Status Member::Connect(MemberOptions options) {
  const base::Deadline deadline = base::Deadline::In(options.connect_timeout);
  uint16_t port = options.port;
  if (rank_ == 0) {
    if (!options.listener.valid()) {
      auto listener = ListenTcp(options.host, port);
      if (!listener.ok()) return listener.status();
      options.listener = *std::move(listener);
    }
    auto listening = PortOf(options.listener.get());
    if (!listening.ok()) return listening.status();
    port = *listening;
    auto server =
        CoordinatorServer::Start(std::move(options.listener), world_size_, options.job, silence_);
    if (!server.ok()) return server.status();
    server_ = *std::move(server);
  }
  auto socket = ConnectTcp(options.host, port, deadline);
  if (!socket.ok()) return socket.status();
  socket_ = *std::move(socket);
  stop_ = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.valid()) return absl::ErrnoToStatus(errno, "eventfd");
  GEMINID_ASSIGN_OR_RETURN(thread_, base::StartThread([this] { Run(); }));
  absl::Status hello = Send({.type = FrameType::kHello,
                             .rank = rank_,
                             .number = world_size_,
                             .key = options.job,
                             .value = kProtocol});
  if (!hello.ok()) return hello;
  GEMINID_RETURN_IF_ERROR(AwaitWelcome(deadline, options.connect_timeout));
  job_ = options.job;
  GEMINID_RETURN_IF_ERROR(ChooseAddress(options.interface_address, deadline));
  return OpenSuccession(deadline);
}

absl::Status Member::OpenSuccession(const base::Deadline& deadline) {
  const auto key = [](int rank) { return absl::StrCat("succession/", rank); };
  GEMINID_ASSIGN_OR_RETURN(succession_, Succession::Open(address_, job_));
  GEMINID_RETURN_IF_ERROR(Set(key(rank_), succession_->own_place()));
  std::vector<std::string> places;
  for (int r = 0; r < world_size_; ++r) {
    GEMINID_ASSIGN_OR_RETURN(std::string place, Get(key(r), deadline));
    places.push_back(std::move(place));
  }
  succession_->SetPlaces(std::move(places));
  return absl::OkStatus();
}

Member::~Member() {
  if (thread_.joinable()) {
    (void)Send({.type = FrameType::kBye, .rank = rank_});
    (void)::eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  socket_.Reset();
}

absl::Status Member::AwaitWelcome(const base::Deadline& deadline, absl::Duration timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.time(), [&] { return welcome_ || !broken_.ok(); });
  if (welcome_) return absl::OkStatus();
  if (!broken_.ok()) return broken_;
  if (server_ == nullptr) {
    return absl::DeadlineExceededError(
        absl::StrFormat("rank 0 is there, but not all ranks came within %s (rank %d waited)",
                        absl::FormatDuration(timeout), rank_));
  }
  return absl::DeadlineExceededError(absl::StrFormat(
      "%s of %d did not come to the rendezvous within %s", NameRanks(server_->missing_ranks()),
      world_size_, absl::FormatDuration(timeout)));
}

// A loopback address only means that this rank is on rank 0's host; ranks elsewhere can reach that
// host at the address by which they reach rank 0.
absl::Status Member::ChooseAddress(const std::string& interface_address,
                                   const base::Deadline& deadline) {
  const auto key = [](int rank) { return absl::StrCat("reaches rank 0 at/", rank); };
  if (rank_ > 0) {
    GEMINID_RETURN_IF_ERROR(Set(key(rank_), PeerAddress(socket_.get())));
  }
  address_ = interface_address.empty() ? LocalAddress(socket_.get()) : interface_address;
  if (!interface_address.empty() || !base::IsLoopback(address_)) return absl::OkStatus();
  for (int r = 1; r < world_size_; ++r) {
    auto reached = Get(key(r), deadline);
    if (!reached.ok()) return reached.status();
    if (base::IsLoopback(*reached)) continue;
    address_ = *reached;
    return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Member::Send(const Frame& frame) {
  if (frame.key.size() > kMaxFieldBytes || frame.value.size() > kMaxFieldBytes) {
    return absl::InvalidArgumentError(
        absl::StrFormat("coordinator: key of %d and value of %d bytes; at most %d each",
                        frame.key.size(), frame.value.size(), kMaxFieldBytes));
  }
  std::lock_guard lock(send_mutex_);
  return SendAll(socket_.get(), Encode(frame));
}

absl::Status Member::Set(const std::string& key, const std::string& value) {
  return Send({.type = FrameType::kSet, .rank = rank_, .key = key, .value = value});
}

absl::StatusOr<std::string> Member::Get(const std::string& key, const base::Deadline& deadline,
                                        const Look& look) {
  absl::Status asked = Send({.type = FrameType::kGet, .rank = rank_, .key = key});
  if (!asked.ok()) return asked;
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return values_.count(key) != 0 || !broken_.ok(); };
  while (!is_over() && !deadline.Passed()) {
    const auto soon = std::chrono::steady_clock::now() + kLookInterval;
    changed_.wait_until(lock, look ? std::min(soon, deadline.time()) : deadline.time(), is_over);
    if (!look || is_over()) continue;
    lock.unlock();
    GEMINID_RETURN_IF_ERROR(look());
    lock.lock();
  }
  const auto value = values_.find(key);
  if (value != values_.end()) {
    std::string result = std::move(value->second);
    values_.erase(value);
    return result;
  }
  if (!broken_.ok()) return broken_;
  return absl::DeadlineExceededError(
      absl::StrFormat("no rank has set \"%s\" in the store in time", key));
}

void Member::Listen(const std::string& group, GroupListener* listener) {
  std::lock_guard lock(listeners_mutex_);
  listeners_[group] = listener;
  const auto failure = failures_.find(group);
  if (failure != failures_.end()) listener->OnFailure(failure->second);
  for (const auto& [rank, death] : dead_) listener->OnDeath(death);
  for (const int rank : leaves_[group]) listener->OnLeave(rank);
}

bool Member::IsDead(int world_rank) const {
  std::lock_guard lock(listeners_mutex_);
  return dead_.contains(world_rank);
}

void Member::Unlisten(const std::string& group) {
  std::lock_guard lock(listeners_mutex_);
  listeners_.erase(group);
}

void Member::ReportFailure(const std::string& group, const absl::Status& status) {
  (void)Send({.type = FrameType::kFailure,
              .rank = rank_,
              .number = static_cast<int32_t>(status.code()),
              .key = group,
              .value = std::string(status.message())});
}

void Member::ReportLeave(const std::string& group) {
  (void)Send({.type = FrameType::kLeave, .rank = rank_, .key = group});
}

void Member::Run() {
  constexpr int kCoordinator = 0;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  Beats beats(silence_, now());
  for (;;) {
    pollfd polls[] = {
        {.fd = stop_.get(), .events = POLLIN, .revents = 0},
        // After the coordinator left only the stop matters: poll skips -1.
        {.fd = coordinator_left_ ? -1 : socket_.get(), .events = POLLIN, .revents = 0}};
    const int wait = coordinator_left_ ? -1 : beats.MillisecondsLeft(now());
    if (::poll(polls, 2, wait) < 0 && errno != EINTR) return;
    if (polls[0].revents != 0) return;
    if (coordinator_left_) continue;
    if (beats.Turn(now())) SendBeat();
    if (polls[1].revents != 0) {
      // Heard for the first time when it has begun to serve: connecting has a timeout of its own.
      beats.Heard(kCoordinator);
      if (!Receive()) Lose({.rank = 0});
    }
    if (coordinator_left_ || beats.Silent().empty()) continue;
    Lose({.rank = 0, .silence = silence_, .address = PeerAddress(socket_.get())});
    // Should it live, it learns that we have given it up.
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
}

void Member::SendBeat() {
  // Whoever else sends says as much, and may have to wait for room.
  std::unique_lock lock(send_mutex_, std::try_to_lock);
  if (!lock.owns_lock() || HasUnderway(socket_.get())) return;
  const std::string beat = Encode({.type = FrameType::kBeat, .rank = rank_});
  const ssize_t n = ::send(socket_.get(), beat.data(), beat.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n > 0) (void)SendAll(socket_.get(), beat.substr(static_cast<size_t>(n)));
}

bool Member::Receive() {
  char bytes[16 * 1024];
  const ssize_t n = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) return false;
  reader_.Append(bytes, static_cast<size_t>(n));
  for (;;) {
    auto frame = reader_.Next();
    if (!frame.ok()) return false;
    if (!frame->has_value()) return true;
    Handle(**frame);
  }
}

void Member::Handle(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kWelcome:
    case FrameType::kRefused:
    case FrameType::kValue: {
      std::lock_guard lock(mutex_);
      if (frame.type == FrameType::kWelcome) welcome_ = true;
      if (frame.type == FrameType::kValue) values_[frame.key] = frame.value;
      if (frame.type == FrameType::kRefused) {
        broken_ = absl::InvalidArgumentError(
            absl::StrFormat("rank 0 refused rank %d: %s", rank_, frame.value));
      }
      changed_.notify_all();
      return;
    }
    case FrameType::kFailure: {
      const absl::Status status(static_cast<absl::StatusCode>(frame.number), frame.value);
      if (status.ok()) return;
      std::lock_guard lock(listeners_mutex_);
      failures_.emplace(frame.key, status);
      const auto listener = listeners_.find(frame.key);
      if (listener != listeners_.end()) listener->second->OnFailure(status);
      return;
    }
    case FrameType::kLeave: {
      std::lock_guard lock(listeners_mutex_);
      leaves_[frame.key].insert(frame.rank);
      const auto listener = listeners_.find(frame.key);
      if (listener != listeners_.end()) listener->second->OnLeave(frame.rank);
      return;
    }
    case FrameType::kDeath:
      return Bury({.rank = frame.rank,
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
      return;  // only ranks send the others
  }
}

void Member::Lose(const Death& how) {
  const bool expected = coordinator_left_;
  coordinator_left_ = true;
  if (!expected) Bury(how);
}

void Member::Bury(const Death& death) {
  {
    std::lock_guard lock(mutex_);
    if (broken_.ok()) broken_ = DeathError(death);
    changed_.notify_all();
  }
  std::lock_guard lock(listeners_mutex_);
  dead_.emplace(death.rank, death);
  for (const auto& [group, listener] : listeners_) listener->OnDeath(death);
}

}  // namespace geminid::collectives
