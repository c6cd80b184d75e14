// Files in memory. Every mapping of the project is one of these, and each is a mapped_region of
// Boost.Interprocess, whose exceptions end here as absl::Status.
#ifndef GEMINID_BASE_MAPPING_H_
#define GEMINID_BASE_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace boost::interprocess {
class mapped_region;  // NOLINT(readability-identifier-naming): as it is called there
}  // namespace boost::interprocess

namespace geminid::base {

struct MappingOptions {
  enum class Access { kRead, kReadWrite };

  Access access = Access::kReadWrite;
  // Have the pages there before the mapping is used, so that no later step pays for a first touch.
  // Kernels before 5.14 lose only that.
  bool populate = false;
  // The file came from another process: refused with INVALID_ARGUMENT unless CheckSealed() is
  // content with it.
  bool foreign = false;
  bool inherited = false;  // forked children have it too
  // As `foreign`, but its maker may take the memory back: only the size must be right now.
  bool revocable = false;
};

// A shared mapping, unmapped at the end of its life. It outlives the descriptor it was made from.
class Mapping {
 public:
  Mapping();
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  // Of the first `bytes` of `fd`.
  static absl::StatusOr<Mapping> Map(const UniqueFd& fd, uint64_t bytes,
                                     const MappingOptions& options = {});

  // Large pages where the kernel can give them from now on; false when it refuses.
  bool UseHugePages() const;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Reservation;
  using Region = boost::interprocess::mapped_region;
  explicit Mapping(std::unique_ptr<Region> region);

  std::unique_ptr<Region> region_;
  // Of region_: what is read on the fast path stays in line.
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Addresses side by side for mappings that are to form one range. Whatever lies in it is unmapped
// with it, all at once: a hole that opened earlier could be taken by another thread's mapping.
class Reservation {
 public:
  Reservation() = default;

  // `bytes` are whole pages. Until something is mapped over them, touching them is SIGBUS.
  static absl::StatusOr<Reservation> Make(uint64_t bytes);

  // Maps the first `bytes` of `fd` over what lay at `offset`. Both are whole pages.
  absl::Status MapAt(uint64_t offset, const UniqueFd& fd, uint64_t bytes,
                     const MappingOptions& options = {});

  // What is mapped at `from` of another reservation is here at `offset` too, of one file. All three
  // are whole pages. `options`: what of them is of a mapping and not of its file.
  absl::Status ShareAt(uint64_t offset, const Reservation& other, uint64_t from, uint64_t bytes,
                       const MappingOptions& options = {});

  // As before anything was mapped there: the addresses stay reserved.
  absl::Status Unmap(uint64_t offset, uint64_t bytes);

  std::byte* data() const { return range_.data(); }
  uint64_t bytes() const { return range_.bytes(); }

 private:
  explicit Reservation(Mapping range) : range_(std::move(range)) {}
  absl::Status CheckRange(uint64_t offset, uint64_t bytes) const;

  Mapping range_;
};

}  // namespace geminid::base

#endif  // GEMINID_BASE_MAPPING_H_
