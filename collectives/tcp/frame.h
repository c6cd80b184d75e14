// The messages between ranks and their coordinator, and their encoding on a TCP stream.
#ifndef GEMINID_COLLECTIVES_TCP_FRAME_H_
#define GEMINID_COLLECTIVES_TCP_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::collectives {

// The limit of a key or value: enough for the addresses of several thousand ranks.
inline constexpr size_t kMaxFieldBytes = 1024 * 1024;
inline constexpr char kProtocol[] = "geminid-collectives 3";

enum class FrameType : uint8_t {
  // rank -> coordinator: rank, number = world size, key = job, value = kProtocol, a line break, and
  // the rank's place;
  // rank -> rank: rank, key = purpose, value = kProtocol
  kHello = 1,
  // coordinator -> rank: all ranks have come, value = their addresses;
  // leader -> survivor: key and number = the host and port where it coordinates,
  // value = the survivors' ranks
  kWelcome,
  kRefused,  // coordinator -> rank: value = the reason; the connection closes
  kFailure,  // both ways: key = group, number = status code, value = message
  kDeath,    // coordinator -> ranks: rank; number = milliseconds of silence, value = address
  kLeave,    // both ways: rank left the group `key` in good order
  kBye,      // both ways: the sender closes in good order
  kBeat,     // both ways: the sender is there
};

struct Frame {
  FrameType type = FrameType::kBye;
  int32_t rank = 0;
  int32_t number = 0;
  std::string key{};
  std::string value{};
  friend bool operator==(const Frame&, const Frame&) = default;
};

// Little endian: type (1), rank (4), number (4), key length (4), value length (4), key, value.
// Both fields must be within kMaxFieldBytes.
std::string Encode(const Frame& frame);

// Splits a stream into frames. Buffers at most one incomplete frame.
class FrameReader {
 public:
  void Append(const char* data, size_t bytes) { buffer_.append(data, bytes); }
  // nullopt if the next frame is incomplete. INVALID_ARGUMENT if the stream does not consist of
  // frames; then the reader must not be used any more.
  absl::StatusOr<std::optional<Frame>> Next();
  // The least number of bytes that the incomplete frame still needs: reading no more than that
  // takes no bytes of what follows the frame.
  size_t BytesWanted() const;

 private:
  std::string buffer_;
};

// Where a rank is, as ranks tell each other when they meet.
struct RankAddress {
  // Numeric address for the other ranks. Empty: the rank is on rank 0's host, and knows only the
  // loopback address of it.
  std::string address{};
  uint16_t port = 0;
  std::string rank_0{};   // the address at which it reaches rank 0
  std::string machine{};  // its name for its host; no line breaks
  friend bool operator==(const RankAddress&, const RankAddress&) = default;
};

std::string EncodeRankAddresses(std::span<const RankAddress> rank_addresses);
std::optional<std::vector<RankAddress>> DecodeRankAddresses(const std::string& text);

// Ranks elsewhere reach rank 0's host at the address at which they reach rank 0. Sets that address
// for the ranks of that host.
void FillInAddresses(std::span<RankAddress> rank_addresses);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_FRAME_H_
