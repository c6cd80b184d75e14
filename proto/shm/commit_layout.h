// The commit segment. It makes each optimizer step one indivisible event.
//
//   +--------------+------------------+------------------+---------------------------+
//   | CommitHeader | CommitRecord [0] | CommitRecord [1] | ChunkVersion[kMaxChunks]  |
//   | 64 B         | 192 B            | 192 B            | 8 B each                  |
//   +--------------+------------------+------------------+---------------------------+
//
// The client writes the segment, with single-word stores where it matters; the segment outlives the
// client. A step's scalars are written into the record that is not current, the checksum last. The
// valid record with the larger epoch counts, so a death at any instruction leaves the older record
// valid. Each chunk group's version word names the extent with the group's newest state, and the
// step that made it. The word is stored once, after that state is complete. Words newer than the
// newest record belong to an incomplete step whose updates were made in its backward pass. Such a
// step can be neither finished nor undone. The last group may be the optimizer's numbers per
// tensor; its extents 0 and 1 are written before the record.
//
// Between ranks. A rank writes the record of step t only after a collective. Each rank enters that
// collective when all its gradients of step t are reduced and kept, and its update of step t - 1 is
// complete. No gradient of step t + 1 replaces one of step t before that group's update. So the
// records of two ranks are at most one step apart at any instant. If any rank has recorded t, every
// rank has what step t needs, and completes it with what remains of its own update. A rank that is
// behind uses the other's record and notes (client/zero/state/step_notes.h). No older state is ever
// needed.
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
  // them, or something else has changed them since; the next client begins anew.
  std::atomic<uint32_t> resumable;
  uint32_t optimizer;  // whose state it is, in the client's numbers; 0: not noted
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
  // State of the loss scaler after this step. loss_scale is the scale of this step's gradients.
  double next_loss_scale;
  uint32_t good_steps;
  uint32_t overflows;
  uint32_t overflow;  // 1: a gradient was not finite, and the step changed nothing
  uint32_t crc32c;    // of every byte before it
  uint8_t padding[64];
};
static_assert(sizeof(CommitRecord) == 192);
static_assert(offsetof(CommitRecord, crc32c) == 116);

// From bit 63 down: epoch (40 bits), extent (24 bits), one of the group's interchangeable extents.
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

// Writes `record`, with the next epoch, into the slot that is not current, and returns that epoch.
// A crash after any of its stores leaves the older record valid. One writer at a time.
uint64_t WriteRecord(CommitSegment* segment, CommitRecord record);

}  // namespace geminid::shm

#endif  // GEMINID_PROTO_SHM_COMMIT_LAYOUT_H_
