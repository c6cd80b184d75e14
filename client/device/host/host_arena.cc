#include "client/device/host/host_arena.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/device/slab_ranges.h"

namespace geminid::device {
namespace {

constexpr uint64_t kBlockBytes = 512;  // the unit of st_blocks on all file systems

// Whether all pages of the file are allocated.
bool IsBacked(const base::UniqueFd& file, uint64_t bytes) {
  struct stat status = {};
  return fstat(file.get(), &status) == 0 &&
         static_cast<uint64_t>(status.st_blocks) >= bytes / kBlockBytes;
}

}  // namespace

using base::kPageBytes;

absl::Status HostArena::Reserve(uint64_t bytes) {
  if (base() != nullptr) return absl::FailedPreconditionError("the arena is reserved already");
  GEMINID_RETURN_IF_ERROR(CheckArena(bytes, kPageBytes));
  GEMINID_ASSIGN_OR_RETURN(arena_, MakeRange(bytes));
  return absl::OkStatus();
}

absl::StatusOr<HostArena::Range> HostArena::MakeRange(uint64_t bytes) const {
  Range range;
  GEMINID_ASSIGN_OR_RETURN(range.given, base::Reservation::Make(bytes));
  if (strict_) {
    GEMINID_ASSIGN_OR_RETURN(range.strict, base::Reservation::Make(bytes));
  }
  return range;
}

absl::Status HostArena::CheckRange(uint64_t offset, uint64_t bytes) const {
  return CheckSlab(slabs_, arena_.given.bytes(), kPageBytes, offset, bytes);
}

absl::Status HostArena::Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes) {
  GEMINID_RETURN_IF_ERROR(CheckRange(offset, bytes));
  GEMINID_RETURN_IF_ERROR(MemoryOf(&arena_).MapAt(
      offset, slab, bytes, {.populate = IsBacked(slab, bytes), .revocable = true}));
  slabs_[offset] = bytes;
  imported_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status HostArena::Release() {
  base::Reservation& memory = MemoryOf(&arena_);
  for (; !slabs_.empty(); slabs_.erase(slabs_.begin())) {
    const auto& [offset, bytes] = *slabs_.begin();
    GEMINID_RETURN_IF_ERROR(memory.Unmap(offset, bytes));
    imported_bytes_ -= bytes;
  }
  return absl::OkStatus();
}

// --- views ---------------------------------------------------------------------------------------

absl::Status HostArena::ReserveViews(uint64_t bytes) {
  ReleaseViews();
  GEMINID_ASSIGN_OR_RETURN(views_, MakeRange(bytes));
  return absl::OkStatus();
}

void HostArena::ReleaseViews() { views_ = {}; }

absl::Status HostArena::MapView(uint64_t at, uint64_t offset, uint64_t bytes) {
  const uint64_t end = offset + bytes;
  while (offset < end) {
    // The slab at this offset.
    auto slab = slabs_.upper_bound(offset);
    if (slab == slabs_.begin()) break;
    --slab;
    const uint64_t slab_end = slab->first + slab->second;
    if (offset >= slab_end) break;
    const uint64_t part = std::min(end, slab_end) - offset;
    GEMINID_RETURN_IF_ERROR(
        MemoryOf(&views_).ShareAt(at, MemoryOf(&arena_), offset, part, {.populate = true}));
    at += part;
    offset += part;
  }
  if (offset >= end) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a view of the arena at ", offset, " has no slab there"));
}

absl::Status HostArena::FillView(uint64_t at, uint64_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(const base::UniqueFd memory,
                           base::CreateSealedMemfd("geminid-filled", bytes));
  return MemoryOf(&views_).MapAt(at, memory, bytes);
}

absl::Status HostArena::UnmapView(uint64_t at, uint64_t bytes) {
  return MemoryOf(&views_).Unmap(at, bytes);
}

}  // namespace geminid::device
