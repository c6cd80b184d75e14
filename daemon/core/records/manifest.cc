#include "daemon/core/records/manifest.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "proto/shm/crc32c.h"
#include "proto/shm/session_layout.h"

namespace geminid::core {
namespace {

constexpr size_t kSuperblockBytes = 64;
constexpr size_t kSuperblocks = 2;
constexpr size_t kRecordBytes = 128;
constexpr uint64_t kOneLoad = uint64_t{1} << 32;

// Bits of a progress word.
constexpr uint64_t kHomeLost = 1;
constexpr uint64_t kPublishWhenIdle = 2;
constexpr uint64_t kDropWhenIdle = 4;

// Fields of a status word.
constexpr int kResidencyShift = 61;
constexpr int kStateShift = 58;
constexpr int kValidShift = 56;
constexpr uint64_t kStateMask = 0x7;
constexpr uint64_t kValidMask = 0x3;
constexpr uint64_t kDeviceAndDirty = 3;
static_assert(static_cast<uint64_t>(shm::Residency::kEvicting) < 8 && shm::kChunkStates <= 8);

}  // namespace

const char* Name(ValidLocation location) {
  switch (location) {
    case ValidLocation::kNowhere:
      return "nowhere";
    case ValidLocation::kHome:
      return "home";
    case ValidLocation::kDevice:
      return "device";
  }
  return "unknown";
}

uint64_t ChunkStatus::Encode() const {
  const uint64_t where = dirty ? kDeviceAndDirty : static_cast<uint64_t>(valid);
  return static_cast<uint64_t>(residency) << kResidencyShift |
         static_cast<uint64_t>(state) << kStateShift | where << kValidShift |
         static_cast<uint64_t>(generation & shm::kGenerationMask) << shm::kSlotBits | slot;
}

ChunkStatus ChunkStatus::Decode(uint64_t word) {
  const uint64_t where = word >> kValidShift & kValidMask;
  const bool dirty = where == kDeviceAndDirty;
  return {.residency = static_cast<shm::Residency>(word >> kResidencyShift),
          .state = static_cast<shm::ChunkState>(word >> kStateShift & kStateMask),
          .valid = dirty ? ValidLocation::kDevice : static_cast<ValidLocation>(where),
          .dirty = dirty,
          .generation = static_cast<uint32_t>(word >> shm::kSlotBits) & shm::kGenerationMask,
          .slot = static_cast<uint32_t>(word)};
}

size_t Manifest::BytesFor(uint32_t record_count) {
  return kSuperblocks * kSuperblockBytes + size_t{record_count} * kRecordBytes;
}

absl::StatusOr<Manifest> Manifest::Attach(std::span<std::byte> memory) {
  static_assert(sizeof(Superblock) == kSuperblockBytes && sizeof(Record) == kRecordBytes);
  if (reinterpret_cast<uintptr_t>(memory.data()) % alignof(Record) != 0) {
    return absl::InvalidArgumentError("the manifest's memory must be aligned to 64 bytes");
  }
  if (memory.size() < BytesFor(1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a manifest needs at least ", BytesFor(1), " bytes, not ", memory.size()));
  }
  Manifest manifest;
  manifest.superblocks_ = memory.data();
  manifest.records_ = reinterpret_cast<Record*>(memory.data() + kSuperblocks * kSuperblockBytes);
  const size_t fit = (memory.size() - kSuperblocks * kSuperblockBytes) / kRecordBytes;
  manifest.current_.record_count =
      static_cast<uint32_t>(std::min<size_t>(fit, std::numeric_limits<uint32_t>::max()));
  return manifest;
}

absl::StatusOr<Manifest> Manifest::Create(std::span<std::byte> memory, uint64_t epoch) {
  absl::StatusOr<Manifest> manifest = Attach(memory);
  if (!manifest.ok()) return manifest.status();
  std::memset(manifest->superblocks_, 0, kSuperblocks * kSuperblockBytes);
  Superblock& current = manifest->current_;
  current.magic = kManifestMagic;
  current.version = kManifestVersion;
  current.record_bytes = kRecordBytes;
  current.epoch = epoch;
  manifest->WriteSuperblock();
  return manifest;
}

absl::Status Manifest::ReadSuperblocks(uint32_t fit) {
  bool found = false;
  uint32_t other_version = 0;
  for (size_t i = 0; i < kSuperblocks; ++i) {
    Superblock block;
    std::memcpy(&block, superblocks_ + i * kSuperblockBytes, sizeof(block));
    if (block.magic != kManifestMagic) continue;
    if (block.version != kManifestVersion) other_version = block.version;
    const bool valid = block.version == kManifestVersion && block.record_bytes == kRecordBytes &&
                       block.record_count <= fit && block.opened_records <= block.record_count &&
                       block.crc32c == shm::Crc32c(&block, offsetof(Superblock, crc32c));
    if (!valid || (found && block.sequence <= current_.sequence)) continue;
    current_ = block;
    found = true;
  }
  if (found) return absl::OkStatus();
  if (other_version != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the manifest has version ", other_version, ", this release knows version ",
                     kManifestVersion, "; start the release that wrote it"));
  }
  return absl::DataLossError(
      absl::StrCat("neither superblock of the manifest is valid for version ", kManifestVersion,
                   "; start with a new manifest (sessions attach again)"));
}

