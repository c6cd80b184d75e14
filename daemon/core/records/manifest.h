// The manifest: the daemon's authoritative record of every chunk, in memory that no client ever
// sees.
//
//   +--------------+--------------+-------------------------+
//   | Superblock A | Superblock B | Record[record_count]    |
//   | 64 B         | 64 B         | 128 B each              |
//   +--------------+--------------+-------------------------+
//
// The caller provides the memory (a memfd that outlives the process, or a vector in a test). A
// chunk's residency, device place and valid location change together, in one 64-bit word. So
// wherever the daemon dies, the record names three that belong together. Making a record ends with
// the store of its owner word; removing it begins with clearing that word. The superblock holds
// numbers that must never go back. It is written alternately to A and B, with a sequence number and
// a CRC-32C; the newest valid one counts.
//
// Records are opened for use in batches, in order: they are cleared, then the superblock counts
// them as opened. Unopened records are neither read nor written, so their pages take no memory.
#ifndef GEMINID_DAEMON_CORE_RECORDS_MANIFEST_H_
#define GEMINID_DAEMON_CORE_RECORDS_MANIFEST_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/core/basics/ids.h"
#include "proto/shm/chunk_state.h"
#include "proto/shm/lease.h"

namespace geminid::core {

inline constexpr uint32_t kManifestMagic = 0x464e4d47;  // "GMNF"
// 2: slot numbers of 32 bits. 3: records of 128 bytes, with the state that a restarted daemon
// needs. 4: records are opened in batches.
inline constexpr uint32_t kManifestVersion = 4;
// Records that are opened together: 512 KiB.
inline constexpr uint32_t kRecordsPerOpening = 4096;
// If so many daemons in a row crash before they serve, the manifest is held to be the cause.
// Daemons that somebody killed do not count.
inline constexpr uint32_t kMaxCrashes = 10;

// Where a chunk's content is valid. Never names a place that is being written.
enum class ValidLocation : uint8_t {
  kNowhere = 0,  // no content yet, or device-only and not on the device
  kHome = 1,     // in its host pool; a clean device copy may exist as well
  kDevice = 2,   // on the device alone: dirty, or without a home
};
const char* Name(ValidLocation location);

// The status word of a record: the one that changes.
//   63          61 60      58 57           56 55               32 31                      0
//  +--------------+----------+---------------+-------------------+-------------------------+
//  | residency(3) | state(3) | valid (2)     | generation (24)   | device slot (32)        |
//  +--------------+----------+---------------+-------------------+-------------------------+
//
// Dirty, the fourth value of `valid`: only the device copy is valid, although there is a home.
struct ChunkStatus {
  shm::Residency residency = shm::Residency::kAbsent;
  shm::ChunkState state = shm::ChunkState::kFree;
  ValidLocation valid = ValidLocation::kNowhere;
  bool dirty = false;  // only with kDevice
  uint32_t generation = 0;
  uint32_t slot = 0;  // device offset in units of shm::kSlotBytes, when residency is not kAbsent

  uint64_t Encode() const;
  static ChunkStatus Decode(uint64_t word);
  uint64_t device_offset() const { return slot * shm::kSlotBytes; }
  // The word clients see.
  uint64_t Published() const { return shm::StateWord{residency, generation, slot}.Encode(); }
  bool operator==(const ChunkStatus&) const = default;
};

// The facts of a chunk that never change.
struct ChunkIdentity {
  SessionId session{};
  ChunkId chunk{};
  ChunkKind kind = ChunkKind::kNone;
  uint64_t bytes = 0;
  PoolId pool = kNoPool;     // kNoPool: no home, lives on the device only
  uint64_t home_offset = 0;  // within the pool
  bool has_home() const { return pool != kNoPool; }
};

// Whether a chunk's home is lost, and what is due when its transfers are done.
struct ChunkProgress {
  bool home_lost = false;
  bool publish_when_idle = false;
  bool drop_when_idle = false;
  bool operator==(const ChunkProgress&) const = default;
};

// [begin, end) of a chunk's bytes; empty where end <= begin.
struct ByteRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool empty() const { return end <= begin; }
};

enum class RecordIndex : uint32_t {};

// A view of the caller's memory, which must outlive it and be aligned to 64 bytes. Not
// thread-safe.
class Manifest {
 public:
  static size_t BytesFor(uint32_t record_count);

  Manifest(Manifest&&) = default;
  Manifest& operator=(Manifest&&) = default;

  // Formats `memory`. INVALID_ARGUMENT when it holds no record or is misaligned.
  static absl::StatusOr<Manifest> Create(std::span<std::byte> memory, uint64_t epoch);
  // Takes over an earlier daemon's manifest, and raises the epoch by one, to `least_epoch` at
  // least. `crashed`: the previous daemon did. Records that make no sense are cleared and counted.
  // FAILED_PRECONDITION: another release wrote it; nothing is touched. DATA_LOSS: neither
  // superblock is valid. ABORTED: kMaxCrashes daemons in a row took it over and crashed before
  // HasServed().
  static absl::StatusOr<Manifest> Open(std::span<std::byte> memory, uint64_t least_epoch = 0,
                                       bool crashed = false);
  // The daemon serves, so the manifest did not crash it: resets the count of crashes.
  void HasServed();

