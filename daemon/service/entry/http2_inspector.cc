#include "daemon/service/entry/http2_inspector.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::service {
namespace {

// RFC 9113, 3.4, 4.1 and 6.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kData = 0;
constexpr uint8_t kHeaders = 1;
constexpr uint8_t kResetStream = 3;
constexpr uint8_t kPushPromise = 5;
constexpr uint8_t kPing = 6;
constexpr uint8_t kContinuation = 9;
constexpr uint8_t kAnswer = 0x1;
constexpr uint8_t kEndHeaders = 0x4;
// What a server accepts by default. gRPC checks DATA frames itself.
constexpr uint32_t kMaxFrameBytes = 16384;
// A smaller DATA frame costs more than it brings.
constexpr uint32_t kLittleData = 256;

}  // namespace

absl::Status Http2Inspector::Look(std::span<const char> bytes, Http2Cost* cost) {
  while (!bytes.empty()) {
    if (preface_seen_ < kPreface.size()) {
      if (bytes.front() != kPreface[preface_seen_]) {
        return absl::InvalidArgumentError("it does not begin with the HTTP/2 preface");
      }
      ++preface_seen_;
      bytes = bytes.subspan(1);
    } else if (payload_left_ > 0) {
      const size_t passed = std::min<size_t>(payload_left_, bytes.size());
      payload_left_ -= static_cast<uint32_t>(passed);
      bytes = bytes.subspan(passed);
    } else {
      header_[header_seen_++] = static_cast<uint8_t>(bytes.front());
      bytes = bytes.subspan(1);
      if (header_seen_ == kFrameHeaderBytes) GEMINID_RETURN_IF_ERROR(Begin(cost));
    }
  }
  return absl::OkStatus();
}

absl::Status Http2Inspector::Begin(Http2Cost* cost) {
  header_seen_ = 0;
  payload_left_ = uint32_t{header_[0]} << 16 | uint32_t{header_[1]} << 8 | header_[2];
  const uint8_t type = header_[3];
  const bool is_last = (header_[4] & kEndHeaders) != 0;
  const uint32_t stream = (uint32_t{header_[5]} << 24 | uint32_t{header_[6]} << 16 |
                           uint32_t{header_[7]} << 8 | header_[8]) &
                          0x7fffffff;
  if (type != kData || payload_left_ < kLittleData) ++cost->frames;
  if (type != kData && payload_left_ > kMaxFrameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a frame of ", payload_left_, " bytes; ",
                                                   kMaxFrameBytes, " are allowed"));
  }
  // Only a continuation may follow headers that are not complete.
  if ((type == kContinuation) != (block_stream_ != 0) ||
      (type == kContinuation && stream != block_stream_)) {
    return absl::InvalidArgumentError("its headers and their continuation do not fit together");
  }
  if (type == kHeaders) {
    ++cost->streams;
    block_bytes_ = 0;
    block_frames_ = 0;
    block_stream_ = stream;
    if (stream == 0) return absl::InvalidArgumentError("headers without a stream");
  }
  if (type == kHeaders || type == kContinuation) return CountHeaders(payload_left_, is_last);
  if (type == kResetStream) ++cost->resets;
  if (type == kPing && (header_[4] & kAnswer) == 0) ++cost->pings;
  if (type == kPushPromise) return absl::InvalidArgumentError("a client must not push");
  return absl::OkStatus();
}

absl::Status Http2Inspector::CountHeaders(uint32_t bytes, bool is_last) {
  block_bytes_ += bytes;
  ++block_frames_;
  if (block_bytes_ > kMaxHeaderBlockBytes || block_frames_ > kMaxHeaderBlockFrames) {
    return absl::InvalidArgumentError(
        absl::StrCat("headers of ", block_bytes_, " bytes in ", block_frames_, " frames; ",
                     kMaxHeaderBlockBytes, " bytes in ", kMaxHeaderBlockFrames, " are allowed"));
  }
  if (is_last) block_stream_ = 0;
  return absl::OkStatus();
}

}  // namespace geminid::service
