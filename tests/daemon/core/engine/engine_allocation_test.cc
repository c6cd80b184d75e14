#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"

namespace geminid::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EngineAllocation : public EngineTest {};

TEST_F(EngineAllocation, Homes_AreAlignedAndThePoolIsWholePages) {
  const SessionId session = Open();
  const auto allocation = engine_->Allocate(session, {{"a", ChunkKind::kWeight, 100, true},
                                                      {"g", ChunkKind::kGatheredWeight, 999, false},
                                                      {"b", ChunkKind::kExpAvg, 64, true},
                                                      {"c", ChunkKind::kGeneric, 8000, true}});
  ASSERT_TRUE(allocation.ok()) << allocation.status();
  EXPECT_THAT(allocation->home_offsets, ElementsAre(0, 0, 128, 192));
  EXPECT_EQ(allocation->pool_bytes, 8192u);  // 192 + 8000
  EXPECT_THAT(allocation->chunks, ElementsAre(ChunkId{0}, ChunkId{1}, ChunkId{2}, ChunkId{3}));
  const AccountTotals totals = engine_->ledger().Totals(kHostAccount);
  EXPECT_EQ(totals.in_use_bytes, 100u + 64 + 8000);
  EXPECT_EQ(totals.reserved_bytes, 8192u - 8164);
  EXPECT_EQ(ResidencyOf(session, ChunkId{1}), shm::Residency::kAbsent);
  ASSERT_THAT(engine_->Pools(), SizeIs(1));
  EXPECT_EQ(engine_->Pools()[0].in_use_bytes, 8164u);
}

TEST_F(EngineAllocation, DeviceOnlyChunks_NeedNoPool) {
  const SessionId session = Open();
  const auto allocation =
      engine_->Allocate(session, {{"g", ChunkKind::kGatheredWeight, 999, false}});
  ASSERT_TRUE(allocation.ok());
  EXPECT_EQ(allocation->pool, kNoPool);
  EXPECT_EQ(allocation->pool_bytes, 0u);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
}

TEST_F(EngineAllocation, MemoryThatRanksShare_IsChargedAndNotMade) {
  const SessionId session = Open();
  const auto promise =
      engine_->BeginAllocation(session, {{"ring", ChunkKind::kShared, 5000, true}}, 0);
  ASSERT_TRUE(promise.ok()) << promise.status();
  EXPECT_TRUE(promise->is_elsewhere);
  EXPECT_EQ(promise->bytes, 8192u);
  const auto allocation = engine_->FinishAllocation(promise->charge);
  ASSERT_TRUE(allocation.ok());
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).in_use_bytes, 5000u);
  ASSERT_TRUE(engine_->Free(session, allocation->chunks).ok());
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).in_use_bytes, 0u);
  const auto memory = engine_->BeginAllocation(session, {{"w", ChunkKind::kWeight, 1, true}}, 0);
  EXPECT_FALSE(memory->is_elsewhere);
}

TEST_F(EngineAllocation, FilesOnDisk_AreChargedToTheTenantUntilTheyAreFreed) {
  constexpr uint64_t kBytes = 5'000'000'001;
  const SessionId session = Open();
  const auto promise =
      engine_->BeginAllocation(session, {{"files", ChunkKind::kOnDisk, kBytes, false}}, 0);
  ASSERT_TRUE(promise.ok()) << promise.status();
  EXPECT_EQ(promise->bytes, 0u);  // nothing to make
  EXPECT_TRUE(engine_->Check().ok()) << engine_->Check();
  const auto allocation = engine_->FinishAllocation(promise->charge);
  ASSERT_TRUE(allocation.ok());
  EXPECT_EQ(engine_->ledger().Totals(kDiskAccount).in_use_bytes, kBytes);
  EXPECT_EQ(engine_->ledger().InUseBytes(kDiskAccount, session), kBytes);
  EXPECT_EQ(engine_->quota().ChargedBytes(Spec(0).tenant, kDiskAccount), kBytes);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
  EXPECT_TRUE(engine_->Check().ok()) << engine_->Check();
  const auto releases = engine_->Free(session, allocation->chunks);
  ASSERT_TRUE(releases.ok());
  GiveBack(*releases);
  EXPECT_EQ(engine_->ledger().Totals(kDiskAccount).capacity_bytes, 0u);
  EXPECT_EQ(engine_->quota().ChargedBytes(Spec(0).tenant, kDiskAccount), 0u);
  EXPECT_TRUE(engine_->Check().ok()) << engine_->Check();
}

