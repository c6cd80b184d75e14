#include "collectives/gloo/succession.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/gloo/tcp.h"

namespace geminid::collectives {
namespace {

constexpr int kPollMilliseconds = 10;
constexpr size_t kMaxStrangers = 4096;

// "10.0.0.7 41234": IPv6 addresses have colons.
std::string PlaceOf(const std::string& address, uint16_t port) {
  return absl::StrCat(address, " ", port);
}
std::pair<std::string, uint16_t> HostAndPort(const std::string& place) {
  const std::vector<std::string> words = absl::StrSplit(place, ' ');
  uint32_t port = 0;
  if (words.size() != 2 || !absl::SimpleAtoi(words[1], &port)) return {"", uint16_t{0}};
  return {words[0], static_cast<uint16_t>(port)};
}

// Whether the other end of a connection on which nothing comes has ended it.
bool IsOver(int socket) {
  char byte = 0;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Succession>> Succession::Open(const std::string& address,
                                                             std::string job) {
  GEMINID_ASSIGN_OR_RETURN(base::UniqueFd listener, ListenTcp(address, 0));
  GEMINID_ASSIGN_OR_RETURN(const uint16_t port, PortOf(listener.get()));
  return std::unique_ptr<Succession>(
      new Succession(std::move(listener), address, PlaceOf(address, port), std::move(job)));
}

Succession::Succession(base::UniqueFd listener, std::string address, std::string own_place,
                       std::string job)
    : listener_(std::move(listener)),
      address_(std::move(address)),
      own_place_(std::move(own_place)),
      job_(std::move(job)) {}

absl::StatusOr<Succession::Outcome> Succession::Meet(const Group& group) {
  const base::Deadline deadline = base::Deadline::In(group.timeout);
  Mute mute;
  for (int leader = 0; leader < group.rank; ++leader) {
    GEMINID_ASSIGN_OR_RETURN(std::unique_ptr<Outcome> outcome,
                             Follow(group, leader, deadline, &mute));
    if (outcome != nullptr) return std::move(*outcome);
  }
  return Lead(group, deadline, &mute);
}

absl::StatusOr<base::UniqueFd> Succession::Call(const Group& group, int rank, Mute* mute) const {
  if (group.is_gone(rank)) return absl::UnavailableError("it is gone");
  const int world_rank = group.world_ranks[static_cast<size_t>(rank)];
  const auto [host, port] = HostAndPort(places_[static_cast<size_t>(world_rank)]);
  if (mute->contains(host)) return absl::UnavailableError("its host is gone");
  auto socket = ConnectTcpOnce(host, port);
  if (absl::IsDeadlineExceeded(socket.status())) mute->insert(host);
  return socket;
}

absl::StatusOr<std::unique_ptr<Succession::Outcome>> Succession::Follow(
    const Group& group, int leader, const base::Deadline& deadline, Mute* mute) {
  const auto socket = Call(group, leader, mute);
  if (!socket.ok()) return nullptr;
  const Frame hello{.type = FrameType::kHello,
                    .rank = group.rank,
                    .key = absl::StrCat(job_, "/", group.group),
                    .value = kProtocol};
  if (!SendAll(socket->get(), Encode(hello)).ok()) return nullptr;
  FrameReader reader;
  for (;;) {
    GEMINID_ASSIGN_OR_RETURN(const std::optional<Frame> frame, reader.Next());
    if (frame.has_value()) {
      auto outcome = std::make_unique<Outcome>();
      std::tie(outcome->host, outcome->port) = HostAndPort(frame->key);
      for (const auto& word : absl::StrSplit(frame->value, ',')) {
        int rank = -1;
        if (absl::SimpleAtoi(word, &rank)) outcome->ranks.push_back(rank);
      }
      return outcome;
    }
    pollfd entry{.fd = socket->get(), .events = POLLIN, .revents = 0};
    if (::poll(&entry, 1, deadline.LeftMilliseconds(kPollMilliseconds * 10)) <= 0) {
      if (group.is_gone(leader)) return nullptr;
      if (deadline.Passed()) return ShrinkTimeoutError({&leader, 1}, group.rank, group.timeout);
      continue;
    }
    char bytes[16 * 1024];
    const ssize_t count = ::recv(socket->get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return nullptr;
    reader.Append(bytes, static_cast<size_t>(count));
  }
}

absl::StatusOr<Succession::Outcome> Succession::Lead(const Group& group,
                                                     const base::Deadline& deadline, Mute* mute) {
  std::map<int, base::UniqueFd> calls;  // to those that have not come; they end with them
  for (int r = group.rank + 1; r < static_cast<int>(group.world_ranks.size()); ++r) {
    if (auto call = Call(group, r, mute); call.ok()) calls[r] = *std::move(call);
  }
  std::map<int, base::UniqueFd> here;
  while (!calls.empty()) {
    for (auto& [rank, socket] : TakeArrivals(group.group)) {
      if (rank > group.rank && calls.erase(rank) > 0) here[rank] = std::move(socket);
    }
    std::erase_if(calls, [&](const auto& call) {
      return IsOver(call.second.get()) || group.is_gone(call.first);
    });
    if (calls.empty()) break;
    if (deadline.Passed()) {
      std::vector<int> absent;
      for (const auto& [rank, call] : calls) absent.push_back(rank);
      return ShrinkTimeoutError(absent, group.rank, group.timeout);
    }
    pollfd entry{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    (void)::poll(&entry, 1, kPollMilliseconds);
  }
  std::erase_if(here, [&](const auto& rank) {
    return IsOver(rank.second.get()) || group.is_gone(rank.first);
  });
  Outcome outcome{.ranks = {group.rank}, .host = address_};
  for (const auto& [rank, socket] : here) outcome.ranks.push_back(rank);
  GEMINID_ASSIGN_OR_RETURN(outcome.listener, ListenTcp(address_, 0));
  GEMINID_ASSIGN_OR_RETURN(outcome.port, PortOf(outcome.listener.get()));
  const Frame verdict{.type = FrameType::kWelcome,
                      .rank = group.rank,
                      .key = PlaceOf(outcome.host, outcome.port),
                      .value = absl::StrJoin(outcome.ranks, ",")};
  // One that dies now is missed when the group connects.
  for (const auto& [rank, socket] : here) (void)SendAll(socket.get(), Encode(verdict));
  return outcome;
}

std::map<int, base::UniqueFd> Succession::TakeArrivals(const std::string& group) {
  std::lock_guard lock(mutex_);
  for (base::UniqueFd socket = AcceptTcp(listener_.get()); socket.valid();
       socket = AcceptTcp(listener_.get())) {
    // The calls of leaders of other groups stay: their end would say that we are dead.
    if (strangers_.size() < kMaxStrangers) strangers_.push_back({std::move(socket), {}});
  }
  for (size_t i = strangers_.size(); i-- > 0;) Hear(i);
  const auto found = come_.find(absl::StrCat(job_, "/", group));
  if (found == come_.end()) return {};
  std::map<int, base::UniqueFd> arrivals = std::move(found->second);
  come_.erase(found);
  return arrivals;
}

void Succession::Hear(size_t arrival) {
  Arrival& stranger = strangers_[arrival];
  char bytes[1024];
  // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection): it does not wait
  const ssize_t count = ::recv(stranger.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count > 0) {
    stranger.reader.Append(bytes, static_cast<size_t>(count));
    const auto frame = stranger.reader.Next();
    if (frame.ok() && !frame->has_value()) return;
    if (frame.ok() && (*frame)->type == FrameType::kHello && (*frame)->value == kProtocol) {
      come_[(*frame)->key][(*frame)->rank] = std::move(stranger.socket);
    }
  }
  strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(arrival));
}

}  // namespace geminid::collectives
