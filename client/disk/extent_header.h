// The header of an extent on disk. It proves that the bytes are those that were written: it has
// their owner, their version, and a checksum of each piece.
//
// It detects writes that a crash cut off, that the disk lost, or that went elsewhere, and bytes of
// another file, of another owner, or of an older version.
#ifndef GEMINID_CLIENT_DISK_EXTENT_HEADER_H_
#define GEMINID_CLIENT_DISK_EXTENT_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"

namespace geminid::disk {

// The owner and the version of an extent's bytes. Both are numbers of the caller's.
struct ExtentKey {
  uint64_t owner = 0;
  uint64_t version = 0;
  friend bool operator==(const ExtentKey&, const ExtentKey&) = default;
};

// Calls body(i) for all i below count, on any threads; returns when all calls have returned.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& body)>;
void ForEachInOrder(size_t count, const std::function<void(size_t)>& body);

// The bytes before the payload, a multiple of kBlockBytes.
uint64_t ExtentHeaderBytes(uint64_t payload_bytes);

// An extent in memory: header, payload, and padding up to a block. `extent` begins at a multiple of
// 8 bytes.
struct ExtentContents {
  std::span<std::byte> extent{};
  uint64_t payload_bytes = 0;
  std::span<std::byte> payload() const {
    return extent.subspan(ExtentHeaderBytes(payload_bytes), payload_bytes);
  }
};

// Writes the header for the payload in `contents`. `file` identifies the file.
void SealExtent(uint64_t file, const ExtentKey& key, const ExtentContents& contents,
                const ForEach& for_each = ForEachInOrder);

// DATA_LOSS, with words that end a sentence, unless SealExtent made the extent with `key`.
absl::Status CheckExtent(uint64_t file, const ExtentKey& key, const ExtentContents& contents,
                         const ForEach& for_each = ForEachInOrder);

// Whether the extent was never written: space of a new file reads as zeros.
bool IsBlank(const ExtentContents& contents);

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_EXTENT_HEADER_H_
