#include "daemon/core/records/manifest.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "proto/shm/crc32c.h"

namespace geminid::core {
namespace {

struct alignas(64) Block {
  std::byte bytes[64];
};

class ManifestTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kRecords = 8;

  std::span<std::byte> memory() { return {blocks_.front().bytes, blocks_.size() * sizeof(Block)}; }
  static ChunkIdentity Identity(uint32_t chunk) {
    return {.session = SessionId{3},
            .chunk = ChunkId{chunk},
            .kind = ChunkKind::kExpAvg,
            .bytes = 1000 + chunk,
            .pool = PoolId{9},
            .home_offset = 64 * chunk};
  }

  std::vector<Block> blocks_ = std::vector<Block>(2 * kRecords + 2);
};

TEST_F(ManifestTest, BytesFor_IsTwoSuperblocksAndTheRecords) {
  EXPECT_EQ(Manifest::BytesFor(kRecords), memory().size());
}

TEST_F(ManifestTest, Status_SurvivesItsWord) {
  const ChunkStatus status{.residency = shm::Residency::kEvicting,
                           .state = shm::ChunkState::kReadyForReduce,
                           .valid = ValidLocation::kDevice,
                           .dirty = true,
                           .generation = shm::kGenerationMask,
                           .slot = ~uint32_t{0}};
  EXPECT_EQ(ChunkStatus::Decode(status.Encode()), status);
  EXPECT_EQ(ChunkStatus::Decode(ChunkStatus{}.Encode()), ChunkStatus{});
  EXPECT_EQ(status.device_offset(), shm::kMaxArenaBytes - shm::kSlotBytes);
  const shm::StateWord published = shm::StateWord::Decode(status.Published());
  EXPECT_EQ(published.residency, status.residency);
  EXPECT_EQ(published.generation, status.generation);
  EXPECT_EQ(published.slot, status.slot);
}

TEST_F(ManifestTest, EveryCombinationTheEngineMakes_SurvivesTheWord) {
  for (int residency = 1; residency <= static_cast<int>(shm::Residency::kEvicting); ++residency) {
    for (int state = 0; state < shm::kChunkStates; ++state) {
      for (int where = 0; where < 4; ++where) {
        const bool dirty = where == 3;
        const ChunkStatus status{
            .residency = static_cast<shm::Residency>(residency),
            .state = static_cast<shm::ChunkState>(state),
            .valid = dirty ? ValidLocation::kDevice : static_cast<ValidLocation>(where),
            .dirty = dirty,
            .generation = 0x800001,
            .slot = 0x80000001};
        EXPECT_EQ(ChunkStatus::Decode(status.Encode()), status);
      }
    }
  }
}

TEST_F(ManifestTest, OlderVersion_IsNotReadAsThisOne) {
  { Manifest manifest = *Manifest::Create(memory(), 1); }
  for (size_t block = 0; block < 2; ++block) {
    const uint32_t version = kManifestVersion - 1;
    std::byte* const superblock = blocks_[block].bytes;
    std::memcpy(superblock + 4, &version, sizeof(version));
    const uint32_t crc = shm::Crc32c(superblock, 52);
    std::memcpy(superblock + 52, &crc, sizeof(crc));
  }
  const std::vector<Block> before = blocks_;
  EXPECT_EQ(Manifest::Open(memory()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::memcmp(before.data(), blocks_.data(), before.size() * sizeof(Block)), 0);
}

TEST_F(ManifestTest, Add_IsReadBack) {
  Manifest manifest = *Manifest::Create(memory(), 5);
  EXPECT_EQ(manifest.epoch(), 5u);
  const RecordIndex index = *manifest.Add(Identity(4), {.generation = 77});
  const ChunkIdentity identity = manifest.Identity(index);
  EXPECT_EQ(identity.session, SessionId{3});
  EXPECT_EQ(identity.chunk, ChunkId{4});
  EXPECT_EQ(identity.kind, ChunkKind::kExpAvg);
  EXPECT_EQ(identity.bytes, 1004u);
  EXPECT_EQ(identity.pool, PoolId{9});
  EXPECT_EQ(identity.home_offset, 256u);
  EXPECT_EQ(manifest.Status(index).generation, 77u);
  manifest.CountLoad(index);
  manifest.CountLoad(index);
  for (int i = 0; i < 3; ++i) manifest.CountDrop(index);
  EXPECT_EQ(manifest.Loads(index), 2u);
  EXPECT_EQ(manifest.Drops(index), 3u);
}

TEST_F(ManifestTest, AllRecordsTaken_IsRefusedUntilOneIsRemoved) {
  Manifest manifest = *Manifest::Create(memory(), 1);
  std::vector<RecordIndex> taken;
  for (uint32_t i = 0; i < kRecords; ++i) taken.push_back(*manifest.Add(Identity(i), {}));
  EXPECT_EQ(manifest.Add(Identity(9), {}).status().code(), absl::StatusCode::kResourceExhausted);
  manifest.Remove(taken[3]);
  EXPECT_EQ(manifest.used_records(), kRecords - 1);
  EXPECT_EQ(*manifest.Add(Identity(9), {}), taken[3]);
}

TEST_F(ManifestTest, Open_FindsRecordsAndNeverRepeatsAnId) {
  SessionId last_session{};
  PoolId last_pool{};
  RecordIndex kept{};
  {
    Manifest manifest = *Manifest::Create(memory(), 1);
    for (int i = 0; i < 5; ++i) last_session = manifest.NewSessionId();
    for (int i = 0; i < 3; ++i) last_pool = manifest.NewPoolId();
    const RecordIndex removed = *manifest.Add(Identity(1), {});
    kept = *manifest.Add(Identity(2), {.state = shm::ChunkState::kHold, .slot = 12});
    manifest.SetTransfer(kept, TicketId{44});
    manifest.Remove(removed);
  }
  absl::StatusOr<Manifest> reopened = Manifest::Open(memory());
  ASSERT_TRUE(reopened.ok()) << reopened.status();
  EXPECT_EQ(reopened->epoch(), 2u);
  ASSERT_EQ(reopened->Used(), std::vector<RecordIndex>{kept});
  EXPECT_EQ(reopened->Identity(kept).chunk, ChunkId{2});
  EXPECT_EQ(reopened->Status(kept).slot, 12u);
  EXPECT_EQ(reopened->Transfer(kept), TicketId{44});
  EXPECT_GT(reopened->NewSessionId(), last_session);
  EXPECT_GT(reopened->NewPoolId(), last_pool);
  EXPECT_EQ(reopened->lost_records(), 0u);
}

// The newest superblock is torn at every possible length, so the older one must count.
TEST_F(ManifestTest, TornSuperblock_OlderOneCounts) {
  Manifest manifest = *Manifest::Create(memory(), 1);
  manifest.NewSessionId();
  const std::vector<Block> before = blocks_;
  manifest.NewSessionId();
  const std::vector<Block> after = blocks_;
  constexpr size_t kWritten = 56;  // the bytes under the checksum, and the checksum
  for (size_t torn = 0; torn <= kWritten; ++torn) {
    blocks_ = before;
    for (size_t i = 0; i < 2; ++i) std::memcpy(blocks_[i].bytes, after[i].bytes, torn);
    absl::StatusOr<Manifest> reopened = Manifest::Open(memory());
    ASSERT_TRUE(reopened.ok()) << torn;
    const uint64_t next = shm::Value(reopened->NewSessionId());
    EXPECT_TRUE(next == 2 || next == 3) << torn;
  }
}

TEST_F(ManifestTest, NoValidSuperblock_IsDataLoss) {
  ASSERT_TRUE(Manifest::Create(memory(), 1).ok());
  blocks_[0].bytes[20] ^= std::byte{1};
  blocks_[1].bytes[20] ^= std::byte{1};
  EXPECT_EQ(Manifest::Open(memory()).status().code(), absl::StatusCode::kDataLoss);
  std::memset(blocks_[0].bytes, 0, 128);
  EXPECT_EQ(Manifest::Open(memory()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ManifestTest, SenselessRecord_IsClearedAndCounted) {
  {
    Manifest manifest = *Manifest::Create(memory(), 1);
    ASSERT_TRUE(manifest.Add(Identity(1), {}).ok());
    ASSERT_TRUE(manifest.Add(Identity(2), {}).ok());
  }
  blocks_[2].bytes[12] = std::byte{0xff};  // the kind of the first record
  absl::StatusOr<Manifest> reopened = Manifest::Open(memory());
  ASSERT_TRUE(reopened.ok());
  EXPECT_EQ(reopened->lost_records(), 1u);
  ASSERT_EQ(reopened->Used().size(), 1u);
  EXPECT_EQ(reopened->Identity(reopened->Used()[0]).chunk, ChunkId{2});
}

TEST_F(ManifestTest, RecordThatContradictsItself_IsLost) {
  const auto is_lost = [this](const ChunkIdentity& identity, const ChunkStatus& status) {
    {
      Manifest manifest = *Manifest::Create(memory(), 1);
      EXPECT_TRUE(manifest.Add(identity, status).ok());
    }
    return Manifest::Open(memory())->lost_records() == 1;
  };
  ChunkIdentity no_home = Identity(1);
  no_home.pool = kNoPool;
  EXPECT_FALSE(is_lost(no_home, {.valid = ValidLocation::kDevice}));
  EXPECT_TRUE(is_lost(no_home, {.valid = ValidLocation::kHome}));
  EXPECT_TRUE(is_lost(no_home, {.valid = ValidLocation::kDevice, .dirty = true}));
  ChunkIdentity no_bytes = Identity(1);
  no_bytes.bytes = 0;
  EXPECT_TRUE(is_lost(no_bytes, {}));
  EXPECT_FALSE(is_lost(Identity(shm::kMaxChunks - 1), {}));
  EXPECT_TRUE(is_lost(Identity(shm::kMaxChunks), {}));
}

TEST_F(ManifestTest, MemoryThatWasCutOff_IsDataLoss) {
  ASSERT_TRUE(Manifest::Create(memory(), 1).ok());
  const size_t bytes = memory().size();
  EXPECT_TRUE(Manifest::Open(memory().subspan(0, bytes)).ok());
  EXPECT_EQ(Manifest::Open(memory().subspan(0, bytes - 64)).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(ManifestTest, DaemonsThatCrashBeforeTheyServe_AreCountedUntilOneServes) {
  { Manifest manifest = *Manifest::Create(memory(), 1); }
  const auto open_after_a_crash = [&] { return Manifest::Open(memory(), 0, /*crashed=*/true); };
  for (uint32_t i = 1; i < kMaxCrashes; ++i) {
    EXPECT_TRUE(open_after_a_crash().ok());
    EXPECT_TRUE(Manifest::Open(memory()).ok()) << "that one was killed, or is to be seen";
  }
  EXPECT_EQ(open_after_a_crash().status().code(), absl::StatusCode::kAborted);

  { Manifest manifest = *Manifest::Create(memory(), 1); }
  for (uint32_t i = 0; i < 3 * kMaxCrashes; ++i) {
    absl::StatusOr<Manifest> manifest = open_after_a_crash();
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    manifest->HasServed();
  }
}

TEST_F(ManifestTest, DaemonsThatAreKilledBeforeTheyServe_AreAsManyAsSomebodyLikes) {
  { Manifest manifest = *Manifest::Create(memory(), 1); }
  for (uint32_t i = 0; i < 10 * kMaxCrashes; ++i) ASSERT_TRUE(Manifest::Open(memory()).ok());
}

TEST_F(ManifestTest, Epoch_GrowsAndIsNoLessThanAskedFor) {
  { Manifest manifest = *Manifest::Create(memory(), 4); }
  EXPECT_EQ(Manifest::Open(memory(), 2)->epoch(), 5u);
  EXPECT_EQ(Manifest::Open(memory(), 9)->epoch(), 9u);
}

TEST_F(ManifestTest, Progress_IsReadAgain) {
  Manifest manifest = *Manifest::Create(memory(), 1);
  const RecordIndex index = *manifest.Add(Identity(1), {});
  EXPECT_EQ(manifest.Progress(index), ChunkProgress{});
  EXPECT_TRUE(manifest.WrittenBack(index).empty());
  for (const ChunkProgress& progress :
       {ChunkProgress{.home_lost = true}, ChunkProgress{.publish_when_idle = true},
        ChunkProgress{.drop_when_idle = true}}) {
    manifest.SetProgress(index, progress);
    EXPECT_EQ(manifest.Progress(index), progress);
  }
  manifest.SetAllocation(index, 12);
  EXPECT_EQ(Manifest::Open(memory())->AllocationOf(index), 12u);
}

TEST_F(ManifestTest, WrittenBack_GrowsByPiecesThatTouchItAndEndsWithItsEpoch) {
  Manifest manifest = *Manifest::Create(memory(), 1);
  const RecordIndex index = *manifest.Add(Identity(1), {});
  manifest.BeginDirtyEpoch(index, 3);
  EXPECT_EQ(manifest.DirtyEpoch(index), 3u);
  manifest.AddWrittenBack(index, {16, 32});
  manifest.AddWrittenBack(index, {64, 80});  // not adjacent: forgotten
  EXPECT_EQ(manifest.WrittenBack(index).begin, 16u);
  EXPECT_EQ(manifest.WrittenBack(index).end, 32u);
  manifest.AddWrittenBack(index, {32, 64});
  manifest.AddWrittenBack(index, {0, 16});
  EXPECT_EQ(manifest.WrittenBack(index).begin, 0u);
  EXPECT_EQ(manifest.WrittenBack(index).end, 64u);
  manifest.BeginDirtyEpoch(index, 4);
  EXPECT_TRUE(manifest.WrittenBack(index).empty());
}

// A manifest that is opened in three parts, the last one smaller, in memory with other contents.
class LargeManifestTest : public ManifestTest {
 protected:
  static constexpr uint32_t kManyRecords = 2 * kRecordsPerOpening + 7;
  static constexpr std::byte kOld{0xab};

  LargeManifestTest() {
    Block old;
    std::memset(old.bytes, static_cast<int>(kOld), sizeof(old.bytes));
    blocks_.assign(Manifest::BytesFor(kManyRecords) / sizeof(Block), old);
  }

  // The number of bytes up to the last byte that was written.
  size_t Untouched() {
    const std::span<std::byte> all = memory();
    const auto end = std::find_if(all.rbegin(), all.rend(), [](std::byte b) { return b != kOld; });
    return static_cast<size_t>(end - all.rbegin());
  }
};

TEST_F(LargeManifestTest, Records_TakeMemoryOnlyWhenTheyAreOpened) {
  Manifest manifest = *Manifest::Create(memory(), 1);
  EXPECT_EQ(manifest.bytes_in_use(), Manifest::BytesFor(0));
  EXPECT_EQ(Untouched(), memory().size() - Manifest::BytesFor(0));
  ASSERT_TRUE(manifest.Add(Identity(1), {}).ok());
  EXPECT_EQ(manifest.bytes_in_use(), Manifest::BytesFor(kRecordsPerOpening));
  EXPECT_EQ(Untouched(), memory().size() - Manifest::BytesFor(kRecordsPerOpening));
  // The next daemon does not look at the other records either.
  absl::StatusOr<Manifest> reopened = Manifest::Open(memory());
  ASSERT_TRUE(reopened.ok());
  EXPECT_EQ(reopened->lost_records(), 0u);
  EXPECT_EQ(reopened->Used().size(), 1u);
}

TEST_F(LargeManifestTest, EveryRecord_IsGivenOnceAndFoundAgain) {
  {
    Manifest manifest = *Manifest::Create(memory(), 1);
    for (uint32_t i = 0; i < kManyRecords; ++i) {
      ASSERT_EQ(*manifest.Add(Identity(i), {}), RecordIndex{i});
    }
    EXPECT_EQ(manifest.Add(Identity(1), {}).status().code(), absl::StatusCode::kResourceExhausted);
  }
  absl::StatusOr<Manifest> reopened = Manifest::Open(memory());
  ASSERT_TRUE(reopened.ok());
  const std::vector<RecordIndex> used = reopened->Used();
  ASSERT_EQ(used.size(), kManyRecords);
  EXPECT_EQ(reopened->Identity(used.back()).chunk, ChunkId{kManyRecords - 1});
}

TEST_F(LargeManifestTest, DeathBeforeTheSuperblockSaysSo_LeavesThemUnopened) {
  std::vector<Block> before;
  {
    Manifest manifest = *Manifest::Create(memory(), 1);
    before.assign(blocks_.begin(), blocks_.begin() + 2);
    ASSERT_TRUE(manifest.Add(Identity(1), {}).ok());
  }
  std::copy(before.begin(), before.end(), blocks_.begin());
  absl::StatusOr<Manifest> reopened = Manifest::Open(memory());
  ASSERT_TRUE(reopened.ok());
  EXPECT_EQ(reopened->used_records(), 0u);
  ASSERT_EQ(*reopened->Add(Identity(2), {}), RecordIndex{0});
  ASSERT_EQ(reopened->Used().size(), 1u);
}

TEST_F(ManifestTest, MoreOpenedThanThereAre_IsDataLoss) {
  ASSERT_TRUE(Manifest::Create(memory(), 1).ok());
  for (size_t block = 0; block < 2; ++block) {
    std::byte* const superblock = blocks_[block].bytes;
    const uint32_t opened = kRecords + 1;
    std::memcpy(superblock + 48, &opened, sizeof(opened));
    const uint32_t crc = shm::Crc32c(superblock, 52);
    std::memcpy(superblock + 52, &crc, sizeof(crc));
  }
  EXPECT_EQ(Manifest::Open(memory()).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(ManifestTest, BadMemory_IsRefused) {
  EXPECT_FALSE(Manifest::Create(memory().subspan(0, 128), 1).ok());
  EXPECT_FALSE(Manifest::Create(memory().subspan(8), 1).ok());
}

}  // namespace
}  // namespace geminid::core
