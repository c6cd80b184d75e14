#include "collectives/tcp/coordinator.h"

#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace geminid::collectives {

Coordinator::Coordinator(int world_size, std::string job)
    : world_size_(world_size),
      job_(std::move(job)),
      admitted_(static_cast<size_t>(world_size), false),
      rank_addresses_(static_cast<size_t>(world_size)) {}

std::vector<Coordinator::Outgoing> Coordinator::OnFrame(int connection, const Frame& frame) {
  const auto sender = rank_of_.find(connection);
  if (frame.type == FrameType::kHello) {
    if (sender != rank_of_.end()) return Refuse(connection, "it said hello twice");
    return Admit(connection, frame);
  }
  if (sender == rank_of_.end()) return Refuse(connection, "it did not say hello first");
  switch (frame.type) {
    case FrameType::kFailure:
      // Only a group's first failure is its cause; later ones are mostly its consequences.
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
  if (hello.value.size() > kMaxHelloBytes) return Refuse(connection, "its hello is too long");
  const std::vector<std::string> words = absl::StrSplit(hello.value, absl::MaxSplits('\n', 1));
  const auto rank_address = words.size() == 2 ? DecodeRankAddresses(words[1]) : std::nullopt;
  if (words[0] != kProtocol || !rank_address.has_value() || rank_address->size() != 1) {
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
  rank_addresses_[static_cast<size_t>(hello.rank)] = rank_address->front();
  rank_of_[connection] = hello.rank;
  std::vector<Outgoing> out;
  for (const Frame& death : deaths_) out.push_back({connection, death});
  if (missing_ranks().empty()) {
    FillInAddresses(rank_addresses_);
    const std::string rank_addresses = EncodeRankAddresses(rank_addresses_);
    for (Outgoing& welcome : ToAll({.type = FrameType::kWelcome, .value = rank_addresses})) {
      out.push_back(std::move(welcome));
    }
  }
  return out;
}

std::vector<Coordinator::Outgoing> Coordinator::OnClosed(int connection) {
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
