#include "client/device/host/host_arena.h"

#include <sys/mman.h>

#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/src/system.h"

namespace geminid::device {
namespace {

constexpr uint64_t kPageBytes = 4096;

}  // namespace

HostArena::~HostArena() {
  if (base_ != nullptr) munmap(base_, reserved_bytes_);
}

absl::Status HostArena::Reserve(uint64_t bytes) {
  if (base_ != nullptr) return absl::FailedPreconditionError("the arena is reserved already");
  if (bytes == 0 || bytes % kPageBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("an arena of ", bytes, " bytes; it must be whole pages of ", kPageBytes));
  }
  void* address =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return SystemError("mmap", absl::StrCat(bytes, " bytes of the device arena"));
  madvise(address, bytes, MADV_DONTFORK);
  base_ = static_cast<std::byte*>(address);
  reserved_bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status HostArena::CheckRange(uint64_t offset, uint64_t bytes) const {
  if (bytes == 0 || offset % kPageBytes != 0 || bytes % kPageBytes != 0 ||
      offset > reserved_bytes_ || bytes > reserved_bytes_ - offset) {
    return absl::InvalidArgumentError(absl::StrCat("a slab of ", bytes, " bytes at ", offset,
                                                   " does not fit an arena of ", reserved_bytes_));
  }
  const auto next = slabs_.lower_bound(offset);
  const bool overlaps_next = next != slabs_.end() && next->first < offset + bytes;
  const bool overlaps_previous =
      next != slabs_.begin() && std::prev(next)->first + std::prev(next)->second > offset;
  if (overlaps_next || overlaps_previous) {
    return absl::InvalidArgumentError(
        absl::StrCat("a slab of ", bytes, " bytes at ", offset, " overlaps another"));
  }
  return absl::OkStatus();
}

absl::Status HostArena::Import(const base::UniqueFd& slab, uint64_t offset, uint64_t bytes) {
  if (absl::Status range = CheckRange(offset, bytes); !range.ok()) return range;
  if (absl::Status file = CheckMappable(slab, bytes); !file.ok()) return file;
  void* address =
      mmap(base_ + offset, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, slab.get(), 0);
  if (address == MAP_FAILED)
    return SystemError("mmap", absl::StrCat(bytes, " bytes of the device arena"));
  madvise(address, bytes, MADV_DONTFORK);
  // The pages exist already; this makes no training step pay for the first touch. Older kernels do
  // not know it, and lose only that.
  madvise(address, bytes, MADV_POPULATE_WRITE);
  slabs_[offset] = bytes;
  imported_bytes_ += bytes;
  return absl::OkStatus();
}

}  // namespace geminid::device
