// The shared memory of one shm communicator: a sealed memfd with this layout:
//
//   header | rank controls [P] | slot labels [P][slots] | channels [P][P]        (page aligned)
//   staging [P][slots] of piece_bytes | messages [P][P][message slots] of message_bytes
//
// Only rank r writes its control (except the doorbell, a counter that any rank may bump), its
// labels and its staging. A channel has one sender and one receiver. So a rank that is killed at
// any instruction leaves nothing locked. The memory is freed with the last process that maps it.
#ifndef GEMINID_COLLECTIVES_SHM_SEGMENT_H_
#define GEMINID_COLLECTIVES_SHM_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mapping.h"
#include "base/unique_fd.h"
#include "collectives/operation.h"
#include "collectives/shm/futex.h"

namespace geminid::collectives {

inline constexpr int kMaxShmRanks = 128;      // limited by the descriptors of one message (253)
inline constexpr uint32_t kMessageSlots = 4;  // pieces of one message in flight
inline constexpr uint32_t kMessageBytes = 128 * 1024;

// Decided by rank 0, read by the others.
struct SegmentShape {
  uint32_t world_size = 0;
  uint32_t slots = 0;        // pieces by which a rank may run ahead of the slowest
  uint32_t piece_bytes = 0;  // multiples of 64 * world_size waste nothing
  uint32_t message_bytes = kMessageBytes;
};

// The group's first failure. state: 0 none, 1 being written, 2 written.
struct FailureRecord {
  std::atomic<uint32_t> state{0};
  int32_t code = 0;
  uint32_t length = 0;
  char text[1012] = {};
};

struct RankControl {
  Counter published;  // rounds that this rank has put in its staging
  Counter consumed;   // rounds that this rank has finished reading
  Counter survival;   // this rank's progress towards a new group; see survival.h
  Counter doorbell;   // bumped by peers that moved data in a channel of this rank
  alignas(64) std::atomic<uint32_t> left{0};  // 1: the communicator was destroyed in good order
};

struct alignas(64) MessageLabel {
  Operation operation;
};

// Of a collective.
struct alignas(64) Label {
  Operation operation;
  // The rank's last Broadcast before this one, and a hash of all of them. Not all ranks look at
  // each other in a Broadcast, so the next collective compares them.
  Operation last_broadcast{};
  uint64_t broadcasts = 0;
};

struct Channel {
  alignas(64) std::atomic<uint32_t> published{0};
  alignas(64) std::atomic<uint32_t> consumed{0};
  MessageLabel labels[kMessageSlots];
};

// The offset of each part, in bytes.
struct SegmentLayout {
  size_t controls = 0;
  size_t labels = 0;
  size_t channels = 0;
  size_t staging = 0;
  size_t messages = 0;
  size_t end = 0;

  static SegmentLayout Of(const SegmentShape& shape);
};

class Segment {
 public:
  // Creates a segment that is sealed against shrinking, so that no peer can cause SIGBUS here.
  static absl::StatusOr<Segment> Create(const SegmentShape& shape);
  // Maps a peer's segment. INVALID_ARGUMENT unless it has this version and world size.
  static absl::StatusOr<Segment> Open(base::UniqueFd fd, int world_size);

  const SegmentShape& shape() const { return shape_; }
  int fd() const { return fd_.get(); }

  FailureRecord& failure() const;
  RankControl& control(int rank) const;
  Label& label(int rank, uint32_t slot) const;
  std::byte* staging(int rank, uint32_t slot) const;
  Channel& channel(int from, int to) const;
  std::byte* message(int from, int to, uint32_t slot) const;

 private:
  Segment() = default;
  absl::Status Map(const SegmentShape& shape);
  std::byte* base() const { return mapping_.data(); }

  base::UniqueFd fd_;
  SegmentShape shape_;
  SegmentLayout layout_;
  base::Mapping mapping_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SHM_SEGMENT_H_
