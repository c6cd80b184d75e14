// The commit segment: what makes an optimizer step one indivisible event.
//
//   +--------------+------------------+------------------+---------------------------+
//   | CommitHeader | CommitRecord [0] | CommitRecord [1] | ChunkVersion[kMaxChunks]  |
//   | 64 B         | 192 B            | 192 B            | 8 B each                  |
//   +--------------+------------------+------------------+---------------------------+
//
// The client writes it, one word at a time where it matters; it outlives the client. A step's
// scalars are written into the slot that is not current, its checksum last; the valid record with
// the larger epoch is the truth, so a death at any instruction leaves the older record valid. Each
// chunk group's version word names the extent that holds its newest state and the step that made
// it; it is stored once, after the new state is complete. Words newer than the newest record are of
// a step whose updates were made in its backward pass and that was not completed: it can be neither
// finished nor undone. A last group may be the optimizer's
// numbers per tensor, whose extents 0 and 1 are written before the record.
//
// Between ranks. A rank writes the record of step t only after a collective that each rank enters
// when all its gradients of step t are reduced and kept, and its update of step t - 1 is complete.
// And no gradient of step t + 1 replaces one of step t before that group's update. So at any
// instant the records of two ranks are at most one step apart; where some rank has recorded t,
// every rank has what step t needs, and rolls it forward: one that is behind with the other's
// record and notes (client/zero/state/step_notes.h), every one with what remains of its own update.
// No older state is ever needed.
#ifndef GEMINID_PROTO_SHM_COMMIT_LAYOUT_H_
#define GEMINID_PROTO_SHM_COMMIT_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "proto/shm/crc32c.h"
#include "proto/shm/session_layout.h"

namespace geminid::shm {

inline constexpr uint32_t kCommitMagic = 0x4d4f4347;  // "GCOM"
inline constexpr uint32_t kCommitVersion = 2;
inline constexpr int kRandomStateWords = 4;

struct alignas(64) CommitHeader {
  uint32_t magic;
  uint32_t version;
  uint32_t size_of_record;
  uint32_t groups;  // how many ChunkVersion words are in use
  // 1: the record and the version words describe the session's chunks. 0: nothing was committed to
  // them, or they were changed by other means since; a successor begins anew.
  std::atomic<uint32_t> resumable;
};
static_assert(sizeof(CommitHeader) == 64);

struct alignas(64) CommitRecord {
  uint64_t epoch;  // 0: never written
  uint64_t step;
  double gradient_norm;
  double loss_scale;
  double learning_rate;
  double clip_coefficient;
  uint64_t random_state[kRandomStateWords];
  uint64_t data_position;  // samples consumed
  uint64_t updates;        // steps that changed the weights, this one included
  // The loss scaler after this step; loss_scale is what this step's gradients had.
  double next_loss_scale;
  uint32_t good_steps;
  uint32_t overflows;
  uint32_t overflow;  // 1: a non-finite gradient, the step changed nothing
  uint32_t crc32c;    // of every byte before it
  uint8_t padding[64];
};
static_assert(sizeof(CommitRecord) == 192);
static_assert(offsetof(CommitRecord, crc32c) == 116);

// 63: epoch (40 bits), then extent (24 bits): which of the group's interchangeable extents.
struct ChunkVersion {
  uint64_t epoch = 0;
  uint32_t extent = 0;
  constexpr uint64_t Encode() const { return epoch << 24 | (extent & 0xffffffu); }
  static constexpr ChunkVersion Decode(uint64_t word) {
    return {word >> 24, static_cast<uint32_t>(word) & 0xffffffu};
  }
};

struct CommitSegment {
  CommitHeader header;
  CommitRecord records[2];
  std::atomic<uint64_t> versions[kMaxChunks];
};
static_assert(offsetof(CommitSegment, versions) == 64 + 2 * 192);

inline uint32_t Checksum(const CommitRecord& record) {
  return Crc32c(&record, offsetof(CommitRecord, crc32c));
}

inline bool IsValid(const CommitRecord& record) {
  return record.epoch != 0 && record.crc32c == Checksum(record);
}

// The newest valid record, or null when there is none.
const CommitRecord* NewestRecord(const CommitSegment& segment);

// Writes `record` with the next epoch into the slot that is not current, and returns that epoch.
// Crash-safe at every store; one writer.
uint64_t WriteRecord(CommitSegment* segment, CommitRecord record);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_COMMIT_LAYOUT_H_
