// Parses the bytes of an HTTP/2 client, as far as the daemon must before gRPC gets them.
#ifndef GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_INSPECTOR_H_
#define GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_INSPECTOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace geminid::service {

// Limits of one HEADERS frame with the CONTINUATION frames after it. gRPC limits the decoded
// headers alone, and buffers the bytes of a header that has not arrived in full.
inline constexpr uint32_t kMaxHeaderBlockBytes = 16384;
inline constexpr uint32_t kMaxHeaderBlockFrames = 8;

// What a client has asked for with some bytes: each costs gRPC work and memory.
struct Http2Cost {
  uint32_t streams = 0;  // begun
  uint32_t resets = 0;   // of streams
  uint32_t pings = 0;    // except answers to the server's
  uint32_t frames = 0;   // of any kind, except DATA frames that are not tiny
};

// Inspects one connection from its first byte on. Changes no bytes and stores none, only a few
// numbers.
class Http2Inspector {
 public:
  // Adds to `cost`. INVALID_ARGUMENT: no gRPC client sends that. Then do not call it again.
  absl::Status Look(std::span<const char> bytes, Http2Cost* cost);

 private:
  static constexpr size_t kFrameHeaderBytes = 9;

  absl::Status Begin(Http2Cost* cost);  // handles the frame whose header is complete
  absl::Status CountHeaders(uint32_t bytes, bool is_last);

  size_t preface_seen_ = 0;
  std::array<uint8_t, kFrameHeaderBytes> header_{};
  size_t header_seen_ = 0;
  uint32_t payload_left_ = 0;
  uint32_t block_stream_ = 0;  // whose headers continue; 0: none
  uint32_t block_bytes_ = 0;
  uint32_t block_frames_ = 0;
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_ENTRY_HTTP2_INSPECTOR_H_
