#include "client/device/host/host_arena.h"

#include <sys/stat.h>

#include "base/pages.h"
#include "base/status_macros.h"
#include "client/device/slab_ranges.h"

namespace geminid::device {
namespace {

constexpr uint64_t kBlockBytes = 512;  // of st_blocks, whatever the file system

// Whether all of the file's pages exist.
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
  GEMINID_ASSIGN_OR_RETURN(reserved_, base::Reservation::Make(bytes));
  if (strict_) {
    GEMINID_ASSIGN_OR_RETURN(memory_, base::Reservation::Make(bytes));
  }
  return absl::OkStatus();
}

absl::Status HostArena::CheckRange(uint64_t offset, uint64_t bytes) const {
  return CheckSlab(slabs_, reserved_.bytes(), kPageBytes, offset, bytes);
}

absl::Status HostArena::Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes) {
  GEMINID_RETURN_IF_ERROR(CheckRange(offset, bytes));
  base::Reservation& memory = strict_ ? memory_ : reserved_;
  GEMINID_RETURN_IF_ERROR(
      memory.MapAt(offset, slab, bytes, {.populate = IsBacked(slab, bytes), .revocable = true}));
  slabs_[offset] = bytes;
  imported_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status HostArena::Release() {
  base::Reservation& memory = strict_ ? memory_ : reserved_;
  for (; !slabs_.empty(); slabs_.erase(slabs_.begin())) {
    const auto& [offset, bytes] = *slabs_.begin();
    GEMINID_RETURN_IF_ERROR(memory.Unmap(offset, bytes));
    imported_bytes_ -= bytes;
  }
  return absl::OkStatus();
}

}  // namespace geminid::device
