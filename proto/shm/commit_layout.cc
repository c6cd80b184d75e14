#include "proto/shm/commit_layout.h"

#include <cstring>

namespace geminid::shm {

const CommitRecord* NewestRecord(const CommitSegment& segment) {
  const CommitRecord* newest = nullptr;
  for (const CommitRecord& record : segment.records) {
    if (IsValid(record) && (newest == nullptr || record.epoch > newest->epoch)) newest = &record;
  }
  return newest;
}

uint64_t WriteRecord(CommitSegment* segment, CommitRecord record) {
  const CommitRecord* newest = NewestRecord(*segment);
  record.epoch = newest == nullptr ? 1 : newest->epoch + 1;
  record.crc32c = Checksum(record);
  CommitRecord* target = &segment->records[newest == &segment->records[0] ? 1 : 0];
  // The old checksum goes first, so that no mixture of the old record and the new one is valid.
  std::atomic_ref<uint32_t>(target->crc32c).store(~record.crc32c, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(target, &record, offsetof(CommitRecord, crc32c));
  std::atomic_thread_fence(std::memory_order_release);
  std::atomic_ref<uint32_t>(target->crc32c).store(record.crc32c, std::memory_order_release);
  return record.epoch;
}

}  // namespace geminid::shm
