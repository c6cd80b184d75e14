// What stands before the bytes of an extent on disk, and tells whether they are what was written:
// whose they are, which version of that, and a checksum of each piece.
//
// A write that was cut off by a crash, one that the disk lost, and one that went elsewhere are told
// from a whole one. Bytes of another file, another owner or an older version are not taken.
#ifndef GEMINID_CLIENT_DISK_EXTENT_HEADER_H_
#define GEMINID_CLIENT_DISK_EXTENT_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"

namespace geminid::disk {

// Whose bytes an extent has, and which version of them. Both are the caller's numbers.
struct ExtentKey {
  uint64_t owner = 0;
  uint64_t version = 0;
  friend bool operator==(const ExtentKey&, const ExtentKey&) = default;
};

// body(i) for all i below count, on any threads; returns when all are done.
using ForEach = std::function<void(size_t count, const std::function<void(size_t)>& body)>;
void ForEachInOrder(size_t count, const std::function<void(size_t)>& body);

// Bytes before the payload, a multiple of kBlockBytes.
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

// Writes the header of the payload that is there. `file` identifies the file.
void SealExtent(uint64_t file, const ExtentKey& key, const ExtentContents& contents,
                const ForEach& for_each = ForEachInOrder);

// DATA_LOSS in words that end a sentence if the extent is not what SealExtent made of `key`.
absl::Status CheckExtent(uint64_t file, const ExtentKey& key, const ExtentContents& contents,
                         const ForEach& for_each = ForEachInOrder);

// Nothing was ever written there: space of a new file reads as zeros.
bool IsBlank(const ExtentContents& contents);

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_EXTENT_HEADER_H_
