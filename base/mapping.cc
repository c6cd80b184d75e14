#include "base/mapping.h"

#include <sys/mman.h>

#include <boost/interprocess/exceptions.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <cerrno>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/memfd.h"
#include "base/memory_limits.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/system_error.h"

namespace geminid::base {
namespace {

namespace bip = boost::interprocess;
using Access = MappingOptions::Access;

// A descriptor as Boost.Interprocess's concept MemoryMappable requires.
struct Mappable {
  int fd;
  bip::mapping_handle_t get_mapping_handle() const {  // NOLINT: the concept's name
    return bip::ipcdetail::mapping_handle_from_file_handle(fd);
  }
};

struct Place {
  uint64_t bytes = 0;
  const std::byte* address = nullptr;  // null: any free range
  int flags = 0;                       // of mmap(2), besides those for the access
};

// Calls construct(arguments of mapped_region), and converts its exceptions to a status.
template <typename Construct>
absl::Status TryMap(const UniqueFd& fd, const MappingOptions& options, const Place& place,
                    Construct construct) {
  // Boost.Interprocess takes 0 for the whole file.
  if (place.bytes == 0) return absl::InvalidArgumentError("a mapping needs at least 1 byte");
  if (options.foreign) GEMINID_RETURN_IF_ERROR(CheckSealed(fd, place.bytes));
  if (options.revocable) GEMINID_RETURN_IF_ERROR(CheckRevocable(fd, place.bytes));
  const bip::mode_t mode = options.access == Access::kRead ? bip::read_only : bip::read_write;
  try {
    construct(Mappable{fd.get()}, mode, bip::offset_t{0}, place.bytes, place.address,
              bip::map_options_t{place.flags});
  } catch (const bip::interprocess_exception& error) {
    absl::Status status = SystemError(error.get_native_error(), "mmap",
                                      absl::StrCat(FormatBytes(place.bytes), " of shared memory"));
    const std::string limits = DescribeMemoryLimits();
    if (!absl::IsResourceExhausted(status) || limits.empty()) return status;
    return absl::ResourceExhaustedError(absl::StrCat(status.message(), "; ", limits));
  }
  return absl::OkStatus();
}

// Both are optimizations: if the kernel refuses them, nothing else changes.
void Advise(std::byte* data, uint64_t bytes, const MappingOptions& options) {
  if (!options.inherited) ::madvise(data, bytes, MADV_DONTFORK);
  if (!options.populate) return;
  ::madvise(data, bytes,
            options.access == Access::kRead ? MADV_POPULATE_READ : MADV_POPULATE_WRITE);
}

}  // namespace

Mapping::Mapping() = default;
Mapping::~Mapping() = default;

Mapping::Mapping(std::unique_ptr<Region> region)
    : region_(std::move(region)),
      data_(static_cast<std::byte*>(region_->get_address())),
      bytes_(region_->get_size()) {}

Mapping::Mapping(Mapping&& other) noexcept
    : region_(std::move(other.region_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  region_ = std::move(other.region_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

absl::StatusOr<Mapping> Mapping::Map(const UniqueFd& fd, uint64_t bytes,
                                     const MappingOptions& options) {
  std::unique_ptr<Region> region;
  absl::Status status = TryMap(fd, options, {.bytes = bytes}, [&](const auto&... arguments) {
    region = std::make_unique<Region>(arguments...);
  });
  if (!status.ok()) return status;
  Mapping mapping(std::move(region));
  Advise(mapping.data(), bytes, options);
  return mapping;
}

bool Mapping::UseHugePages() const { return ::madvise(data_, bytes_, MADV_HUGEPAGE) == 0; }

absl::StatusOr<Reservation> Reservation::Make(uint64_t bytes) {
  if (bytes == 0 || bytes % kPageBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the reservation has ", bytes, " bytes; it must be whole pages of ", kPageBytes));
  }
  // An empty file has no pages, whatever the length of its mapping.
  GEMINID_ASSIGN_OR_RETURN(const UniqueFd empty, CreateSealedMemfd("geminid-reserved", 0));
  std::unique_ptr<Mapping::Region> region;
  absl::Status status = TryMap(
      empty, {.access = Access::kRead}, {.bytes = bytes, .flags = MAP_NORESERVE},
      [&](const auto&... arguments) { region = std::make_unique<Mapping::Region>(arguments...); });
  if (!status.ok()) return status;
  Mapping range(std::move(region));
  Advise(range.data(), bytes, {});
  return Reservation(std::move(range));
}

absl::Status Reservation::Unmap(uint64_t offset, uint64_t bytes) {
  GEMINID_ASSIGN_OR_RETURN(const UniqueFd empty, CreateSealedMemfd("geminid-reserved", 0));
  return MapAt(offset, empty, bytes, {.access = Access::kRead});
}

absl::Status Reservation::CheckRange(uint64_t offset, uint64_t bytes) const {
  if (offset % kPageBytes != 0 || bytes % kPageBytes != 0 || offset > range_.bytes() ||
      bytes > range_.bytes() - offset) {
    return absl::InvalidArgumentError(absl::StrCat(bytes, " bytes at ", offset,
                                                   " do not fit whole pages in a reservation of ",
                                                   range_.bytes()));
  }
  return absl::OkStatus();
}

absl::Status Reservation::ShareAt(uint64_t offset, const Reservation& other, uint64_t from,
                                  uint64_t bytes, const MappingOptions& options) {
  GEMINID_RETURN_IF_ERROR(CheckRange(offset, bytes));
  GEMINID_RETURN_IF_ERROR(other.CheckRange(from, bytes));
  std::byte* const address = range_.data() + offset;
  // For a shared mapping, moving 0 bytes duplicates it: it stays, and is mapped here as well.
  void* const mapped =
      ::mremap(other.data() + from, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, address);
  if (mapped == MAP_FAILED) {
    return SystemError(errno, "mremap", absl::StrCat(FormatBytes(bytes), " of shared memory"));
  }
  Advise(address, bytes, options);
  return absl::OkStatus();
}

absl::Status Reservation::MapAt(uint64_t offset, const UniqueFd& fd, uint64_t bytes,
                                const MappingOptions& options) {
  GEMINID_RETURN_IF_ERROR(CheckRange(offset, bytes));
  std::byte* const address = range_.data() + offset;
  // Never destroyed: range_ unmaps it with the rest.
  alignas(bip::mapped_region) std::byte region[sizeof(bip::mapped_region)];
  const absl::Status status =
      TryMap(fd, options, {.bytes = bytes, .address = address, .flags = MAP_FIXED},
             [&](const auto&... arguments) { new (region) bip::mapped_region(arguments...); });
  if (status.ok()) Advise(address, bytes, options);
  return status;
}

}  // namespace geminid::base
