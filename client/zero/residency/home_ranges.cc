#include "client/zero/residency/home_ranges.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/pages.h"
#include "client/zero/basics/farewell.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kAlignment = 64;  // of homes of chunks

}  // namespace

HomeRanges::HomeRanges(Session* session, std::string name, uint64_t chunk_bytes)
    : session_(*session),
      name_(std::move(name)),
      chunk_bytes_(base::RoundUp(chunk_bytes, kAlignment)) {}

// Requests are executed in order, so ended copies are settled before the chunks are free.
HomeRanges::~HomeRanges() {
  std::vector<ChunkId> chunks;
  std::vector<Pending> freed;
  for (const Slab& slab : slabs_) {
    chunks.push_back(slab.chunk);
    freed.push_back(session_.Transition(slab.chunk, ChunkState::kFree));
  }
  const absl::Time end = base::MonotonicNow() + kFarewellTimeout;  // for all of them together
  for (const Pending& free : freed) {
    free.Wait(std::max(end - base::MonotonicNow(), absl::ZeroDuration())).IgnoreError();
  }
  if (!chunks.empty()) session_.Free(chunks).IgnoreError();  // else the session frees them
}

absl::StatusOr<std::vector<HomeRanges::Range>> HomeRanges::Take(uint64_t bytes,
                                                                uint64_t range_bytes) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (std::vector<Range> taken = TakeLocked(bytes, range_bytes); !taken.empty()) return taken;
    const size_t number = slabs_.size();
    lock.unlock();
    // Each range may be rounded up.
    const uint64_t enough = bytes + (bytes / range_bytes + 1) * kAlignment;
    const auto allocate = [&](uint64_t slab_bytes) {
      const std::string name = absl::StrCat(name_, " ", number);
      return session_.Allocate({{name, ChunkKind::kGeneric, slab_bytes}});
    };
    absl::StatusOr<std::vector<ChunkHandle>> made = allocate(std::max(chunk_bytes_, enough));
    // The rest of the host's memory may be enough for this request alone.
    if (absl::IsResourceExhausted(made.status()) && enough < chunk_bytes_) made = allocate(enough);
    if (!made.ok()) return made.status();
    session_.Transition(made->front().id, ChunkState::kHold);
    lock.lock();
    slabs_.push_back({.chunk = made->front().id, .free = {{0, made->front().bytes}}});
  }
}

std::vector<HomeRanges::Range> HomeRanges::TakeLocked(uint64_t bytes, uint64_t range_bytes) {
  std::vector<Range> taken;
  for (uint64_t first = 0; first < bytes; first += range_bytes) {
    const uint64_t rounded = base::RoundUp(std::min(range_bytes, bytes - first), kAlignment);
    const std::optional<Range> range = TakeOneLocked(rounded);
    if (!range.has_value()) {
      for (const Range& back : taken) GiveLocked(back);
      return {};
    }
    taken.push_back(*range);
  }
  return taken;
}

std::optional<HomeRanges::Range> HomeRanges::TakeOneLocked(uint64_t bytes) {
  for (Slab& slab : slabs_) {
    const auto found =
        std::ranges::find_if(slab.free, [&](const auto& range) { return range.second >= bytes; });
    if (found == slab.free.end()) continue;
    const auto [offset, size] = *found;
    slab.free.erase(found);
    if (size > bytes) slab.free.emplace(offset + bytes, size - bytes);
    return Range{.chunk = slab.chunk, .offset = offset, .bytes = bytes};
  }
  return std::nullopt;
}

void HomeRanges::Give(const Range& range) {
  const std::lock_guard lock(mutex_);
  GiveLocked(range);
}

void HomeRanges::GiveLocked(const Range& range) {
  const auto slab = std::ranges::find(slabs_, range.chunk, &Slab::chunk);
  const auto here = slab->free.emplace(range.offset, range.bytes).first;
  if (const auto after = std::next(here);
      after != slab->free.end() && here->first + here->second == after->first) {
    here->second += after->second;
    slab->free.erase(after);
  }
  if (here == slab->free.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  slab->free.erase(here);
}

uint64_t HomeRanges::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const Slab& slab : slabs_) bytes += session_.Bytes(slab.chunk);
  return bytes;
}

}  // namespace geminid::zero
