#include "daemon/core/extent_allocator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::core {

ExtentAllocator::ExtentAllocator(uint64_t size_bytes, uint64_t alignment_bytes)
    : alignment_bytes_(alignment_bytes),
      size_bytes_(size_bytes & ~(alignment_bytes - 1)),
      limit_bytes_(size_bytes_) {
  if (size_bytes_ > 0) holes_[0] = size_bytes_;
}

uint64_t ExtentAllocator::RoundUp(uint64_t bytes) const {
  const uint64_t mask = alignment_bytes_ - 1;
  return bytes > ~uint64_t{0} - mask ? ~mask : (bytes + mask) & ~mask;
}

// Joins [begin, end), which touches no hole's inside, with its neighbours.
ExtentAllocator::Holes::iterator ExtentAllocator::AddHole(Holes* holes, uint64_t begin,
                                                          uint64_t end) {
  auto next = holes->lower_bound(begin);
  if (next != holes->end() && next->first == end) {
    end = next->second;
    next = holes->erase(next);
  }
  if (next != holes->begin()) {
    const auto previous = std::prev(next);
    if (previous->second == begin) {
      previous->second = end;
      return previous;
    }
  }
  return holes->emplace_hint(next, begin, end);
}

absl::StatusOr<uint64_t> ExtentAllocator::AllocateLowest(uint64_t bytes, ChunkId owner) {
  if (bytes == 0) return absl::InvalidArgumentError("zero bytes need no place");
  const uint64_t rounded = RoundUp(bytes);
  for (const auto& [begin, end] : holes_) {
    if (end - begin < rounded) continue;
    const uint64_t offset = begin;
    if (absl::Status status = AllocateAt(offset, bytes, owner); !status.ok()) return status;
    return offset;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("asked for ", base::FormatBytes(rounded), "; the largest hole has ",
                   base::FormatBytes(largest_hole_bytes()), " and all holes together have ",
                   base::FormatBytes(free_bytes())));
}

absl::Status ExtentAllocator::AllocateAt(uint64_t offset, uint64_t bytes, ChunkId owner) {
  const uint64_t rounded = RoundUp(bytes);
  if (bytes == 0 || offset % alignment_bytes_ != 0 || offset > size_bytes_ ||
      rounded > size_bytes_ - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("nothing of ", base::FormatBytes(bytes), " can begin at offset ", offset,
                     " of an arena of ", base::FormatBytes(size_bytes_)));
  }
  auto hole = holes_.upper_bound(offset);
  if (hole != holes_.begin()) --hole;
  if (hole == holes_.end() || hole->first > offset || hole->second < offset + rounded) {
    return absl::ResourceExhaustedError(
        absl::StrCat("something is in the way in [", offset, ", ", offset + rounded, ")"));
  }
  const uint64_t end = hole->second;
  if (hole->first == offset) {
    holes_.erase(hole);
  } else {
    hole->second = offset;
  }
  if (offset + rounded < end) holes_[offset + rounded] = end;
  extents_[offset] = {offset, rounded, owner};
  used_bytes_ += rounded;
  return absl::OkStatus();
}

absl::Status ExtentAllocator::Free(uint64_t offset) {
  const auto found = extents_.find(offset);
  if (found == extents_.end()) {
    return absl::NotFoundError(absl::StrCat("no extent begins at ", offset));
  }
  AddHole(&holes_, offset, found->second.end());
  used_bytes_ -= found->second.bytes;
  extents_.erase(found);
  return absl::OkStatus();
}

absl::Status ExtentAllocator::ReserveTop(uint64_t bytes) {
  if (bytes > size_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("asked for the top ", base::FormatBytes(bytes),
                                                     " of ", base::FormatBytes(size_bytes_)));
  }
  const uint64_t limit = size_bytes_ - RoundUp(bytes);
  if (limit >= limit_bytes_) {
    if (limit > limit_bytes_) AddHole(&holes_, limit_bytes_, limit);
    limit_bytes_ = limit;
    return absl::OkStatus();
  }
  const auto last = holes_.empty() ? holes_.end() : std::prev(holes_.end());
  if (last == holes_.end() || last->second != limit_bytes_ || last->first > limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a chunk lies in the ", base::FormatBytes(limit_bytes_ - limit), " that it needs"));
  }
  if (last->first == limit) {
    holes_.erase(last);
  } else {
    last->second = limit;
  }
  limit_bytes_ = limit;
  return absl::OkStatus();
}

uint64_t ExtentAllocator::largest_hole_bytes() const {
  uint64_t largest = 0;
  for (const auto& [begin, end] : holes_) largest = std::max(largest, end - begin);
  return largest;
}

double ExtentAllocator::Fragmentation() const {
  if (free_bytes() == 0) return 0;
  return 1.0 - static_cast<double>(largest_hole_bytes()) / static_cast<double>(free_bytes());
}

std::vector<Extent> ExtentAllocator::InRange(uint64_t begin, uint64_t end) const {
  std::vector<Extent> found;
  if (begin >= end) return found;
  auto it = extents_.upper_bound(begin);
  if (it != extents_.begin() && std::prev(it)->second.end() > begin) --it;
  for (; it != extents_.end() && it->first < end; ++it) found.push_back(it->second);
  return found;
}

std::optional<std::vector<Extent>> ExtentAllocator::Victims(
    uint64_t bytes, const std::vector<Extent>& candidates) const {
  const uint64_t rounded = RoundUp(bytes);
  if (rounded <= largest_hole_bytes()) return std::vector<Extent>{};
  Holes holes = holes_;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto hole = AddHole(&holes, candidates[i].offset, candidates[i].end());
    if (hole->second - hole->first < rounded) continue;
    // The last one taken lies within: without it the hole was too small.
    std::vector<Extent> victims;
    for (size_t k = 0; k <= i; ++k) {
      const Extent& extent = candidates[k];
      if (extent.offset < hole->first + rounded && extent.end() > hole->first) {
        victims.push_back(extent);
      }
    }
    return victims;
  }
  return std::nullopt;
}

}  // namespace geminid::core
