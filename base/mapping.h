// Memory-mapped files. Every mapping of the project uses this class, which wraps a mapped_region of
// Boost.Interprocess and converts its exceptions to absl::Status.
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
class mapped_region;  // NOLINT(readability-identifier-naming): Boost's name
}  // namespace boost::interprocess

namespace geminid::base {

struct MappingOptions {
  enum class Access { kRead, kReadWrite };

  Access access = Access::kReadWrite;
  // Allocates the pages at once, so that no later access pays for a first touch. Kernels before
  // 5.14 ignore it.
  bool populate = false;
  // The file came from another process: INVALID_ARGUMENT unless CheckSealed() accepts
  // it.
  bool foreign = false;
  bool inherited = false;  // forked children have the mapping too
  // As `foreign`, but its creator may revoke the memory: only its current size is checked.
  bool revocable = false;
};

// A shared mapping, unmapped by the destructor. It outlives the descriptor that it was made from.
class Mapping {
 public:
  Mapping();
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  // Maps the first `bytes` of `fd`.
  static absl::StatusOr<Mapping> Map(const UniqueFd& fd, uint64_t bytes,
                                     const MappingOptions& options = {});

  // Asks for huge pages from now on; false if the kernel refuses.
  bool UseHugePages() const;

  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Reservation;
  using Region = boost::interprocess::mapped_region;
  explicit Mapping(std::unique_ptr<Region> region);

  std::unique_ptr<Region> region_;
  // Copied from region_ so that accesses on the fast path are inline.
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// A range of addresses for several mappings. The destructor unmaps all of them at once, because
// another thread's mapping could take a hole that opened earlier.
class Reservation {
 public:
  Reservation() = default;

  // `bytes` are whole pages. Touching them is SIGBUS until a file is mapped there.
  static absl::StatusOr<Reservation> Make(uint64_t bytes);

  // Maps the first `bytes` of `fd` over the contents at `offset`. Both are whole pages.
  absl::Status MapAt(uint64_t offset, const UniqueFd& fd, uint64_t bytes,
                     const MappingOptions& options = {});

  // Maps the memory at `from` of another reservation, which is of one file, at `offset` here too.
  // All are whole pages. `options`: only those that concern the mapping, and not its file, apply.
  absl::Status ShareAt(uint64_t offset, const Reservation& other, uint64_t from, uint64_t bytes,
                       const MappingOptions& options = {});

  // Unmaps the contents; the addresses stay reserved.
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