absl::StatusOr<Manifest> Manifest::Open(std::span<std::byte> memory, uint64_t least_epoch,
                                        bool crashed) {
  absl::StatusOr<Manifest> manifest = Attach(memory);
  if (!manifest.ok()) return manifest.status();
  absl::Status read = manifest->ReadSuperblocks(manifest->record_count());
  if (!read.ok()) return read;
  Superblock& current = manifest->current_;
  if (crashed) ++current.crashes;
  if (current.crashes >= kMaxCrashes) {
    return absl::AbortedError(
        absl::StrCat(current.crashes,
                     " daemons took the manifest over and crashed before they served; start with "
                     "a new one (sessions attach again)"));
  }
  for (uint32_t i = 0; i < current.opened_records; ++i) {
    Record& record = manifest->records_[i];
    if (record.owner.load(std::memory_order_acquire) == 0 || IsSound(record)) continue;
    record.owner.store(0, std::memory_order_release);
    ++manifest->lost_;
  }
  current.epoch = std::max(current.epoch + 1, least_epoch);
  manifest->WriteSuperblock();
  manifest->CollectFree();
  return manifest;
}

void Manifest::HasServed() {
  if (current_.crashes == 0) return;
  current_.crashes = 0;
  WriteSuperblock();
}

bool Manifest::IsSound(const Record& record) {
  const uint64_t chunk_and_kind = record.chunk_and_kind.load(std::memory_order_relaxed);
  const uint64_t kind = chunk_and_kind >> 32;
  const ChunkStatus status = ChunkStatus::Decode(record.status.load(std::memory_order_relaxed));
  const uint64_t pool = record.pool.load(std::memory_order_relaxed);
  return static_cast<uint32_t>(chunk_and_kind) < shm::kMaxChunks && kind >= 1 &&
         kind <= static_cast<uint64_t>(shm::kLastChunkKind) &&
         record.bytes.load(std::memory_order_relaxed) > 0 &&
         pool <= std::numeric_limits<uint32_t>::max() && shm::IsValid(status.state) &&
         status.residency >= shm::Residency::kAbsent &&
         status.residency <= shm::Residency::kEvicting &&
         (pool != 0 || (status.valid != ValidLocation::kHome && !status.dirty));
}

void Manifest::CollectFree() {
  free_.clear();
  for (uint32_t i = current_.opened_records; i-- > 0;) {
    if (records_[i].owner.load(std::memory_order_acquire) == 0) free_.push_back(i);
  }
  used_ = current_.opened_records - static_cast<uint32_t>(free_.size());
}

