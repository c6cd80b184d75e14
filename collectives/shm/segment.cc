#include "collectives/shm/segment.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "base/status_macros.h"

namespace geminid::collectives {
namespace {

constexpr uint32_t kMagic = 0x4d434d47;  // "GMCM"
constexpr uint32_t kVersion = 2;
constexpr uint32_t kMaxSlots = 64;
constexpr uint32_t kMaxPieceBytes = 64 * 1024 * 1024;

struct Header {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  SegmentShape shape;
  alignas(64) FailureRecord failure;
};

bool Sensible(const SegmentShape& shape) {
  return shape.world_size >= 1 && shape.world_size <= kMaxShmRanks && shape.slots >= 2 &&
         shape.slots <= kMaxSlots && shape.piece_bytes >= 64 * shape.world_size &&
         shape.piece_bytes <= kMaxPieceBytes && shape.piece_bytes % base::kPageBytes == 0 &&
         shape.message_bytes > 0 && shape.message_bytes <= kMessageBytes &&
         shape.message_bytes % base::kPageBytes == 0;
}

}  // namespace

SegmentLayout SegmentLayout::Of(const SegmentShape& shape) {
  const size_t ranks = shape.world_size;
  SegmentLayout layout;
  layout.controls = sizeof(Header);
  layout.labels = layout.controls + ranks * sizeof(RankControl);
  layout.channels = layout.labels + ranks * shape.slots * sizeof(Label);
  layout.staging = layout.channels + ranks * ranks * sizeof(Channel);
  layout.staging = base::RoundUpToPage(layout.staging);
  layout.messages = layout.staging + ranks * shape.slots * shape.piece_bytes;
  layout.end = layout.messages + ranks * ranks * kMessageSlots * shape.message_bytes;
  return layout;
}

absl::StatusOr<Segment> Segment::Create(const SegmentShape& shape) {
  if (!Sensible(shape)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "shm communicator: %d ranks (1 to %d), %d slots (2 to %d), pieces of %d bytes (a multiple "
        "of %d, 64 per rank to %d)",
        shape.world_size, kMaxShmRanks, shape.slots, kMaxSlots, shape.piece_bytes, base::kPageBytes,
        kMaxPieceBytes));
  }
  Segment segment;
  GEMINID_ASSIGN_OR_RETURN(
      segment.fd_, base::CreateSealedMemfd("geminid-collectives", SegmentLayout::Of(shape).end));
  GEMINID_RETURN_IF_ERROR(segment.Map(shape));
  new (segment.base()) Header{.shape = shape, .failure = {}};
  // The rest is zero, which is the initial state of every counter and record.
  return segment;
}

absl::StatusOr<Segment> Segment::Open(base::UniqueFd fd, int world_size) {
  Header header;
  const bool complete = ::pread(fd.get(), static_cast<void*>(&header), sizeof(header), 0) ==
                        static_cast<ssize_t>(sizeof(header));
  if (!complete || header.magic != kMagic || header.version != kVersion ||
      !Sensible(header.shape) || header.shape.world_size != static_cast<uint32_t>(world_size)) {
    return absl::InvalidArgumentError(
        "rank 0 offers shared memory of another kind; do all ranks run the same build?");
  }
  Segment segment;
  segment.fd_ = std::move(fd);
  GEMINID_RETURN_IF_ERROR(segment.Map(header.shape));
  return segment;
}

absl::Status Segment::Map(const SegmentShape& shape) {
  shape_ = shape;
  layout_ = SegmentLayout::Of(shape);
  GEMINID_ASSIGN_OR_RETURN(
      mapping_, base::Mapping::Map(fd_, layout_.end, {.foreign = true, .inherited = true}));
  return absl::OkStatus();
}

FailureRecord& Segment::failure() const { return reinterpret_cast<Header*>(base())->failure; }

RankControl& Segment::control(int rank) const {
  return reinterpret_cast<RankControl*>(base() + layout_.controls)[rank];
}

Label& Segment::label(int rank, uint32_t slot) const {
  return reinterpret_cast<Label*>(base() +
                                  layout_.labels)[static_cast<size_t>(rank) * shape_.slots + slot];
}

std::byte* Segment::staging(int rank, uint32_t slot) const {
  return base() + layout_.staging +
         (static_cast<size_t>(rank) * shape_.slots + slot) * shape_.piece_bytes;
}

Channel& Segment::channel(int from, int to) const {
  return reinterpret_cast<Channel*>(
      base() +
      layout_.channels)[static_cast<size_t>(from) * shape_.world_size + static_cast<size_t>(to)];
}

std::byte* Segment::message(int from, int to, uint32_t slot) const {
  const size_t pair = static_cast<size_t>(from) * shape_.world_size + static_cast<size_t>(to);
  return base() + layout_.messages + (pair * kMessageSlots + slot) * shape_.message_bytes;
}

}  // namespace geminid::collectives
