#include "collectives/gloo/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace geminid::collectives {

Coordinator::Coordinator(int world_size, std::string job)
    : world_size_(world_size),
      job_(std::move(job)),
      admitted_(static_cast<size_t>(world_size), false) {}

std::vector<Coordinator::Outgoing> Coordinator::OnFrame(int connection, const Frame& frame) {
  const auto sender = rank_of_.find(connection);
  if (frame.type == FrameType::kHello) {
    if (sender != rank_of_.end()) return Refuse(connection, "it said hello twice");
    return Admit(connection, frame);
  }
  if (sender == rank_of_.end()) return Refuse(connection, "it did not say hello first");
  switch (frame.type) {
    case FrameType::kSet: {
      if (values_.size() >= kMaxKeys) return Refuse(connection, "too many keys in the store");
      values_[frame.key] = frame.value;
      std::vector<Outgoing> out;
      for (const int waiter : waiting_[frame.key]) {
        out.push_back(
            {waiter, {.type = FrameType::kValue, .key = frame.key, .value = frame.value}});
      }
      waiting_.erase(frame.key);
      return out;
    }
    case FrameType::kGet: {
      const auto value = values_.find(frame.key);
      if (value != values_.end()) {
        return {
            {connection, {.type = FrameType::kValue, .key = frame.key, .value = value->second}}};
      }
      if (waiting_.size() >= kMaxKeys) return Refuse(connection, "too many keys waited for");
      waiting_[frame.key].push_back(connection);
      return {};
    }
    case FrameType::kFailure:
      // Only the first failure of a group is the truth; what follows is mostly its echo.
      if (!failures_.emplace(frame.key, frame).second) return {};
      return ToAll(frame);
    case FrameType::kLeave: {
      Frame leave = frame;
      leave.rank = sender->second;
      return ToAll(leave);
    }
    case FrameType::kBye:
      rank_of_.erase(sender);
      return {};
    case FrameType::kBeat:
      return {};
    default:
      return Refuse(connection, "it sent a frame that only the coordinator sends");
  }
}

std::vector<Coordinator::Outgoing> Coordinator::Admit(int connection, const Frame& hello) {
  if (hello.value != kProtocol) {
    return Refuse(connection, "it speaks another protocol; do all ranks run the same build?");
  }
  if (hello.key != job_) {
    return Refuse(connection,
                  absl::StrFormat("it belongs to job \"%s\", this is job \"%s\"", hello.key, job_));
  }
  if (hello.number != world_size_) {
    return Refuse(connection, absl::StrFormat("it says there are %d ranks, rank 0 says %d",
                                              hello.number, world_size_));
  }
  if (hello.rank < 0 || hello.rank >= world_size_) {
    return Refuse(connection,
                  absl::StrFormat("rank %d is not in [0, %d)", hello.rank, world_size_));
  }
  if (admitted_[static_cast<size_t>(hello.rank)]) {
    return Refuse(connection, absl::StrFormat("rank %d has already been here", hello.rank));
  }
  admitted_[static_cast<size_t>(hello.rank)] = true;
  rank_of_[connection] = hello.rank;
  std::vector<Outgoing> out;
  for (const Frame& death : deaths_) out.push_back({connection, death});
  if (missing_ranks().empty()) {
    for (Outgoing& welcome : ToAll({.type = FrameType::kWelcome})) {
      out.push_back(std::move(welcome));
    }
  }
  return out;
}

std::vector<Coordinator::Outgoing> Coordinator::OnClosed(int connection) {
  for (auto& [key, waiters] : waiting_) std::erase(waiters, connection);
  const auto sender = rank_of_.find(connection);
  if (sender == rank_of_.end()) return {};
  deaths_.push_back({.type = FrameType::kDeath, .rank = sender->second});
  rank_of_.erase(sender);
  return ToAll(deaths_.back());
}

std::vector<Coordinator::Outgoing> Coordinator::OnSilent(int connection, absl::Duration silence,
                                                         const std::string& address) {
  const auto sender = rank_of_.find(connection);
  if (sender == rank_of_.end()) return {};
  deaths_.push_back({.type = FrameType::kDeath,
                     .rank = sender->second,
                     .number = static_cast<int32_t>(absl::ToInt64Milliseconds(silence)),
                     .value = address});
  std::vector<Outgoing> news = ToAll(deaths_.back());
  rank_of_.erase(sender);
  return news;
}

std::vector<Coordinator::Outgoing> Coordinator::OnShutdown() const {
  return ToAll({.type = FrameType::kBye});
}

std::vector<int> Coordinator::missing_ranks() const {
  std::vector<int> missing;
  for (int r = 0; r < world_size_; ++r) {
    if (!admitted_[static_cast<size_t>(r)]) missing.push_back(r);
  }
  return missing;
}

std::vector<Coordinator::Outgoing> Coordinator::ToAll(const Frame& frame) const {
  std::vector<Outgoing> out;
  for (const auto& [connection, rank] : rank_of_) out.push_back({connection, frame});
  return out;
}

std::vector<Coordinator::Outgoing> Coordinator::Refuse(int connection, const std::string& reason) {
  return {{connection, {.type = FrameType::kRefused, .value = reason}, /*close_after=*/true}};
}

}  // namespace geminid::collectives