// If the daemon dies in between, they stay unopened, and the next daemon clears them again.
void Manifest::OpenRecords() {
  const uint32_t begin = current_.opened_records;
  const uint32_t end = begin + std::min(kRecordsPerOpening, record_count() - begin);
  for (uint32_t i = begin; i < end; ++i) new (&records_[i]) Record{};
  current_.opened_records = end;
  WriteSuperblock();
  for (uint32_t i = end; i-- > begin;) free_.push_back(i);
}

void Manifest::WriteSuperblock() {
  ++current_.sequence;
  current_.crc32c = shm::Crc32c(&current_, offsetof(Superblock, crc32c));
  std::memcpy(superblocks_ + (current_.sequence % kSuperblocks) * kSuperblockBytes, &current_,
              sizeof(current_));
  // Stored before anything that relies on it. The next write goes to the other, older block.
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

SessionId Manifest::NewSessionId() {
  ++current_.last_session;
  WriteSuperblock();
  return SessionId{current_.last_session};
}

PoolId Manifest::NewPoolId() {
  ++current_.last_pool;
  WriteSuperblock();
  return PoolId{current_.last_pool};
}

absl::StatusOr<RecordIndex> Manifest::Add(const ChunkIdentity& identity, const ChunkStatus& status,
                                          uint64_t allocation) {
  if (free_.empty()) OpenRecords();
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", record_count(),
                     " chunk records of the daemon are taken; free chunks, "
                     "or use larger ones"));
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  ++used_;
  Record& record = records_[index];
  const uint64_t kind = static_cast<uint64_t>(identity.kind) << 32;
  record.chunk_and_kind.store(kind | shm::Index(identity.chunk), std::memory_order_relaxed);
  record.bytes.store(identity.bytes, std::memory_order_relaxed);
  record.pool.store(shm::Value(identity.pool), std::memory_order_relaxed);
  record.home_offset.store(identity.home_offset, std::memory_order_relaxed);
  record.status.store(status.Encode(), std::memory_order_relaxed);
  record.transfer.store(0, std::memory_order_relaxed);
  record.counters.store(0, std::memory_order_relaxed);
  record.progress.store(0, std::memory_order_relaxed);
  record.dirty_epoch.store(0, std::memory_order_relaxed);
  record.written_begin.store(0, std::memory_order_relaxed);
  record.written_end.store(0, std::memory_order_relaxed);
  record.allocation.store(allocation, std::memory_order_relaxed);
  record.owner.store(shm::Value(identity.session), std::memory_order_release);
  return RecordIndex{index};
}

void Manifest::Remove(RecordIndex index) {
  At(index).owner.store(0, std::memory_order_release);
  free_.push_back(static_cast<uint32_t>(index));
  --used_;
}

ChunkIdentity Manifest::Identity(RecordIndex index) const {
  const Record& record = At(index);
  const uint64_t chunk_and_kind = record.chunk_and_kind.load(std::memory_order_relaxed);
  return {.session = SessionId{record.owner.load(std::memory_order_acquire)},
          .chunk = ChunkId{static_cast<uint32_t>(chunk_and_kind)},
          .kind = static_cast<ChunkKind>(chunk_and_kind >> 32),
          .bytes = record.bytes.load(std::memory_order_relaxed),
          .pool = PoolId{static_cast<uint32_t>(record.pool.load(std::memory_order_relaxed))},
          .home_offset = record.home_offset.load(std::memory_order_relaxed)};
}

ChunkStatus Manifest::Status(RecordIndex index) const {
  return ChunkStatus::Decode(At(index).status.load(std::memory_order_relaxed));
}

void Manifest::SetStatus(RecordIndex index, const ChunkStatus& status) {
  At(index).status.store(status.Encode(), std::memory_order_release);
}

