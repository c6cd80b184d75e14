#include "collectives/shm/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace geminid::collectives {
namespace {

constexpr uint32_t kMagic = 0x4d434d47;  // "GMCM"
constexpr uint32_t kVersion = 1;
constexpr size_t kPageBytes = 4096;
constexpr uint32_t kMaxSlots = 64;
constexpr uint32_t kMaxPieceBytes = 64 * 1024 * 1024;

struct Header {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  SegmentShape shape;
  alignas(64) FailureRecord failure;
};

absl::Status Errno(const char* call) {
  return absl::ErrnoToStatus(errno, absl::StrCat("shared memory of the communicator: ", call));
}

bool Sensible(const SegmentShape& shape) {
  return shape.world_size >= 1 && shape.world_size <= kMaxShmRanks && shape.slots >= 2 &&
         shape.slots <= kMaxSlots && shape.piece_bytes >= 64 * shape.world_size &&
         shape.piece_bytes <= kMaxPieceBytes && shape.piece_bytes % kPageBytes == 0;
}

}  // namespace

SegmentLayout SegmentLayout::Of(const SegmentShape& shape) {
  const size_t ranks = shape.world_size;
  SegmentLayout layout;
  layout.controls = sizeof(Header);
  layout.labels = layout.controls + ranks * sizeof(RankControl);
  layout.channels = layout.labels + ranks * shape.slots * sizeof(Label);
  layout.staging = layout.channels + ranks * ranks * sizeof(Channel);
  layout.staging = (layout.staging + kPageBytes - 1) / kPageBytes * kPageBytes;
  layout.messages = layout.staging + ranks * shape.slots * shape.piece_bytes;
  layout.end = layout.messages + ranks * ranks * kMessageSlots * kMessageBytes;
  return layout;
}

absl::StatusOr<Segment> Segment::Create(const SegmentShape& shape) {
  if (!Sensible(shape)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "shm communicator: %d ranks (1 to %d), %d slots (2 to %d), pieces of %d bytes (a multiple "
        "of %d, 64 per rank to %d)",
        shape.world_size, kMaxShmRanks, shape.slots, kMaxSlots, shape.piece_bytes, kPageBytes,
        kMaxPieceBytes));
  }
  Segment segment;
  segment.shape_ = shape;
  segment.fd_ = base::UniqueFd(static_cast<int>(
      ::syscall(SYS_memfd_create, "geminid-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!segment.fd_.valid()) return Errno("memfd_create");
  const SegmentLayout layout = SegmentLayout::Of(shape);
  if (::ftruncate(segment.fd_.get(), static_cast<off_t>(layout.end)) != 0) {
    return Errno("ftruncate");
  }
  if (::fcntl(segment.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Errno("F_ADD_SEALS");
  }
  if (absl::Status s = segment.Map(); !s.ok()) return s;
  new (segment.base_) Header{.shape = shape, .failure = {}};
  // The rest is zero, and zero is the initial state of every counter and record.
  return segment;
}

absl::StatusOr<Segment> Segment::Open(base::UniqueFd fd, int world_size) {
  struct stat info = {};
  if (::fstat(fd.get(), &info) != 0) return Errno("fstat");
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  Segment segment;
  segment.fd_ = std::move(fd);
  Header header;
  const bool complete = seals >= 0 && (seals & F_SEAL_SHRINK) != 0 &&
                        ::pread(segment.fd_.get(), static_cast<void*>(&header), sizeof(header),
                                0) == static_cast<ssize_t>(sizeof(header));
  if (!complete || header.magic != kMagic || header.version != kVersion ||
      !Sensible(header.shape) || header.shape.world_size != static_cast<uint32_t>(world_size) ||
      static_cast<size_t>(info.st_size) != SegmentLayout::Of(header.shape).end) {
    return absl::InvalidArgumentError(
        "rank 0 offers shared memory of another kind; do all ranks run the same build?");
  }
  segment.shape_ = header.shape;
  if (absl::Status s = segment.Map(); !s.ok()) return s;
  return segment;
}

absl::Status Segment::Map() {
  layout_ = SegmentLayout::Of(shape_);
  void* base = ::mmap(nullptr, layout_.end, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (base == MAP_FAILED) return Errno("mmap");
  base_ = static_cast<std::byte*>(base);
  return absl::OkStatus();
}

Segment::Segment(Segment&& other) noexcept
    : fd_(std::move(other.fd_)),
      shape_(other.shape_),
      layout_(other.layout_),
      base_(std::exchange(other.base_, nullptr)) {}

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(shape_, other.shape_);
  std::swap(layout_, other.layout_);
  std::swap(base_, other.base_);
  return *this;
}

Segment::~Segment() {
  if (base_ != nullptr) ::munmap(base_, layout_.end);
}

FailureRecord& Segment::failure() const { return reinterpret_cast<Header*>(base_)->failure; }

RankControl& Segment::control(int rank) const {
  return reinterpret_cast<RankControl*>(base_ + layout_.controls)[rank];
}

Label& Segment::label(int rank, uint32_t slot) const {
  return reinterpret_cast<Label*>(base_ +
                                  layout_.labels)[static_cast<size_t>(rank) * shape_.slots + slot];
}

std::byte* Segment::staging(int rank, uint32_t slot) const {
  return base_ + layout_.staging +
         (static_cast<size_t>(rank) * shape_.slots + slot) * shape_.piece_bytes;
}

Channel& Segment::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(
      base_ +
      layout_.channels)[static_cast<size_t>(from) * shape_.world_size + static_cast<size_t>(to)];
}

std::byte* Segment::message(int from, int to, uint32_t slot) const {
  const size_t pair = static_cast<size_t>(from) * shape_.world_size + static_cast<size_t>(to);
  return base_ + layout_.messages + (pair * kMessageSlots + slot) * kMessageBytes;
}

}  // namespace geminid::collectives
