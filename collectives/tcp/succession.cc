#include "collectives/tcp/succession.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/deadline.h"
#include "base/status_macros.h"
#include "collectives/failure.h"
#include "collectives/tcp/frame.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {
namespace {

constexpr int kPollMilliseconds = 100;

// Whether the peer has ended a connection on which no bytes come.
bool IsOver(int socket) {
  char byte = 0;
  const ssize_t count = ::recv(socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

// The leader's answer: key = its address, number = its port, value = the ranks.
Frame AnswerOf(const SurvivorGroup& next) {
  return {.type = FrameType::kWelcome,
          .rank = next.ranks.front(),
          .number = next.port,
          .key = next.host,
          .value = absl::StrJoin(next.ranks, ",")};
}

SurvivorGroup NewGroupOf(const Frame& answer) {
  SurvivorGroup next{.host = answer.key, .port = static_cast<uint16_t>(answer.number)};
  for (const auto& word : absl::StrSplit(answer.value, ',')) {
    int rank = -1;
    if (absl::SimpleAtoi(word, &rank)) next.ranks.push_back(rank);
  }
  return next;
}

class SurvivorMeeting {
 public:
  SurvivorMeeting(const TcpLinks& group, absl::Duration timeout)
      : group_(group),
        member_(*group.options().member),
        rank_(group.options().rank),
        size_(static_cast<int>(group.options().world_ranks.size())),
        purpose_(absl::StrCat("survivors/", member_.options().job, "/", group.options().group)),
        timeout_(timeout),
        deadline_(base::Deadline::In(timeout)) {}

  absl::StatusOr<SurvivorGroup> Run() {
    for (int leader = 0; leader < rank_; ++leader) {
      GEMINID_ASSIGN_OR_RETURN(std::optional<SurvivorGroup> next, Follow(leader));
      if (next.has_value()) return *std::move(next);
    }
    return Lead();
  }

 private:
  const RankAddress& RankAddressOf(int rank) const {
    const int world_rank = group_.options().world_ranks[static_cast<size_t>(rank)];
    return member_.rank_addresses()[static_cast<size_t>(world_rank)];
  }

  // Connects to the rank; invalid if it is not there.
  base::UniqueFd Call(int rank) {
    const RankAddress& rank_address = RankAddressOf(rank);
    if (group_.IsGone(rank) || mute_.contains(rank_address.address)) return base::UniqueFd();
    auto socket = DialTcpOnce(rank_address.address, rank_address.port, deadline_);
    if (absl::IsDeadlineExceeded(socket.status())) mute_.insert(rank_address.address);
    return socket.ok() ? *std::move(socket) : base::UniqueFd();
  }

  // nullopt if that rank has gone.
  absl::StatusOr<std::optional<SurvivorGroup>> Follow(int leader) {
    const base::UniqueFd socket = Call(leader);
    if (!socket.valid() || !Introduce(socket.get(), purpose_, rank_).ok()) return std::nullopt;
    FrameReader reader;
    for (;;) {
      GEMINID_ASSIGN_OR_RETURN(const std::optional<Frame> answer, reader.Next());
      if (answer.has_value()) return NewGroupOf(*answer);
      pollfd entry{.fd = socket.get(), .events = POLLIN, .revents = 0};
      if (::poll(&entry, 1, deadline_.LeftMilliseconds(kPollMilliseconds)) <= 0) {
        if (group_.IsGone(leader)) return std::nullopt;
        if (deadline_.Passed()) return Late({leader});
        continue;
      }
      char bytes[16 * 1024];
      const ssize_t count = ::recv(socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (count <= 0) return std::nullopt;
      reader.Append(bytes, static_cast<size_t>(count));
    }
  }

  absl::StatusOr<SurvivorGroup> Lead() {
    GEMINID_ASSIGN_OR_RETURN(auto here, AwaitOthers());
    SurvivorGroup next{.ranks = {rank_}, .host = RankAddressOf(rank_).address};
    for (const auto& [rank, socket] : here) {
      if (!IsOver(socket.get()) && !group_.IsGone(rank)) next.ranks.push_back(rank);
    }
    GEMINID_ASSIGN_OR_RETURN(next.listener, ListenTcp(next.host, 0));
    GEMINID_ASSIGN_OR_RETURN(next.port, PortOf(next.listener.get()));
    const std::string answer = Encode(AnswerOf(next));
    // A rank that dies now is noticed when the group connects.
    for (const int rank : next.ranks) {
      if (rank != rank_) (void)SendAll(here[rank].get(), answer);
    }
    return next;
  }

  // The ranks after this one that come; the others are gone.
  absl::StatusOr<std::map<int, base::UniqueFd>> AwaitOthers() {
    std::map<int, base::UniqueFd> calls;  // to ranks that have not come; a call ends with its rank
    for (int r = rank_ + 1; r < size_; ++r) {
      if (base::UniqueFd call = Call(r); call.valid()) calls[r] = std::move(call);
    }
    std::map<int, base::UniqueFd> here;
    while (!calls.empty()) {
      GEMINID_ASSIGN_OR_RETURN(auto arrived, member_.peer_listener().Take(purpose_));
      for (auto& [rank, socket] : arrived) {
        // A rank may have come and given up, and not come again yet.
        if (!IsOver(socket.get()) && calls.erase(rank) > 0) here[rank] = std::move(socket);
      }
      std::erase_if(calls, [&](const auto& call) {
        return IsOver(call.second.get()) || group_.IsGone(call.first);
      });
      if (calls.empty()) break;
      if (deadline_.Passed()) {
        std::vector<int> absent;
        for (const auto& [rank, call] : calls) absent.push_back(rank);
        return Late(absent);
      }
      member_.peer_listener().Await(deadline_);
    }
    return here;
  }

  absl::Status Late(const std::vector<int>& absent) const {
    return ShrinkTimeoutError(absent, rank_, timeout_);
  }

  const TcpLinks& group_;
  Member& member_;
  const int rank_;
  const int size_;
  const std::string purpose_;
  const absl::Duration timeout_;
  const base::Deadline deadline_;
  // Addresses of hosts that did not answer; their other ranks are not asked.
  std::set<std::string> mute_;
};

}  // namespace

absl::StatusOr<SurvivorGroup> MeetSurvivors(const TcpLinks& group, absl::Duration timeout) {
  return SurvivorMeeting(group, timeout).Run();
}

}  // namespace geminid::collectives
