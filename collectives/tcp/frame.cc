#include "collectives/tcp/frame.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/loopback.h"

namespace geminid::collectives {
namespace {

constexpr size_t kHeaderBytes = 17;

void PutWord(std::string* to, uint32_t word) {
  for (int shift = 0; shift < 32; shift += 8) to->push_back(static_cast<char>(word >> shift));
}

uint32_t GetWord(const std::string& from, size_t at) {
  uint32_t word = 0;
  for (size_t i = 0; i < 4; ++i) {
    word |= static_cast<uint32_t>(static_cast<unsigned char>(from[at + i])) << (8 * i);
  }
  return word;
}

}  // namespace

std::string Encode(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + frame.key.size() + frame.value.size());
  bytes.push_back(static_cast<char>(frame.type));
  PutWord(&bytes, static_cast<uint32_t>(frame.rank));
  PutWord(&bytes, static_cast<uint32_t>(frame.number));
  PutWord(&bytes, static_cast<uint32_t>(frame.key.size()));
  PutWord(&bytes, static_cast<uint32_t>(frame.value.size()));
  return bytes + frame.key + frame.value;
}

size_t FrameReader::BytesWanted() const {
  if (buffer_.size() < kHeaderBytes) return kHeaderBytes - buffer_.size();
  return kHeaderBytes + GetWord(buffer_, 9) + GetWord(buffer_, 13) - buffer_.size();
}

absl::StatusOr<std::optional<Frame>> FrameReader::Next() {
  if (buffer_.size() < kHeaderBytes) return std::optional<Frame>();
  const auto type = static_cast<uint8_t>(buffer_[0]);
  const size_t key_bytes = GetWord(buffer_, 9);
  const size_t value_bytes = GetWord(buffer_, 13);
  if (type < static_cast<uint8_t>(FrameType::kHello) ||
      type > static_cast<uint8_t>(FrameType::kBeat) || key_bytes > kMaxFieldBytes ||
      value_bytes > kMaxFieldBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "not a frame of %s (type %d, key %d bytes, value %d bytes); is something else talking to "
        "MASTER_PORT?",
        kProtocol, type, key_bytes, value_bytes));
  }
  const size_t total = kHeaderBytes + key_bytes + value_bytes;
  if (buffer_.size() < total) return std::optional<Frame>();
  std::optional<Frame> frame(Frame{.type = static_cast<FrameType>(type),
                                   .rank = static_cast<int32_t>(GetWord(buffer_, 1)),
                                   .number = static_cast<int32_t>(GetWord(buffer_, 5)),
                                   .key = buffer_.substr(kHeaderBytes, key_bytes),
                                   .value = buffer_.substr(kHeaderBytes + key_bytes, value_bytes)});
  buffer_.erase(0, total);
  return frame;
}

// A machine's name may have blanks, and addresses have colons.
std::string EncodeRankAddresses(std::span<const RankAddress> rank_addresses) {
  return absl::StrJoin(rank_addresses, "\n", [](std::string* out, const RankAddress& rank_address) {
    absl::StrAppend(out, rank_address.address, " ", rank_address.port, " ", rank_address.rank_0,
                    " ", rank_address.machine);
  });
}

std::optional<std::vector<RankAddress>> DecodeRankAddresses(const std::string& text) {
  std::vector<RankAddress> rank_addresses;
  for (const auto& line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    uint32_t port = 0;
    if (words.size() != 4 || !absl::SimpleAtoi(words[1], &port) || port > UINT16_MAX) {
      return std::nullopt;
    }
    rank_addresses.push_back({words[0], static_cast<uint16_t>(port), words[2], words[3]});
  }
  return rank_addresses;
}

void FillInAddresses(std::span<RankAddress> rank_addresses) {
  const auto far = std::find_if(
      rank_addresses.begin(), rank_addresses.end(),
      [](const RankAddress& rank_address) { return !base::IsLoopback(rank_address.rank_0); });
  for (RankAddress& rank_address : rank_addresses) {
    if (rank_address.address.empty())
      rank_address.address = far == rank_addresses.end() ? rank_address.rank_0 : far->rank_0;
  }
}

}  // namespace geminid::collectives
