// The messages between the ranks and their coordinator, and how they lie on a TCP stream.
#ifndef GEMINID_COLLECTIVES_GLOO_FRAME_H_
#define GEMINID_COLLECTIVES_GLOO_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace geminid::collectives {

// A key or value is at most this long: the addresses of a thousand ranks fit.
inline constexpr size_t kMaxFieldBytes = 256 * 1024;
inline constexpr char kProtocol[] = "geminid-collectives 2";

enum class FrameType : uint8_t {
  kHello = 1,  // rank -> coordinator: rank, number = world size, key = job, value = kProtocol
  kWelcome,    // coordinator -> rank: all ranks are here
  kRefused,    // coordinator -> rank: value says why; the connection closes
  kSet,        // rank -> coordinator: key, value
  kGet,        // rank -> coordinator: key; answered when the key is set
  kValue,      // coordinator -> rank: key, value
  kFailure,    // both ways: key = group, number = status code, value = message
  kDeath,      // coordinator -> ranks: rank; number = milliseconds of silence, value = address
  kLeave,      // both ways: rank left the group `key` in good order
  kBye,        // both ways: the sender closes in good order
  kBeat,       // both ways: the sender is there
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

 private:
  std::string buffer_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_GLOO_FRAME_H_