TicketId Manifest::Transfer(RecordIndex index) const {
  return TicketId{At(index).transfer.load(std::memory_order_relaxed)};
}

void Manifest::SetTransfer(RecordIndex index, TicketId ticket) {
  At(index).transfer.store(shm::Value(ticket), std::memory_order_release);
}

uint32_t Manifest::Loads(RecordIndex index) const {
  return static_cast<uint32_t>(At(index).counters.load(std::memory_order_relaxed) >> 32);
}

uint32_t Manifest::Drops(RecordIndex index) const {
  return static_cast<uint32_t>(At(index).counters.load(std::memory_order_relaxed));
}

void Manifest::CountLoad(RecordIndex index) {
  std::atomic<uint64_t>& counters = At(index).counters;
  counters.store(counters.load(std::memory_order_relaxed) + kOneLoad, std::memory_order_relaxed);
}

void Manifest::CountDrop(RecordIndex index) {
  std::atomic<uint64_t>& counters = At(index).counters;
  const uint64_t word = counters.load(std::memory_order_relaxed);
  const uint32_t drops = static_cast<uint32_t>(word) + 1;
  counters.store((word & ~uint64_t{0xffffffff}) | drops, std::memory_order_relaxed);
}

ChunkProgress Manifest::Progress(RecordIndex index) const {
  const uint64_t word = At(index).progress.load(std::memory_order_acquire);
  return {.home_lost = (word & kHomeLost) != 0,
          .publish_when_idle = (word & kPublishWhenIdle) != 0,
          .drop_when_idle = (word & kDropWhenIdle) != 0};
}

void Manifest::SetProgress(RecordIndex index, const ChunkProgress& progress) {
  At(index).progress.store((progress.home_lost ? kHomeLost : 0) |
                               (progress.publish_when_idle ? kPublishWhenIdle : 0) |
                               (progress.drop_when_idle ? kDropWhenIdle : 0),
                           std::memory_order_release);
}

uint64_t Manifest::DirtyEpoch(RecordIndex index) const {
  return At(index).dirty_epoch.load(std::memory_order_acquire);
}

ByteRange Manifest::WrittenBack(RecordIndex index) const {
  return {At(index).written_begin.load(std::memory_order_acquire),
          At(index).written_end.load(std::memory_order_acquire)};
}

void Manifest::BeginDirtyEpoch(RecordIndex index, uint64_t epoch) {
  ClearWrittenBack(index);
  At(index).dirty_epoch.store(epoch, std::memory_order_release);
}

// Half of an Add or of a Clear names only bytes that the home has, or none.
void Manifest::AddWrittenBack(RecordIndex index, ByteRange range) {
  Record& record = At(index);
  const ByteRange old = WrittenBack(index);
  if (!old.empty()) {
    if (range.begin > old.end || range.end < old.begin) return;
    range = {std::min(range.begin, old.begin), std::max(range.end, old.end)};
  }
  record.written_begin.store(range.begin, std::memory_order_release);
  record.written_end.store(range.end, std::memory_order_release);
}

void Manifest::ClearWrittenBack(RecordIndex index) {
  At(index).written_end.store(0, std::memory_order_release);
  At(index).written_begin.store(0, std::memory_order_release);
}

uint64_t Manifest::AllocationOf(RecordIndex index) const {
  return At(index).allocation.load(std::memory_order_acquire);
}

void Manifest::SetAllocation(RecordIndex index, uint64_t allocation) {
  At(index).allocation.store(allocation, std::memory_order_release);
}

std::vector<RecordIndex> Manifest::Used() const {
  std::vector<RecordIndex> used;
  used.reserve(used_);
  for (uint32_t i = 0; i < current_.opened_records; ++i) {
    if (records_[i].owner.load(std::memory_order_acquire) != 0) used.push_back(RecordIndex{i});
  }
  return used;
}

}  // namespace geminid::core
