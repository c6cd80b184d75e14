#include "daemon/core/chunks/extent_allocator.h"

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::core {

ExtentAllocator::ExtentAllocator(uint64_t size_bytes, uint64_t alignment_bytes)
    : alignment_bytes_(alignment_bytes),
      size_bytes_(size_bytes & ~(alignment_bytes - 1)),
      limit_bytes_(size_bytes_) {
  if (size_bytes_ > 0) AddHole(0, size_bytes_);
}

uint64_t ExtentAllocator::RoundUp(uint64_t bytes) const {
  const uint64_t mask = alignment_bytes_ - 1;
  return bytes > ~uint64_t{0} - mask ? ~mask : (bytes + mask) & ~mask;
}

// Adds the hole [begin, end), which overlaps no other, and joins it with its neighbours.
ExtentAllocator::Holes::iterator ExtentAllocator::AddHole(uint64_t begin, uint64_t end) {
  auto next = holes_.lower_bound(begin);
  if (next != holes_.end() && next->first == end) {
    end = next->second;
    RemoveSize(*next);
    next = holes_.erase(next);
  }
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->second == begin) {
      RemoveSize(*previous);
      previous->second = end;
      AddSize(*previous);
      return previous;
    }
  }
  const auto added = holes_.emplace_hint(next, begin, end);
  AddSize(*added);
  return added;
}

absl::StatusOr<uint64_t> ExtentAllocator::AllocateLowest(uint64_t bytes, ChunkId owner) {
  if (bytes == 0) return absl::InvalidArgumentError("zero bytes need no place");
  const uint64_t rounded = RoundUp(bytes);
  for (const auto& [begin, end] : holes_) {
    if (rounded > largest_hole_bytes()) break;
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
  RemoveSize(*hole);
  if (hole->first == offset) {
    holes_.erase(hole);
  } else {
    hole->second = offset;
    AddSize(*hole);
  }
  if (offset + rounded < end) AddSize(*holes_.emplace(offset + rounded, end).first);
  extents_[offset] = {offset, rounded, owner};
  used_bytes_ += rounded;
  return absl::OkStatus();
}

absl::Status ExtentAllocator::Free(uint64_t offset) {
  const auto found = extents_.find(offset);
  if (found == extents_.end()) {
    return absl::NotFoundError(absl::StrCat("no extent begins at ", offset));
  }
  AddHole(offset, found->second.end());
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
    if (limit > limit_bytes_) AddHole(limit_bytes_, limit);
    limit_bytes_ = limit;
    return absl::OkStatus();
  }
  const auto last = holes_.empty() ? holes_.end() : std::prev(holes_.end());
  if (last == holes_.end() || last->second != limit_bytes_ || last->first > limit) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a chunk lies in the ", base::FormatBytes(limit_bytes_ - limit), " that it needs"));
  }
  RemoveSize(*last);
  if (last->first == limit) {
    holes_.erase(last);
  } else {
    last->second = limit;
    AddSize(*last);
  }
  limit_bytes_ = limit;
  return absl::OkStatus();
}

double ExtentAllocator::Fragmentation() const {
  if (free_bytes() == 0) return 0;
  return 1.0 - static_cast<double>(largest_hole_bytes()) / static_cast<double>(free_bytes());
}

std::vector<Extent> ExtentAllocator::InRange(uint64_t begin, uint64_t end, size_t limit) const {
  std::vector<Extent> found;
  if (begin >= end) return found;
  auto it = extents_.upper_bound(begin);
  if (it != extents_.begin() && std::prev(it)->second.end() > begin) --it;
  for (; it != extents_.end() && it->first < end && found.size() < limit; ++it) {
    found.push_back(it->second);
  }
  return found;
}

const Extent* ExtentAllocator::Find(uint64_t offset) const {
  const auto found = extents_.find(offset);
  return found == extents_.end() ? nullptr : &found->second;
}

ExtentAllocator::VictimSearch::VictimSearch(const ExtentAllocator* arena, uint64_t bytes)
    : arena_(arena), bytes_(arena->RoundUp(bytes)) {}

// Each joined range already includes the holes at both of its ends. So the extent has at most one
// neighbour at each end: a joined range, or else a hole.
bool ExtentAllocator::VictimSearch::Add(const Extent& extent) {
  candidates_.push_back(extent);
  uint64_t begin = extent.offset;
  uint64_t end = extent.end();
  const auto join = [&begin, &end](const auto& ranges, auto at) {
    if (at != ranges.end() && at->first == end) {
      end = at->second;
      return true;
    }
    return false;
  };
  if (const auto next = joined_.lower_bound(end); join(joined_, next)) {
    joined_.erase(next);
  } else {
    join(arena_->holes_, arena_->holes_.lower_bound(end));
  }
  const auto before = [&begin](const auto& ranges) {
    const auto next = ranges.lower_bound(begin);
    const bool touches = next != ranges.begin() && std::prev(next)->second == begin;
    return touches ? std::prev(next)->first : begin;
  };
  const uint64_t joined_begin = before(joined_);
  begin = joined_begin < begin ? joined_begin : before(arena_->holes_);
  joined_[begin] = end;
  begin_ = begin;
  return end - begin >= bytes_;
}

std::vector<Extent> ExtentAllocator::VictimSearch::Victims() const {
  std::vector<Extent> victims;
  for (const Extent& extent : candidates_) {
    if (extent.offset < begin_ + bytes_ && extent.end() > begin_) victims.push_back(extent);
  }
  return victims;
}

}  // namespace geminid::core
