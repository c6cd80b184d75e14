#include "client/zero/residency/workspace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"
#include "base/status_macros.h"

namespace geminid::zero {
namespace {

constexpr uint64_t kBlockAlignment = 64;
constexpr uint64_t kNoPlace = ~uint64_t{0};

}  // namespace

Workspace::Workspace() : self_(std::make_shared<Workspace*>(this)) {}
Workspace::~Workspace() { *self_ = nullptr; }

Workspace::Block::Block(Block&& other) noexcept
    : owner_(std::move(other.owner_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Workspace::Block& Workspace::Block::operator=(Block&& other) noexcept {
  if (this == &other) return *this;
  Free();
  owner_ = std::move(other.owner_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Workspace::Block::~Block() { Free(); }

void Workspace::Block::Free() {
  if (owner_ != nullptr && *owner_ != nullptr) (*owner_)->Free(data_, bytes_);
}

Workspace::Block Workspace::MakeBlock(std::byte* data, uint64_t bytes) {
  Block block;
  block.owner_ = self_;
  block.data_ = data;
  block.bytes_ = bytes;
  return block;
}

ArenaWorkspace::ArenaWorkspace(std::byte* arena, uint64_t arena_bytes, ArenaMeter* meter, Grow grow,
                               Holes holes)
    : arena_(arena),
      arena_bytes_(arena_bytes),
      meter_(meter),
      grow_(std::move(grow)),
      holes_(std::move(holes)) {}

uint64_t ArenaWorkspace::PlaceLocked(uint64_t bytes) const {
  uint64_t top = arena_bytes_;
  for (const auto& [offset, size] : blocks_) {
    if (top - (offset + size) >= bytes) return top - bytes;
    top = offset;
  }
  return top >= bytes ? top - bytes : kNoPlace;
}

uint64_t ArenaWorkspace::ExtentLocked() const {
  const uint64_t of_blocks = blocks_.empty() ? 0 : arena_bytes_ - blocks_.rbegin()->first;
  return std::max(of_blocks, reported_bytes_);
}

absl::StatusOr<Workspace::Block> ArenaWorkspace::Allocate(uint64_t bytes) {
  const uint64_t rounded = base::RoundUp(std::max<uint64_t>(bytes, 1), kBlockAlignment);
  std::unique_lock lock(mutex_);
  for (;;) {
    const uint64_t offset = bytes > arena_bytes_ ? kNoPlace : PlaceLocked(rounded);
    if (offset == kNoPlace) {
      absl::Status why = absl::ResourceExhaustedError(absl::StrCat(
          "the device arena of ", base::FormatBytes(arena_bytes_),
          " has no room for a workspace block of ", base::FormatBytes(bytes), ": ",
          base::FormatBytes(in_use_bytes_),
          " of workspace are in use; use a smaller batch or context, or a larger arena"));
      lock.unlock();
      if (holes_.refused) holes_.refused(why);
      return why;
    }
    const uint64_t extent = arena_bytes_ - offset;
    if (extent <= reserved_bytes_) {
      blocks_.emplace(offset, rounded);
      in_use_bytes_ += rounded;
      meter_->AddWorkspace(static_cast<int64_t>(rounded));
      NotePeakLocked(extent);
      return MakeBlock(arena_ + offset, rounded);
    }
    lock.unlock();
    const absl::Status grown = grow_(extent);
    if (absl::IsResourceExhausted(grown) && holes_.allocate) return AllocateInHole(rounded, grown);
    GEMINID_RETURN_IF_ERROR(grown);
    lock.lock();
  }
}

absl::StatusOr<Workspace::Block> ArenaWorkspace::AllocateInHole(uint64_t bytes,
                                                                const absl::Status& why) {
  const absl::StatusOr<std::byte*> data = holes_.allocate(bytes);
  if (absl::IsResourceExhausted(data.status())) return why;
  if (!data.ok()) return data.status();
  std::lock_guard lock(mutex_);
  in_holes_.insert(*data);
  hole_bytes_ += bytes;
  in_use_bytes_ += bytes;
  meter_->AddWorkspace(static_cast<int64_t>(bytes));
  NotePeakLocked(ExtentLocked());
  return MakeBlock(*data, bytes);
}

void ArenaWorkspace::Free(std::byte* data, uint64_t bytes) {
  bool in_hole = false;
  {
    std::lock_guard lock(mutex_);
    in_hole = in_holes_.erase(data) > 0;
    if (in_hole) {
      hole_bytes_ -= bytes;
    } else {
      blocks_.erase(static_cast<uint64_t>(data - arena_));
    }
    in_use_bytes_ -= bytes;
    meter_->AddWorkspace(-static_cast<int64_t>(bytes));
  }
  if (in_hole) holes_.free(data);
}

uint64_t ArenaWorkspace::Pause() {
  std::lock_guard lock(mutex_);
  reserved_bytes_ = ExtentLocked();
  return reserved_bytes_;
}

void ArenaWorkspace::SetReserved(uint64_t extent_bytes) {
  std::lock_guard lock(mutex_);
  reserved_bytes_ = extent_bytes;
}

uint64_t ArenaWorkspace::extent_bytes() const {
  std::lock_guard lock(mutex_);
  return ExtentLocked();
}

uint64_t ArenaWorkspace::in_use_bytes() const {
  std::lock_guard lock(mutex_);
  return in_use_bytes_;
}

uint64_t ArenaWorkspace::TakePeakExtent() {
  std::lock_guard lock(mutex_);
  reported_bytes_ = 0;
  return std::exchange(peak_extent_, ExtentLocked() + hole_bytes_);
}

absl::Status ArenaWorkspace::Report(uint64_t bytes) {
  if (bytes > arena_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("the trainer uses ", base::FormatBytes(bytes),
                                                     " of non-model memory, more than the arena's ",
                                                     base::FormatBytes(arena_bytes_),
                                                     "; use a smaller batch or a larger arena"));
  }
  std::unique_lock lock(mutex_);
  while (bytes > reserved_bytes_) {
    lock.unlock();
    GEMINID_RETURN_IF_ERROR(grow_(bytes));
    lock.lock();
  }
  reported_bytes_ = std::max(reported_bytes_, bytes);
  NotePeakLocked(bytes);
  return absl::OkStatus();
}

}  // namespace geminid::zero
