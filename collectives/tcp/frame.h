// The messages between the ranks and their coordinator, and how they lie on a TCP stream.
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

// A key or value is at most this long: the places of several thousand ranks fit.
inline constexpr size_t kMaxFieldBytes = 1024 * 1024;
inline constexpr char kProtocol[] = "geminid-collectives 3";

enum class FrameType : uint8_t {
  // rank -> coordinator: rank, number = world size, key = job, value = kProtocol, a line break and
  // its
  // place; rank -> rank: rank, key = what for, value = kProtocol
  kHello = 1,
  // coordinator -> rank: all ranks are here, value = their places; leader -> survivor: key and
  // number =
  // host and port, value = the ranks
  kWelcome,
  kRefused,  // coordinator -> rank: value says why; the connection closes
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

// Cuts a stream into frames. Holds at most one unfinished frame.
class FrameReader {
 public:
  void Append(const char* data, size_t bytes) { buffer_.append(data, bytes); }
  // Nothing if the next frame is not complete yet; INVALID_ARGUMENT if the stream is not one of
  // frames, after which the reader is of no further use.
  absl::StatusOr<std::optional<Frame>> Next();
  // How many bytes belong to the unfinished frame at least: whoever reads no more takes nothing of
  // what follows it.
  size_t BytesWanted() const;

 private:
  std::string buffer_;
};

// Where a rank is, as the ranks tell each other when they meet.
struct Place {
  // Numeric, at which the other ranks reach this one. Empty: it is on rank 0's host, and knows no
  // address of that but the loopback one.
  std::string address{};
  uint16_t port = 0;
  std::string rank_0{};   // the address at which it reaches rank 0
  std::string machine{};  // what it says of its host; no line breaks
  friend bool operator==(const Place&, const Place&) = default;
};

std::string EncodePlaces(std::span<const Place> places);
std::optional<std::vector<Place>> DecodePlaces(const std::string& text);

// Ranks elsewhere reach rank 0's host at the address by which they reach rank 0: it becomes that of
// the ranks there.
void FillIn(std::span<Place> places);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TCP_FRAME_H_
