#include "client/device/slab_ranges.h"

#include <iterator>

#include "absl/strings/str_cat.h"

namespace geminid::device {

absl::Status CheckArena(uint64_t bytes, uint64_t page_bytes) {
  if (bytes == 0 || bytes % page_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the arena has ", bytes, " bytes; it must be whole pages of ", page_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckSlab(const SlabRanges& slabs, uint64_t arena_bytes, uint64_t page_bytes,
                       uint64_t offset, uint64_t bytes) {
  if (bytes == 0 || offset % page_bytes != 0 || bytes % page_bytes != 0 || offset > arena_bytes ||
      bytes > arena_bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("a slab of ", bytes, " bytes at ", offset,
                                                   " does not fit an arena of ", arena_bytes));
  }
  const auto next = slabs.lower_bound(offset);
  const bool overlaps_next = next != slabs.end() && next->first < offset + bytes;
  const bool overlaps_previous =
      next != slabs.begin() && std::prev(next)->first + std::prev(next)->second > offset;
  if (overlaps_next || overlaps_previous) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slab of ", bytes, " bytes at ", offset, " overlaps another"));
  }
  return absl::OkStatus();
}

}  // namespace geminid::device
