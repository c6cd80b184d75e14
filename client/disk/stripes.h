// Where each byte lies when a range of bytes is striped over files on several disks:
//
//   bytes:    |  0  |  1  |  2  |  3  |  4  |       units of stripe_bytes
//   file 0:   | header | 0 | 2 | 4 |
//   file 1:   | header | 1 | 3 |
//
// Pure arithmetic.
#ifndef GEMINID_CLIENT_DISK_STRIPES_H_
#define GEMINID_CLIENT_DISK_STRIPES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/pages.h"

namespace geminid::disk {

// Unit of offsets, lengths and addresses that all disks accept without the page cache.
inline constexpr uint64_t kBlockBytes = base::kPageBytes;
// Large enough for full speed. A single disk is also read and written in such pieces.
inline constexpr uint64_t kStripeBytes = uint64_t{1} << 20;

struct Stripes {
  uint32_t files = 1;
  uint64_t stripe_bytes = kStripeBytes;  // a multiple of kBlockBytes, below 2 GiB
  uint64_t header_bytes = kStripeBytes;  // at the beginning of each file
};

// Consecutive bytes of one file.
struct StripeRange {
  uint32_t file = 0;
  uint64_t file_offset = 0;
  uint64_t at = 0;  // from the beginning of the range
  uint64_t bytes = 0;
};

// The pieces of the range [offset, offset + bytes), in order.
inline std::vector<StripeRange> CutIntoStripes(const Stripes& stripes, uint64_t offset,
                                               uint64_t bytes) {
  std::vector<StripeRange> pieces;
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t unit = (offset + at) / stripes.stripe_bytes;
    const uint64_t within = (offset + at) % stripes.stripe_bytes;
    const uint64_t length = std::min(bytes - at, stripes.stripe_bytes - within);
    pieces.push_back(
        {.file = static_cast<uint32_t>(unit % stripes.files),
         .file_offset = stripes.header_bytes + unit / stripes.files * stripes.stripe_bytes + within,
         .at = at,
         .bytes = length});
    at += length;
  }
  return pieces;
}

// The size of each file, for `bytes` in all.
inline uint64_t BytesOfFile(const Stripes& stripes, uint64_t bytes) {
  const uint64_t units = (bytes + stripes.stripe_bytes - 1) / stripes.stripe_bytes;
  const uint64_t most = (units + stripes.files - 1) / stripes.files;
  return stripes.header_bytes + most * stripes.stripe_bytes;
}

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_STRIPES_H_