  uint64_t epoch() const { return current_.epoch; }
  uint32_t record_count() const { return current_.record_count; }
  uint32_t used_records() const { return used_; }
  // The bytes of its memory that it has touched.
  size_t bytes_in_use() const { return BytesFor(current_.opened_records); }
  uint32_t lost_records() const { return lost_; }

  // No id is given twice, not even after a restart on the same memory.
  SessionId NewSessionId();
  PoolId NewPoolId();

  // RESOURCE_EXHAUSTED when all records are taken. `allocation`: see AllocationOf; no record is
  // ever visible without it.
  absl::StatusOr<RecordIndex> Add(const ChunkIdentity& identity, const ChunkStatus& status,
                                  uint64_t allocation = 0);
  void Remove(RecordIndex index);

  ChunkIdentity Identity(RecordIndex index) const;
  ChunkStatus Status(RecordIndex index) const;
  void SetStatus(RecordIndex index, const ChunkStatus& status);  // one store
  // The ticket that is moving the chunk; kNoTicket: none.
  TicketId Transfer(RecordIndex index) const;
  void SetTransfer(RecordIndex index, TicketId ticket);
  uint32_t Loads(RecordIndex index) const;
  uint32_t Drops(RecordIndex index) const;
  void CountLoad(RecordIndex index);
  void CountDrop(RecordIndex index);

  ChunkProgress Progress(RecordIndex index) const;
  void SetProgress(RecordIndex index, const ChunkProgress& progress);  // one store
  // How often the chunk became dirty, and one range of that content that its home has already;
  // others are not recorded. Never bytes that the home lacks, wherever the daemon dies.
  uint64_t DirtyEpoch(RecordIndex index) const;
  ByteRange WrittenBack(RecordIndex index) const;
  void BeginDirtyEpoch(RecordIndex index, uint64_t epoch);  // the home has none of it yet
  void AddWrittenBack(RecordIndex index, ByteRange range);
  void ClearWrittenBack(RecordIndex index);
  // The client's number of the allocation that made the chunk; 0: it has none.
  uint64_t AllocationOf(RecordIndex index) const;
  void SetAllocation(RecordIndex index, uint64_t allocation);

  // All records in use, in order of their index.
  std::vector<RecordIndex> Used() const;

 private:
  struct Superblock {
    uint32_t magic;
    uint32_t version;
    uint32_t record_bytes;
    uint32_t record_count;
    uint64_t epoch;
    uint64_t sequence;
    uint64_t last_session;
    uint32_t last_pool;
    uint32_t crashes;         // of daemons that took it over, since the last that served
    uint32_t opened_records;  // the records below this index
    uint32_t crc32c;          // of every byte before it
    uint8_t padding[8];
  };
  static_assert(sizeof(Superblock) == 64);

  struct alignas(64) Record {
    std::atomic<uint64_t> owner;  // the session; 0: the record is free
    std::atomic<uint64_t> chunk_and_kind;
    std::atomic<uint64_t> bytes;
    std::atomic<uint64_t> pool;
    std::atomic<uint64_t> home_offset;
    std::atomic<uint64_t> status;
    std::atomic<uint64_t> transfer;
    std::atomic<uint64_t> counters;  // loads (upper half), drops
    std::atomic<uint64_t> progress;  // bits: ChunkProgress
    std::atomic<uint64_t> dirty_epoch;
    std::atomic<uint64_t> written_begin;
    std::atomic<uint64_t> written_end;
    std::atomic<uint64_t> allocation;
    std::atomic<uint64_t> reserved[3];
  };
  static_assert(sizeof(Record) == 128);

  Manifest() = default;
  static absl::StatusOr<Manifest> Attach(std::span<std::byte> memory);
  absl::Status ReadSuperblocks(uint32_t fit);
  static bool IsSound(const Record& record);
  void WriteSuperblock();
  void CollectFree();
  void OpenRecords();
  Record& At(RecordIndex index) { return records_[static_cast<uint32_t>(index)]; }
  const Record& At(RecordIndex index) const { return records_[static_cast<uint32_t>(index)]; }

  std::byte* superblocks_ = nullptr;
  Record* records_ = nullptr;
  Superblock current_{};
  std::vector<uint32_t> free_;  // of the opened: a stack, at first the lowest index on top
  uint32_t used_ = 0;
  uint32_t lost_ = 0;
};

}  // namespace geminid::core

#endif  // GEMINID_DAEMON_CORE_RECORDS_MANIFEST_H_
