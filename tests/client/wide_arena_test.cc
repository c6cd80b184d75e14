// Arenas as large as the largest devices', on a machine of any size. They are sparse, so only
// touched bytes exist.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "daemon/service/entry/daemon.h"
#include "geminid/session.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kTiB = uint64_t{1} << 40;

struct Width {
  const char* device_memory;
  uint64_t bytes;
  uint64_t beyond;  // beyond 24-bit slot numbers (64 GiB), or beyond a 32-bit count of slots
};

std::vector<std::byte> Pattern(uint64_t bytes, uint32_t seed) {
  std::vector<std::byte> pattern(bytes);
  for (uint64_t i = 0; i < bytes; ++i) {
    pattern[i] = static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 11);
  }
  return pattern;
}

class WideArena : public ::testing::TestWithParam<Width> {
 protected:
  void SetUp() override {
    testing::DaemonEnvOptions options;
    options.device_memory = GetParam().device_memory;
    options.sparse_arenas = true;
    ASSERT_TRUE(env_.Start(options).ok());
    ConnectOptions connect;
    connect.socket = env_.socket();
    connect.device_memory_bytes = GetParam().bytes;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  // Checks the daemon's books: the references of chunks, extents and records to each other, and the
  // bytes charged for the arena.
  void TearDown() override {
    if (session_ == nullptr) return;
    const absl::Status books =
        env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) -> absl::Status {
          const core::AccountTotals totals =
              engine.ledger().Totals(core::DeviceAccount(shm::DeviceIndex{0}));
          EXPECT_EQ(totals.in_use_bytes + totals.reserved_bytes, GetParam().bytes);
          return engine.Check();
        });
    EXPECT_TRUE(books.ok()) << books;
  }

  ChunkHandle AllocateOne(uint64_t bytes, ChunkKind kind = ChunkKind::kGeneric) {
    const bool has_home = kind != ChunkKind::kGatheredWeight;
    absl::StatusOr<std::vector<ChunkHandle>> chunks =
        session_->Allocate({{"one", kind, bytes, has_home}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    return chunks.ok() ? chunks->front() : ChunkHandle{};
  }

  // Loads the chunk to an offset, or to any offset that the daemon chooses.
  absl::Status Load(const ChunkHandle& chunk, uint64_t device_offset, bool may_evict = false) {
    TransferSpec spec;
    spec.source = spec.destination = chunk.id;
    spec.bytes = chunk.bytes;
    spec.allocate_destination = true;
    spec.device_offset = device_offset;
    spec.may_evict = may_evict;
    spec.publish_when_done = true;
    return session_->Transfer(spec).Wait();
  }

  // A chunk that is only on the device, and whose bytes are never touched.
  ChunkHandle Fill(uint64_t bytes) {
    const ChunkHandle chunk = AllocateOne(bytes, ChunkKind::kGatheredWeight);
    EXPECT_TRUE(session_->AllocateExtent(chunk.id, kAnyOffset, false).Wait().ok());
    EXPECT_TRUE(session_->Publish(chunk.id).Wait().ok());
    return chunk;
  }

  uint64_t DeviceBytes(ChunkKind kind) {
    const absl::StatusOr<MemoryUse> use = session_->GetMemoryUse();
    EXPECT_TRUE(use.ok()) << use.status();
    return use.ok() ? use->device_bytes_by_kind[static_cast<size_t>(kind)] : 0;
  }

  testing::DaemonEnv env_;
  std::unique_ptr<Session> session_;
};

TEST_P(WideArena, ArenaOfManySlabs_IsMappedWhole) {
  EXPECT_EQ(session_->arena_bytes(), GetParam().bytes);
  // Each byte is in another slab.
  for (const uint64_t at : {uint64_t{0}, GetParam().beyond, GetParam().bytes - 1}) {
    EXPECT_EQ(session_->arena()[at], std::byte{0}) << at;
  }
}

TEST_P(WideArena, ChunkFarUp_IsCopiedLeasedWrittenBackAndDropped) {
  constexpr uint64_t kBytes = 3 * kExtentAlignmentBytes + 17;
  const uint64_t last = GetParam().bytes - 4 * kExtentAlignmentBytes;
  for (const uint64_t offset : {GetParam().beyond, GetParam().beyond + kGiB - 4096, last}) {
    const ChunkHandle chunk = AllocateOne(kBytes);
    const auto seed = static_cast<uint32_t>(offset >> 12);
    std::memcpy(chunk.home, Pattern(kBytes, seed).data(), kBytes);
    const absl::Status loaded = Load(chunk, offset);
    ASSERT_TRUE(loaded.ok()) << loaded;
    EXPECT_EQ(session_->DeviceOffset(chunk.id), offset);
    EXPECT_EQ(DeviceBytes(ChunkKind::kGeneric), kBytes);

    std::optional<Lease> lease = session_->TryLease(chunk.id);
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(lease->data, session_->arena() + offset);
    EXPECT_EQ(std::memcmp(lease->data, Pattern(kBytes, seed).data(), kBytes), 0);
    std::memcpy(lease->data, Pattern(kBytes, seed + 1).data(), kBytes);
    lease->MarkDirty();
    lease->Release();
    ASSERT_TRUE(session_->WriteBack(chunk.id).Wait().ok());
    EXPECT_EQ(std::memcmp(chunk.home, Pattern(kBytes, seed + 1).data(), kBytes), 0);
    ASSERT_TRUE(session_->Drop(chunk.id).Wait().ok());
    EXPECT_EQ(DeviceBytes(ChunkKind::kGeneric), 0u);
    ASSERT_TRUE(session_->Free(std::span(&chunk.id, 1)).ok());
  }
}

TEST_P(WideArena, ChunkFarUp_GivesWayToAnotherThere) {
  constexpr uint64_t kBytes = 8 * kExtentAlignmentBytes;
  const uint64_t offset = GetParam().beyond;
  const ChunkHandle first = AllocateOne(kBytes);
  const ChunkHandle below = AllocateOne(kBytes);
  const ChunkHandle second = AllocateOne(kBytes);
  // With 24 bits of slot number, both offsets would be the same place.
  ASSERT_TRUE(Load(below, offset % (64 * kGiB)).ok());
  ASSERT_TRUE(Load(first, offset).ok());
  std::memcpy(second.home, Pattern(kBytes, 2).data(), kBytes);
  const absl::Status in_the_way = Load(second, offset + kBytes / 2);
  EXPECT_TRUE(absl::IsResourceExhausted(in_the_way)) << in_the_way;
  std::optional<Lease> lease = session_->TryLease(first.id);
  ASSERT_TRUE(lease.has_value());
  EXPECT_FALSE(Load(second, offset + kBytes / 2, /*may_evict=*/true).ok());
  lease.reset();
  const absl::Status loaded = Load(second, offset + kBytes / 2, /*may_evict=*/true);
  ASSERT_TRUE(loaded.ok()) << loaded;
  EXPECT_EQ(session_->ResidencyOf(first.id), Residency::kAbsent);
  EXPECT_FALSE(session_->TryLease(first.id).has_value());
  EXPECT_EQ(session_->ResidencyOf(below.id), Residency::kResident);
  EXPECT_EQ(std::memcmp(session_->Device(second.id), Pattern(kBytes, 2).data(), kBytes), 0);
  EXPECT_EQ(DeviceBytes(ChunkKind::kGeneric), 2 * kBytes);
}

TEST_P(WideArena, LowestPlace_IsBehindAWideChunkAndReturnsWithIt) {
  const ChunkHandle wide = Fill(GetParam().beyond);
  EXPECT_EQ(DeviceBytes(ChunkKind::kGatheredWeight), GetParam().beyond);
  const ChunkHandle chunk = AllocateOne(100);
  std::memcpy(chunk.home, Pattern(100, 5).data(), 100);
  absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(lease->data, session_->arena() + GetParam().beyond);
  EXPECT_EQ(std::memcmp(lease->data, Pattern(100, 5).data(), 100), 0);
  lease->Release();
  ASSERT_TRUE(session_->Drop(wide.id).Wait().ok());
  const ChunkHandle lowest = AllocateOne(100);
  ASSERT_TRUE(session_->Use(lowest.id).ok());
  EXPECT_EQ(session_->DeviceOffset(lowest.id), 0u);
}

TEST_P(WideArena, Workspace_MayTakeAllThatIsFarUp) {
  const ChunkHandle chunk = AllocateOne(100);
  ASSERT_TRUE(Load(chunk, GetParam().beyond).ok());
  const uint64_t workspace_bytes = GetParam().bytes - GetParam().beyond;
  EXPECT_FALSE(session_->ReserveWorkspace(workspace_bytes, false).Wait().ok());
  ASSERT_TRUE(session_->ReserveWorkspace(workspace_bytes, true).Wait().ok());
  EXPECT_EQ(session_->ResidencyOf(chunk.id), Residency::kAbsent);
  EXPECT_FALSE(Load(chunk, GetParam().beyond).ok());
  EXPECT_TRUE(Load(chunk, GetParam().beyond - kExtentAlignmentBytes).ok());
}

INSTANTIATE_TEST_SUITE_P(Devices, WideArena,
                         ::testing::Values(Width{"192GiB", 192 * kGiB, 64 * kGiB},
                                           Width{"2TiB", 2 * kTiB, kTiB}),
                         [](const auto& param) { return param.param.device_memory; });

TEST(ArenaWiderThanTheWidest, IsRefusedBeforeTheDaemonIsAsked) {
  ConnectOptions options;
  options.socket = "/nowhere/geminid.sock";
  options.device_memory_bytes = kMaxArenaBytes + 1;
  const absl::Status status = Session::Connect(options).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("16.0 TiB"));
}

}  // namespace
}  // namespace geminid
