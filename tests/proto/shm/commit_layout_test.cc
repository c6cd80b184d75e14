#include "proto/shm/commit_layout.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace geminid::shm {
namespace {

CommitRecord Step(uint64_t step) {
  CommitRecord record = {};
  record.step = step;
  record.learning_rate = 0.001 * static_cast<double>(step);
  return record;
}

class CommitRecordTest : public ::testing::Test {
 protected:
  std::unique_ptr<CommitSegment> segment_ = std::make_unique<CommitSegment>();
};

TEST_F(CommitRecordTest, FreshSegment_HasNoRecord) { EXPECT_EQ(NewestRecord(*segment_), nullptr); }

TEST_F(CommitRecordTest, EachWrite_BecomesTheNewestAndLeavesTheOneBefore) {
  for (uint64_t step = 1; step <= 5; ++step) {
    EXPECT_EQ(WriteRecord(segment_.get(), Step(step)), step);
    ASSERT_NE(NewestRecord(*segment_), nullptr);
    EXPECT_EQ(NewestRecord(*segment_)->step, step);
  }
  EXPECT_TRUE(IsValid(segment_->records[0]) && IsValid(segment_->records[1]));
}

// A writer that dies leaves some prefix of its stores: the old checksum destroyed, then the fields
// byte by byte, then the new checksum.
TEST_F(CommitRecordTest, DeathAfterAnyByte_LeavesTheOldRecordOrTheNewOne) {
  WriteRecord(segment_.get(), Step(1));
  WriteRecord(segment_.get(), Step(2));
  const CommitSegment* before = segment_.get();
  CommitRecord next = Step(3);
  next.epoch = 3;
  next.crc32c = Checksum(next);
  for (size_t written = 0; written <= offsetof(CommitRecord, crc32c) + 4; ++written) {
    auto torn = std::make_unique<CommitSegment>();
    std::memcpy(torn->records, before->records, sizeof(torn->records));
    CommitRecord* target =
        NewestRecord(*torn) == &torn->records[0] ? &torn->records[1] : &torn->records[0];
    target->crc32c = ~next.crc32c;
    std::memcpy(target, &next, written);
    const CommitRecord* newest = NewestRecord(*torn);
    ASSERT_NE(newest, nullptr);
    const uint64_t expected = written == offsetof(CommitRecord, crc32c) + 4 ? 3u : 2u;
    EXPECT_EQ(newest->step, expected) << "after " << written << " bytes";
  }
}

TEST_F(CommitRecordTest, CorruptRecord_IsNotTaken) {
  WriteRecord(segment_.get(), Step(1));
  WriteRecord(segment_.get(), Step(2));
  const_cast<CommitRecord*>(NewestRecord(*segment_))->learning_rate = 7;
  EXPECT_EQ(NewestRecord(*segment_)->step, 1u);
}

TEST_F(CommitRecordTest, AnyByteThatChanged_MakesTheRecordInvalid) {
  WriteRecord(segment_.get(), Step(1));
  WriteRecord(segment_.get(), Step(2));
  auto* const bytes =
      reinterpret_cast<unsigned char*>(const_cast<CommitRecord*>(NewestRecord(*segment_)));
  for (size_t i = 0; i < offsetof(CommitRecord, crc32c) + sizeof(uint32_t); ++i) {
    bytes[i] ^= 0x10;
    EXPECT_EQ(NewestRecord(*segment_)->step, 1u) << "byte " << i;
    bytes[i] ^= 0x10;
  }
}

TEST(ChunkVersion, EpochAndExtent_SurviveEncoding) {
  const ChunkVersion version = ChunkVersion::Decode(ChunkVersion{123456789012, 54321}.Encode());
  EXPECT_EQ(version.epoch, 123456789012u & ((uint64_t{1} << 40) - 1));
  EXPECT_EQ(version.extent, 54321u);
  EXPECT_EQ(ChunkVersion::Decode(ChunkVersion{1, 0xfedcba}.Encode()).extent, 0xfedcbau);
}

}  // namespace
}  // namespace geminid::shm