TEST_F(EngineAllocation, FilesOnDiskBeyondTheQuota_AreRefusedUntilAnotherSessionEnds) {
  options_.tenants = {{.tenant = "*", .disk_bytes = 1000}};
  Start();
  const SessionId first = Open(Spec(3));
  ASSERT_TRUE(engine_->Allocate(first, {{"files", ChunkKind::kOnDisk, 600, false}}).ok());
  const SessionId second = Open(Spec(4));
  const std::vector<ChunkSpec> files = {{"files", ChunkKind::kOnDisk, 401, false}};
  const absl::Status status = engine_->Allocate(second, files).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("disk"), HasSubstr("free 400 B"),
                    HasSubstr("raise disk of its quota"), HasSubstr("job llm rank 3 (600 B)")));
  EXPECT_TRUE(engine_->Check().ok()) << engine_->Check();
  const auto releases = engine_->CloseSession(first, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  GiveBack(*releases);
  EXPECT_TRUE(engine_->Allocate(second, files).ok());
  EXPECT_TRUE(engine_->Check().ok()) << engine_->Check();
}

TEST_F(EngineAllocation, BadSpecs_AreRefusedAndNothingIsAllocated) {
  const SessionId session = Open();
  const ChunkSpec good{"ok", ChunkKind::kWeight, 1, true};
  for (const ChunkSpec& bad :
       std::vector<ChunkSpec>{{"none", ChunkKind::kNone, 1, true},
                              {"kind", static_cast<ChunkKind>(11), 1, true},
                              {"empty", ChunkKind::kWeight, 0, true},
                              {"huge", ChunkKind::kWeight, shm::kMaxChunkBytes + 1, true},
                              {"home", ChunkKind::kGatheredWeight, 1, true},
                              {"no home", ChunkKind::kShared, 1, false},
                              {"not alone", ChunkKind::kShared, 1, true},
                              {"files with a home", ChunkKind::kOnDisk, 1, true},
                              {"files not alone", ChunkKind::kOnDisk, 1, false},
                              {std::string(129, 'x'), ChunkKind::kWeight, 1, true}}) {
    EXPECT_EQ(engine_->Allocate(session, {good, bad}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad.name;
  }
  EXPECT_EQ(engine_->Allocate(session, {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->ChunkCount(session), 0u);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
}

TEST_F(EngineAllocation, MoreThanFree_SaysWhoHoldsIt) {
  const SessionId first = Open(Spec(3));
  Add(first, ChunkKind::kWeight, uint64_t{768} << 20);
  const SessionId second = Open(Spec(4));
  const absl::Status status =
      engine_->Allocate(second, {{"w", ChunkKind::kWeight, uint64_t{512} << 20, true}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const std::string text(status.message());
  EXPECT_THAT(text, HasSubstr("asked for 512 MiB"));
  EXPECT_THAT(text, HasSubstr("free 256 MiB"));
  EXPECT_THAT(text, HasSubstr("job llm rank 3 (768 MiB)"));
  EXPECT_THAT(text, HasSubstr("host_memory"));
  EXPECT_EQ(engine_->ChunkCount(second), 0u);
}

// Otherwise a request right after the end of a session would end the job that has the least.
TEST_F(EngineAllocation, MoreThanFreeWhileMemoryIsReturned_SaysThatItComes) {
  const SessionId small = Open(Spec(5));
  Add(small, ChunkKind::kWeight, 4096);
  const SessionId ended = Open(Spec(3));
  Add(ended, ChunkKind::kWeight, uint64_t{768} << 20);
  const auto releases = engine_->CloseSession(ended, CloseReason::kDied, now_);
  ASSERT_TRUE(releases.ok());
  const SessionId next = Open(Spec(4));
  const std::vector<ChunkSpec> wanted = {{"w", ChunkKind::kWeight, uint64_t{512} << 20, true}};
  const std::string text(engine_->Allocate(next, wanted).status().message());
  EXPECT_THAT(text, HasSubstr("768 MiB are being returned to the machine: try again in a moment"));
  GiveBack(*releases);
  EXPECT_TRUE(engine_->Allocate(next, wanted).ok());
  EXPECT_THAT(std::string(engine_->Allocate(next, wanted).status().message()),
              ::testing::Not(HasSubstr("being returned")));
}

TEST_F(EngineAllocation, TenantLimit_BindsBeforeTheDaemons) {
  options_.tenants = {{"uid:1000", 8192, 4096}};
  Start();
  const SessionId session = Open();
  EXPECT_TRUE(engine_->Allocate(session, {{"a", ChunkKind::kWeight, 4096, true}}).ok());
  const absl::Status status =
      engine_->Allocate(session, {{"b", ChunkKind::kWeight, 4097, true}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tenant uid:1000 may have 8.0 KiB"));
  EXPECT_EQ(engine_->CreateArena(session, 4097).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine_->CreateArena(session, 4096).ok());
}

TEST_F(EngineAllocation, ChunkTable_HasALimit) {
  const SessionId session = Open();
  // One tenant leaves half of the records to the others.
  const std::vector<ChunkSpec> all(kRecords / 2, {"g", ChunkKind::kGatheredWeight, 1, false});
  ASSERT_TRUE(engine_->Allocate(session, all).ok());
  EXPECT_EQ(engine_->Allocate(session, {all[0]}).status().code(),
            absl::StatusCode::kResourceExhausted);
  const std::vector<ChunkSpec> more(shm::kMaxChunks + 1, all[0]);
  EXPECT_EQ(engine_->Allocate(session, more).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(EngineAllocation, Free_ReleasesThePoolWithItsLastChunk) {
  const SessionId session = Open();
  const auto allocation = engine_->Allocate(
      session, {{"a", ChunkKind::kWeight, 100, true}, {"b", ChunkKind::kWeight, 100, true}});
  ASSERT_TRUE(allocation.ok());
  EXPECT_THAT(engine_->Free(session, {allocation->chunks[0]})->pools, IsEmpty());
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  EXPECT_EQ(ResidencyOf(session, allocation->chunks[0]), shm::Residency::kNone);
  const auto releases = engine_->Free(session, {allocation->chunks[1]});
  ASSERT_TRUE(releases.ok());
  ASSERT_THAT(releases->pools, SizeIs(1));
  EXPECT_EQ(releases->pools[0].session, session);
  EXPECT_EQ(releases->pools[0].pool, allocation->pool);
  // The client can still write to the pool.
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).reserved_bytes, allocation->pool_bytes);
  GiveBack(*releases);
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
}

TEST_F(EngineAllocation, MemoryInTheMaking_IsChargedAndNobodyCanFreeIt) {
  const SessionId session = Open();
  const auto promise = engine_->BeginAllocation(
      session, {{"a", ChunkKind::kWeight, 100, true}, {"b", ChunkKind::kWeight, 100, true}});
  ASSERT_TRUE(promise.ok());
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).reserved_bytes, promise->bytes);
  EXPECT_EQ(engine_->Check(), absl::OkStatus());
  EXPECT_EQ(engine_->Free(session, {ChunkId{0}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ResidencyOf(session, ChunkId{0}), shm::Residency::kNone);
  const auto allocation = engine_->FinishAllocation(promise->charge);
  ASSERT_TRUE(allocation.ok());
  EXPECT_EQ(allocation->pool, promise->pool);
  EXPECT_EQ(engine_->FinishAllocation(promise->charge).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(engine_->Free(session, allocation->chunks).ok());
}

TEST_F(EngineAllocation, ChunksInTheMaking_CountAsChunks) {
  const SessionId session = Open();
  const ChunkSpec spec{"c", ChunkKind::kWeight, 1, true};
  const auto promise = engine_->BeginAllocation(session, std::vector(kRecords / 2 - 1, spec));
  ASSERT_TRUE(promise.ok());
  EXPECT_EQ(engine_->Allocate(session, {spec, spec}).status().code(),
            absl::StatusCode::kResourceExhausted);
  engine_->GiveBack(promise->charge);
  EXPECT_TRUE(engine_->Allocate(session, std::vector(kRecords / 2, spec)).ok());
}

TEST_F(EngineAllocation, Free_IsAllOrNothing) {
  const SessionId session = OpenWithArena(8);
  const ChunkId a = Add(session, ChunkKind::kGeneric, 100);
  const ChunkId b = Add(session, ChunkKind::kGeneric, 100);
  MakeResident(session, a);
  MakeResident(session, b);
  EXPECT_EQ(engine_->Free(session, {a, ChunkId{55}}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(engine_->Free(session, {a, a}).status().code(), absl::StatusCode::kInvalidArgument);
  tables_.Lease(session, b);
  EXPECT_EQ(engine_->Free(session, {a, b}).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ResidencyOf(session, a), shm::Residency::kResident);
  EXPECT_EQ(ResidencyOf(session, b), shm::Residency::kResident);
  tables_.Release(session, b);
  EXPECT_TRUE(engine_->Free(session, {a, b}).ok());
  EXPECT_EQ(engine_->ledger().Totals(DeviceAccount(DeviceIndex{0})).in_use_bytes, 0u);
}

TEST_F(EngineAllocation, Free_WaitsForTransfers) {
  const SessionId session = OpenWithArena(8);
  const ChunkId weight = Add(session, ChunkKind::kWeight, 100);
  const ChunkId gathered = Add(session, ChunkKind::kGatheredWeight, 100);
  const shm::Response ticket =
      Ask(session, MakeTransfer(weight, gathered, 100, shm::kAllocateDestination));
  EXPECT_FALSE(engine_->Free(session, {weight}).ok());
  EXPECT_FALSE(engine_->Free(session, {gathered}).ok());
  Finish(session, ticket);
  EXPECT_TRUE(engine_->Free(session, {weight, gathered}).ok());
}

TEST_F(EngineAllocation, ReusedNumber_HasANewGeneration) {
  const SessionId session = OpenWithArena(8);
  const ChunkId old = Add(session, ChunkKind::kGeneric, 100);
  MakeResident(session, old);
  const uint32_t generation = tables_.State(session, old).generation;
  ASSERT_TRUE(engine_->Free(session, {old}).ok());
  const ChunkId chunk = Add(session, ChunkKind::kGeneric, 100);
  ASSERT_EQ(chunk, old);
  MakeResident(session, chunk);
  EXPECT_NE(tables_.State(session, chunk).generation, generation);
}

TEST_F(EngineAllocation, Arena_OncePerSessionAndOfWholePages) {
  const SessionId session = Open();
  EXPECT_EQ(*engine_->CreateArena(session, 4097), 8192u);
  const absl::Status again = engine_->CreateArena(session, 1).status();
  EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(again.message()), HasSubstr("an arena of 8.0 KiB already"));
  EXPECT_EQ(engine_->ledger().Totals(DeviceAccount(DeviceIndex{0})).reserved_bytes, 8192u);
}

TEST_F(EngineAllocation, ArenaInTheMaking_IsNoPhantomWhenItFails) {
  const SessionId session = Open();
  const auto promise = engine_->BeginArena(session, 4096);
  ASSERT_TRUE(promise.ok());
  EXPECT_EQ(engine_->CreateArena(session, 4096).status().code(),
            absl::StatusCode::kFailedPrecondition);
  shm::Request workspace = Make(shm::RequestOp::kReserveWorkspace, shm::kNoChunk);
  workspace.bytes = 4096;
  ExpectError(Ask(session, workspace), absl::StatusCode::kFailedPrecondition,
              shm::ErrorReason::kArenaFull);
  engine_->GiveBack(promise->charge);
  EXPECT_EQ(engine_->FinishArena(promise->charge).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(engine_->ledger().Totals(DeviceAccount(DeviceIndex{0})).reserved_bytes, 0u);
  EXPECT_EQ(*engine_->CreateArena(session, 4096), 4096u);
}

TEST_F(EngineAllocation, ArenaOfNoPossibleSize_IsRefused) {
  const SessionId session = Open();
  EXPECT_EQ(engine_->CreateArena(session, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->CreateArena(session, shm::kMaxArenaBytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(engine_->CreateArena(session, uint64_t{2} << 30).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(EngineAllocation, WidestArena_IsUsedToItsLastSlot) {
  options_.devices.front().capacity_bytes = 2 * shm::kMaxArenaBytes;
  Start();
  const SessionId session = Open();
  ASSERT_EQ(*engine_->CreateArena(session, shm::kMaxArenaBytes), shm::kMaxArenaBytes);
  const ChunkId last = Add(session, ChunkKind::kGatheredWeight, kSlot);
  MakeResident(session, last, shm::kMaxArenaBytes - kSlot);
  EXPECT_EQ(tables_.State(session, last).slot, ~uint32_t{0});
  EXPECT_EQ(SnapshotOf(session, last).status.device_offset(), shm::kMaxArenaBytes - kSlot);
  for (uint64_t i = 0; i < 15; ++i) {
    const ChunkId wide = Add(session, ChunkKind::kGatheredWeight, shm::kMaxChunkBytes);
    MakeResident(session, wide);
    EXPECT_EQ(tables_.State(session, wide).device_offset(), i * shm::kMaxChunkBytes);
  }
  const ChunkId none = Add(session, ChunkKind::kGatheredWeight, shm::kMaxChunkBytes);
  ExpectError(Place(session, none), absl::StatusCode::kResourceExhausted,
              shm::ErrorReason::kArenaFull);
  ASSERT_EQ(Do(session, shm::RequestOp::kDrop, last).op, shm::ResponseOp::kDone);
  MakeResident(session, none);
  EXPECT_EQ(engine_->ledger().Totals(DeviceAccount(DeviceIndex{0})).in_use_bytes,
            shm::kMaxArenaBytes);
}

TEST_F(EngineAllocation, ThousandTimes_LeavesNothing) {
  const SessionId session = Open();
  for (int i = 0; i < 1000; ++i) {
    const auto allocation = engine_->Allocate(
        session, {{"a", ChunkKind::kWeight, 1000, true}, {"b", ChunkKind::kExpAvg, 2000, true}});
    ASSERT_TRUE(allocation.ok());
    ASSERT_EQ(allocation->chunks[0], ChunkId{0});
    const auto releases = engine_->Free(session, allocation->chunks);
    ASSERT_TRUE(releases.ok());
    GiveBack(*releases);
  }
  EXPECT_EQ(engine_->ledger().Totals(kHostAccount).free_bytes, options_.host_capacity_bytes);
}

// Otherwise no pool would use reserved pages, because few have a whole number of them by chance.
TEST_F(EngineAllocation, PoolsOfManyReservedPages_AreOfWholeOnes) {
  options_.huge_page_bytes = uint64_t{2} << 20;
  Start();
  const SessionId session = Open(Spec(0));
  const uint64_t many = kHugePagesOfPool * options_.huge_page_bytes;
  for (const auto& [bytes, pool_bytes] : {std::pair{many, many},
                                          {many + 1, many + options_.huge_page_bytes},
                                          {many - 1, many},
                                          {many - 8192, many - 8192},
                                          {uint64_t{5000}, uint64_t{8192}}}) {
    const auto allocation = engine_->Allocate(session, {{"w", ChunkKind::kWeight, bytes, true}});
    ASSERT_TRUE(allocation.ok()) << allocation.status();
    EXPECT_EQ(allocation->pool_bytes, pool_bytes);
    const auto releases = engine_->Free(session, allocation->chunks);
    ASSERT_TRUE(releases.ok());
    GiveBack(*releases);
  }
}

constexpr uint64_t kPlenty = ~uint64_t{0};

TEST_F(EngineAllocation, HostShare_IsTheSameWhicheverRankAllocatesFirst) {
  const uint64_t capacity = options_.host_capacity_bytes;
  const auto of_two = [](int rank) {
    SessionSpec spec = Spec(rank);
    spec.local_world_size = 2;
    return spec;
  };
  const SessionId first = Open(of_two(0));
  const SessionId second = Open(of_two(1));
  EXPECT_EQ(*engine_->HostShare(first, kPlenty), capacity / 2);
  Add(first, ChunkKind::kWeight, 1 << 20);
  EXPECT_EQ(*engine_->HostShare(first, kPlenty), capacity / 2);
  EXPECT_EQ(*engine_->HostShare(second, kPlenty), capacity / 2);
  const auto promise =
      engine_->BeginAllocation(second, {{"w", ChunkKind::kWeight, 1 << 20, true}}, 0);
  EXPECT_EQ(*engine_->HostShare(first, kPlenty), capacity / 2);
  EXPECT_TRUE(engine_->FinishAllocation(promise->charge).ok());
}

TEST_F(EngineAllocation, HostShare_LeavesOutWhatOtherJobsHoldAndTheMachineLacks) {
  SessionSpec other = Spec(0);
  other.job = "another";
  Add(Open(other), ChunkKind::kWeight, 512 << 20);
  SessionSpec alone = Spec(0);
  alone.world_size = 1;
  const SessionId session = Open(alone);
  EXPECT_EQ(*engine_->HostShare(session, kPlenty), uint64_t{512} << 20);
  Add(session, ChunkKind::kWeight, 100 << 20);
  EXPECT_EQ(*engine_->HostShare(session, uint64_t{50} << 20), uint64_t{150} << 20);
  EXPECT_TRUE(absl::IsNotFound(engine_->HostShare(SessionId{99}, kPlenty).status()));
}

TEST_F(EngineAllocation, HostShare_IsWithinTheTenantsLimit) {
  options_.tenants = {{"uid:1000", 8192, 4096}};
  Start();
  SessionSpec alone = Spec(0);
  alone.world_size = 1;
  EXPECT_EQ(*engine_->HostShare(Open(alone), kPlenty), 8192u);
}

}  // namespace
}  // namespace geminid::core
