// HTTP/2 that no library would send: frames for the control socket, byte by byte.
#ifndef GEMINID_TESTS_DAEMON_ENV_RAW_HTTP2_H_
#define GEMINID_TESTS_DAEMON_ENV_RAW_HTTP2_H_

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace geminid::testing {

inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kContinuation = 9
};
inline constexpr uint8_t kEndStream = 0x1;
inline constexpr uint8_t kAnswer = 0x1;  // ACK of settings and pings
inline constexpr uint8_t kEndHeaders = 0x4;

inline std::string Frame(FrameType type, uint8_t flags, uint32_t stream, std::string_view payload) {
  std::string frame;
  const auto size = static_cast<uint32_t>(payload.size());
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(size >> shift & 0xff);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift & 0xff);
  return frame.append(payload);
}

// RFC 7541, 6.2.2: a literal header that is not indexed. Name and value have below 127 bytes.
inline std::string Header(std::string_view name, std::string_view value) {
  std::string header(1, '\0');
  for (const std::string_view text : {name, value}) {
    header += static_cast<char>(text.size());
    header.append(text);
  }
  return header;
}

// The headers of a call.
inline std::string CallHeaders(std::string_view method) {
  return Header(":method", "POST") + Header(":scheme", "http") + Header(":path", method) +
         Header(":authority", "localhost") + Header("te", "trailers") +
         Header("content-type", "application/grpc");
}

// The first bytes of every connection.
inline std::string Http2Beginning() {
  return std::string(kHttp2Preface) + Frame(FrameType::kSettings, 0, 0, "");
}

// Sends `text` again and again, and returns the bytes that the daemon took before it closed the
// connection, took nothing for `patience_milliseconds`, or had taken `most`. Reads nothing.
struct Taken {
  size_t bytes = 0;
  bool closed = false;
};
inline Taken SendWithoutEnd(const base::UniqueFd& connection, std::string_view text, size_t most,
                            int patience_milliseconds) {
  Taken taken;
  for (size_t at = 0; taken.bytes < most;) {
    pollfd room = {connection.get(), POLLOUT, 0};
    if (::poll(&room, 1, patience_milliseconds) != 1) return taken;
    const ssize_t sent = ::send(connection.get(), text.data() + at, text.size() - at,
                                MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) continue;
    taken.closed = sent < 0;
    if (taken.closed) return taken;
    taken.bytes += static_cast<size_t>(sent);
    at = (at + static_cast<size_t>(sent)) % text.size();
  }
  return taken;
}

}  // namespace geminid::testing

#endif  // GEMINID_TESTS_DAEMON_ENV_RAW_HTTP2_H_
