// Sessions with a real daemon in this process.
#include "geminid/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "client/device/host/host_device.h"
#include "client/src/session_impl.h"
#include "client/src/session_internal.h"
#include "tests/client/device/faulty_device.h"
#include "tests/daemon_env/daemon_env.h"

namespace geminid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

void FillPattern(std::byte* data, uint64_t bytes, uint32_t seed) {
  for (uint64_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<std::byte>((i * 2654435761u + seed * 40503u) >> 11);
  }
}

bool HasPattern(const std::byte* data, uint64_t bytes, uint32_t seed) {
  std::vector<std::byte> expected(bytes);
  FillPattern(expected.data(), bytes, seed);
  return std::memcmp(data, expected.data(), bytes) == 0;
}

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::DaemonEnvOptions limits;
    limits.host_memory = "128MiB";
    limits.device_memory = "64MiB";
    ASSERT_TRUE(env_.Start(limits).ok());
    options_.socket = env_.socket();
    options_.device_memory_bytes = 4 * kMiB;
  }

  void Connect() {
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options_);
    ASSERT_TRUE(session.ok()) << session.status();
    session_ = *std::move(session);
  }

  ChunkHandle AllocateOne(uint64_t bytes, ChunkKind kind = ChunkKind::kGeneric,
                          bool has_home = true) {
    absl::StatusOr<std::vector<ChunkHandle>> chunks =
        session_->Allocate({{"one", kind, bytes, has_home}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    return chunks.ok() ? chunks->front() : ChunkHandle{};
  }

  static TransferSpec Load(const ChunkHandle& chunk) {
    TransferSpec spec;
    spec.source = spec.destination = chunk.id;
    spec.bytes = chunk.bytes;
    spec.allocate_destination = true;
    spec.publish_when_done = true;
    return spec;
  }

  testing::DaemonEnv env_;
  ConnectOptions options_;
  std::unique_ptr<Session> session_;
};

TEST_F(SessionTest, Connect_GivesAnArenaOfWholePages) {
  options_.device_memory_bytes = 3 * kMiB + 1;
  ASSERT_NO_FATAL_FAILURE(Connect());
  EXPECT_EQ(session_->arena_bytes(), 3 * kMiB + 4096);
  EXPECT_EQ(session_->socket(), env_.socket());
  EXPECT_NE(session_->id(), 0u);
  EXPECT_TRUE(session_->Healthy().ok());
  EXPECT_TRUE(std::all_of(session_->arena(), session_->arena() + session_->arena_bytes(),
                          [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_NE(CommitSegmentOf(*session_), nullptr);
  EXPECT_EQ(shm::NewestRecord(*CommitSegmentOf(*session_)), nullptr);
}

TEST_F(SessionTest, OnAStrictDevice_TheArenaIsAtItsHostAddressAlone) {
  options_.strict_device = true;
  Connect();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_EQ(write(ends[1], session_->arena(), 1), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(write(ends[1], session_->HostAddress(session_->arena()), 1), 1);
  for (int end : ends) close(end);

  const ChunkHandle chunk = AllocateOne(kMiB);
  std::fill_n(chunk.home, chunk.bytes, std::byte{7});
  ASSERT_TRUE(session_->Transfer(Load(chunk)).Wait().ok());
  const std::byte* const there = session_->HostAddress(session_->Device(chunk.id));
  EXPECT_TRUE(
      std::all_of(there, there + chunk.bytes, [](std::byte b) { return b == std::byte{7}; }));
}

TEST_F(SessionTest, ArenaThatCannotFit_IsRefusedWithNumbers) {
  options_.device_memory_bytes = uint64_t{2} << 30;
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options_);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), absl::StatusCode::kResourceExhausted) << session.status();
}

TEST_F(SessionTest, NoDaemon_SaysHowToGetOne) {
  options_.socket = "/nowhere/geminid.sock";
  const absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options_);
  ASSERT_FALSE(session.ok());
  EXPECT_TRUE(absl::IsUnavailable(session.status()));
  EXPECT_THAT(Message(session.status()),
              AllOf(HasSubstr("/nowhere/geminid.sock"), HasSubstr("start one with")));
}

TEST_F(SessionTest, BadOptions_AreRefused) {
  options_.job = std::string(64, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(Session::Connect(options_).status()));
  options_.job = "Not Allowed";
  EXPECT_FALSE(Session::Connect(options_).ok());
  options_.job = "ok";
  const auto refused = [&] { return Message(Session::Connect(options_).status()); };
  options_.copy_bytes_per_second = -1;
  EXPECT_THAT(refused(), HasSubstr("copy_bytes_per_second is -1; it must be"));
  options_.copy_bytes_per_second = 0;
  options_.copy_latency_seconds = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(refused(), HasSubstr("copy_latency_seconds is nan; it must be"));
  options_.copy_latency_seconds = 0;
  options_.timeout = -absl::Seconds(1);
  EXPECT_THAT(refused(), HasSubstr("timeout is -1s; it must be above 0"));
  options_.timeout = absl::Seconds(10);
  options_.socket = "/" + std::string(200, 'x');
  EXPECT_TRUE(absl::IsInvalidArgument(Session::Connect(options_).status()));
}

TEST_F(SessionTest, Allocate_GivesZeroedAlignedHomes) {
  Connect();
  const absl::StatusOr<std::vector<ChunkHandle>> chunks =
      session_->Allocate({{"a", ChunkKind::kWeight, 1, true},
                          {"b", ChunkKind::kGatheredWeight, 4096, false},
                          {"c", ChunkKind::kExpAvg, 100001, true}});
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  ASSERT_EQ(chunks->size(), 3u);
  for (const size_t i : {0, 2}) {
    std::byte* const home = (*chunks)[i].home;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(home) % 64, 0u);
    EXPECT_EQ(home, session_->Home((*chunks)[i].id));
    EXPECT_TRUE(std::all_of(home, home + (*chunks)[i].bytes,
                            [](std::byte b) { return b == std::byte{0}; }));
    FillPattern(home, (*chunks)[i].bytes, static_cast<uint32_t>(i));
  }
  EXPECT_TRUE(HasPattern((*chunks)[0].home, 1, 0));
  EXPECT_EQ((*chunks)[1].home, nullptr);
  EXPECT_EQ(session_->Bytes((*chunks)[1].id), 4096u);
  EXPECT_EQ(session_->ResidencyOf((*chunks)[1].id), Residency::kAbsent);
  const absl::StatusOr<MemoryUse> use = session_->GetMemoryUse();
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_EQ(use->host_bytes_by_kind[static_cast<int>(ChunkKind::kExpAvg)], 100001u);
  EXPECT_EQ(session_->HostBytes().value(), 100002u);
}

TEST_F(SessionTest, MemoryThatRanksShare_IsInTheLedgerAloneAndIsNotCopied) {
  Connect();
  constexpr uint64_t kBytes = 3 << 20;
  const auto shared = session_->Allocate({{"ring", ChunkKind::kShared, kBytes}});
  ASSERT_TRUE(shared.ok()) << shared.status();
  const ChunkId id = shared->front().id;
  EXPECT_EQ(shared->front().home, nullptr);
  EXPECT_EQ(session_->Home(id), nullptr);
  EXPECT_EQ(session_->Bytes(id), kBytes);
  EXPECT_EQ(session_->GetMemoryUse()->host_bytes_by_kind[static_cast<int>(ChunkKind::kShared)],
            kBytes);
  const absl::Status copied =
      session_
          ->Transfer({.source = id, .destination = id, .bytes = 64, .allocate_destination = true})
          .Wait();
  EXPECT_EQ(copied.code(), absl::StatusCode::kInvalidArgument) << copied;
  EXPECT_FALSE(session_->Use(id).ok());
  ASSERT_TRUE(session_->Free(std::vector<ChunkId>{id}).ok());
  EXPECT_EQ(session_->HostBytes().value(), 0u);
}

TEST_F(SessionTest, AllocationThatCannotFit_ChangesNothing) {
  Connect();
  const auto refused = session_->Allocate({{"small", ChunkKind::kWeight, 64, true},
                                           {"big", ChunkKind::kWeight, uint64_t{8} << 30, true}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(session_->HostBytes().value(), 0u);
}

TEST_F(SessionTest, ThousandAllocations_LeakNothing) {
  Connect();
  AllocateOne(64);  // some allocations happen only once
  const auto count_fds = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto count_maps = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
  };
  const auto fds = count_fds();
  const auto maps = count_maps();
  for (int i = 0; i < 1000; ++i) {
    const ChunkHandle chunk = AllocateOne(4097);
    const ChunkId id = chunk.id;
    ASSERT_TRUE(session_->Free(std::span(&id, 1)).ok());
    ASSERT_EQ(session_->Home(id), nullptr);
  }
  EXPECT_EQ(session_->HostBytes().value(), 64u);
  EXPECT_LE(count_fds(), fds + 4);  // the daemon in this process may close later
  EXPECT_LE(count_maps(), maps + 20);
}

TEST_F(SessionTest, RoundTripsOfOddSizes_AreByteExact) {
  options_.device_memory_bytes = 64 * kMiB;
  Connect();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4095}, kMiB + 13, 40 * kMiB + 7}) {
    const ChunkHandle chunk = AllocateOne(bytes);
    const auto seed = static_cast<uint32_t>(bytes);
    FillPattern(chunk.home, bytes, seed);
    ASSERT_TRUE(session_->Transfer(Load(chunk)).Wait().ok());
    EXPECT_EQ(session_->ResidencyOf(chunk.id), Residency::kResident);
    ASSERT_NE(session_->Device(chunk.id), nullptr);
    EXPECT_TRUE(HasPattern(session_->Device(chunk.id), bytes, seed));

    std::optional<Lease> lease = session_->TryLease(chunk.id);
    ASSERT_TRUE(lease.has_value());
    EXPECT_EQ(lease->size, bytes);
    FillPattern(lease->data, bytes, seed + 1);
    lease->MarkDirty();
    lease->Release();
    ASSERT_TRUE(session_->WriteBack(chunk.id).Wait().ok());
    EXPECT_TRUE(HasPattern(chunk.home, bytes, seed + 1));
    ASSERT_TRUE(session_->Drop(chunk.id).Wait().ok());
    EXPECT_EQ(session_->ResidencyOf(chunk.id), Residency::kAbsent);
    EXPECT_EQ(session_->DeviceOffset(chunk.id), kAnyOffset);
    EXPECT_FALSE(session_->TryLease(chunk.id).has_value());
  }
  const TransferTotals totals = session_->Totals();
  const uint64_t bytes = 1 + 4095 + kMiB + 13 + 40 * kMiB + 7;
  EXPECT_EQ(totals.host_to_device_bytes, bytes);
  EXPECT_EQ(totals.device_to_host_bytes, bytes);
  EXPECT_EQ(totals.copies, 2u * (1 + 1 + 1 + 3));
}

TEST_F(SessionTest, ShardsIntoAGatheredChunk_MeetWherePlanned) {
  Connect();
  constexpr uint64_t kShard = 8192;
  const ChunkHandle gathered = AllocateOne(3 * kShard, ChunkKind::kGatheredWeight, false);
  std::vector<ChunkHandle> shards;
  for (uint32_t i = 0; i < 3; ++i) {
    shards.push_back(AllocateOne(kShard, ChunkKind::kWeight));
    FillPattern(shards[i].home, kShard, i);
  }
  std::vector<Pending> pending;
  for (uint32_t i = 0; i < 3; ++i) {
    TransferSpec spec;
    spec.source = shards[i].id;
    spec.destination = gathered.id;
    spec.destination_offset = i * kShard;
    spec.bytes = kShard;
    spec.allocate_destination = i == 0;
    spec.device_offset = 5 * kExtentAlignmentBytes;
    spec.publish_when_done = i == 2;
    pending.push_back(session_->Transfer(spec));
  }
  for (const Pending& part : pending) ASSERT_TRUE(part.Wait().ok()) << part.Wait();
  EXPECT_EQ(session_->DeviceOffset(gathered.id), 5 * kExtentAlignmentBytes);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(HasPattern(session_->Device(gathered.id) + i * kShard, kShard, i));
  }

  // The gradient in the weight's storage goes home, which frees the extent.
  const ChunkHandle gradient = AllocateOne(kShard, ChunkKind::kGradient);
  TransferSpec spec;
  spec.source = gathered.id;
  spec.source_offset = kShard;
  spec.destination = gradient.id;
  spec.bytes = kShard;
  spec.cause = TransferCause::kWriteBack;
  spec.drop_source_when_done = true;
  const absl::Status status = session_->Transfer(spec).Wait();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(HasPattern(gradient.home, kShard, 1));
  EXPECT_EQ(session_->ResidencyOf(gathered.id), Residency::kAbsent);
}

TEST_F(SessionTest, LeasedChunk_CannotBeDroppedFreedOrEvicted) {
  Connect();
  const ChunkHandle chunk = AllocateOne(3 * kMiB);
  absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok()) << lease.status();
  const absl::Status drop = session_->Drop(chunk.id).Wait();
  EXPECT_TRUE(absl::IsFailedPrecondition(drop));
  EXPECT_THAT(Message(drop), HasSubstr("leased"));
  EXPECT_TRUE(absl::IsFailedPrecondition(session_->Free(std::span(&chunk.id, 1))));
  const ChunkHandle other = AllocateOne(2 * kMiB);
  const absl::StatusOr<Lease> no_room = session_->Use(other.id);
  EXPECT_EQ(no_room.status().code(), absl::StatusCode::kResourceExhausted) << no_room.status();
  EXPECT_THAT(Message(no_room.status()), HasSubstr("4.0 MiB"));
  lease->Release();
  EXPECT_TRUE(session_->Use(other.id).ok());
  EXPECT_EQ(session_->ResidencyOf(chunk.id), Residency::kAbsent);
}

TEST_F(SessionTest, Use_KeepsWhatWasWrittenThroughEvictions) {
  Connect();
  constexpr int kChunks = 6;  // three of them fit
  std::vector<ChunkHandle> chunks;
  for (int i = 0; i < kChunks; ++i) chunks.push_back(AllocateOne(kMiB + 4096));
  std::vector<uint32_t> written(kChunks, 0);
  std::mt19937 random(7);
  for (int step = 0; step < 200; ++step) {
    const size_t i = random() % kChunks;
    absl::StatusOr<Lease> lease = session_->Use(chunks[i].id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    uint32_t value;
    std::memcpy(&value, lease->data, sizeof value);
    ASSERT_EQ(value, written[i]) << "step " << step;
    if (random() % 2 == 0) continue;
    value = written[i] = static_cast<uint32_t>(random());
    std::memcpy(lease->data, &value, sizeof value);
    std::memcpy(lease->data + lease->size - sizeof value, &value, sizeof value);
    lease->MarkDirty();
  }
  EXPECT_GT(session_->Totals().device_to_host_bytes, 0u);
}

TEST_F(SessionTest, DirtyChunk_IsNotDroppedBeforeItWasWrittenBack) {
  Connect();
  const ChunkHandle chunk = AllocateOne(10000);
  {
    absl::StatusOr<Lease> lease = session_->Use(chunk.id);
    ASSERT_TRUE(lease.ok());
    FillPattern(lease->data, lease->size, 3);
    lease->MarkDirty();
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(session_->Drop(chunk.id).Wait()));
  EXPECT_TRUE(session_->WriteBack(chunk.id).Wait().ok());
  EXPECT_TRUE(session_->Drop(chunk.id).Wait().ok());
  EXPECT_TRUE(HasPattern(chunk.home, chunk.bytes, 3));
}

TEST_F(SessionTest, SeveralThreadsUsingFewChunks_SeeOnlyWholeOnes) {
  Connect();
  constexpr int kChunks = 5;
  constexpr uint64_t kBytes = kMiB - 4096;
  std::vector<ChunkHandle> chunks;
  for (uint32_t i = 0; i < kChunks; ++i) {
    chunks.push_back(AllocateOne(kBytes));
    std::memset(chunks[i].home, static_cast<int>(i + 1), kBytes);
  }
  std::atomic<int> wrong = 0;
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 200; ++i) {
      const uint32_t which = random() % kChunks;
      const absl::StatusOr<Lease> lease = session_->Use(chunks[which].id);
      if (!lease.ok()) {
        ADD_FAILURE() << lease.status();
        return;
      }
      const std::byte expected{static_cast<unsigned char>(which + 1)};
      wrong += lease->data[0] != expected || lease->data[lease->size - 1] != expected;
    }
  };
  std::thread first(work, 1);
  std::thread second(work, 2);
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST_F(SessionTest, ReleaseAfter_HoldsUntilTheStreamHasPassed) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok());
  std::atomic<bool> go_on = false;
  session_->compute_stream().Enqueue([&] {
    while (!go_on.load()) std::this_thread::yield();
  });
  lease->ReleaseAfter(session_->compute_stream());
  EXPECT_FALSE(*lease);
  EXPECT_TRUE(absl::IsFailedPrecondition(session_->Drop(chunk.id).Wait()));
  go_on.store(true);
  session_->compute_stream().Synchronize();
  EXPECT_TRUE(session_->Drop(chunk.id).Wait().ok());
}

TEST_F(SessionTest, StreamThatWasMade_HoldsALeaseUntilItHasPassed) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  auto stream = session_->MakeStream("session-test");
  ASSERT_TRUE(stream.ok()) << stream.status();
  absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok());
  lease->ReleaseAfter(**stream);
  (*stream)->Synchronize();
  EXPECT_TRUE(session_->Drop(chunk.id).Wait().ok());
}

TEST_F(SessionTest, Use_WaitsForALoadThatIsUnderWay) {
  options_.copy_latency_seconds = 0.02;
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  FillPattern(chunk.home, chunk.bytes, 1);
  session_->Transfer(Load(chunk));
  const absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_TRUE(HasPattern(lease->data, chunk.bytes, 1));
  EXPECT_EQ(session_->Totals().copies, 1u);
}

TEST_F(SessionTest, UseOfDeviceOnlyChunk_NeedsItsExtentPublished) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096, ChunkKind::kGatheredWeight, false);
  EXPECT_TRUE(absl::IsFailedPrecondition(session_->Use(chunk.id).status()));
  ASSERT_TRUE(session_->AllocateExtent(chunk.id, 8192, false).Wait().ok());
  EXPECT_EQ(session_->ResidencyOf(chunk.id), Residency::kFilling);
  EXPECT_EQ(session_->DeviceOffset(chunk.id), 8192u);
  EXPECT_FALSE(session_->TryLease(chunk.id).has_value());
  ASSERT_TRUE(session_->Publish(chunk.id).Wait().ok());
  const absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->data, session_->arena() + 8192);
  EXPECT_TRUE(absl::IsNotFound(session_->Use(ChunkId{60000}).status()));
}

TEST_F(SessionTest, Workspace_AndChunksShareTheArena) {
  Connect();
  ASSERT_TRUE(session_->ReserveWorkspace(3 * kMiB, false).Wait().ok());
  const ChunkHandle chunk = AllocateOne(2 * kMiB);
  EXPECT_EQ(session_->AllocateExtent(chunk.id, kAnyOffset, false).Wait().code(),
            absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(session_->ReserveWorkspace(kMiB, false).Wait().ok());
  absl::StatusOr<Lease> lease = session_->Use(chunk.id);
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(session_->ReserveWorkspace(3 * kMiB, true).Wait().code(),
            absl::StatusCode::kResourceExhausted);
  lease->Release();
  EXPECT_TRUE(session_->ReserveWorkspace(3 * kMiB, true).Wait().ok());
  EXPECT_EQ(session_->ResidencyOf(chunk.id), Residency::kAbsent);
}

TEST_F(SessionTest, Transitions_AreTheNineLegalOnes) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  const auto step = [&](ChunkState to) { return session_->Transition(chunk.id, to).Wait(); };
  EXPECT_TRUE(step(ChunkState::kHold).ok());
  EXPECT_TRUE(step(ChunkState::kCompute).ok());
  const absl::Status illegal = step(ChunkState::kReadyForReduce);
  EXPECT_TRUE(absl::IsFailedPrecondition(illegal));
  EXPECT_THAT(Message(illegal), HasSubstr("READY_FOR_REDUCE"));
  EXPECT_TRUE(step(ChunkState::kHoldAfterBackward).ok());
  EXPECT_TRUE(step(ChunkState::kReadyForReduce).ok());
  EXPECT_TRUE(step(ChunkState::kHold).ok());
}

TEST_F(SessionTest, BadTransfers_AreRefusedInWords) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  const ChunkHandle other = AllocateOne(4096);
  TransferSpec spec = Load(chunk);
  spec.bytes = 0;
  EXPECT_EQ(session_->Transfer(spec).Wait().code(), absl::StatusCode::kOutOfRange);
  spec.bytes = 4097;
  EXPECT_EQ(session_->Transfer(spec).Wait().code(), absl::StatusCode::kOutOfRange);
  spec.bytes = 4096;
  spec.source = ChunkId{4242};
  EXPECT_TRUE(absl::IsNotFound(session_->Transfer(spec).Wait()));
  spec.source = other.id;  // both chunks have homes
  EXPECT_TRUE(absl::IsInvalidArgument(session_->Transfer(spec).Wait()));
  EXPECT_TRUE(session_->Healthy().ok());
}

TEST_F(SessionTest, Callbacks_AreEachCalledOnceAndMayRequestMore) {
  Connect();
  constexpr int kChunks = 20;
  std::array<std::atomic<int>, kChunks> dropped = {};
  std::atomic<int> done = 0;
  for (size_t i = 0; i < kChunks; ++i) {
    const ChunkHandle chunk = AllocateOne(4096);
    session_->Transfer(Load(chunk)).Then([&, i, chunk](const absl::Status& loaded) {
      EXPECT_TRUE(loaded.ok()) << loaded;
      session_->Drop(chunk.id).Then([&, i](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        ++dropped[i];
        ++done;
      });
    });
  }
  while (done.load() < kChunks) std::this_thread::yield();
  for (const std::atomic<int>& count : dropped) EXPECT_EQ(count.load(), 1);
}

TEST_F(SessionTest, PacedLink_TakesTheTimeOfItsBandwidth) {
  options_.copy_bytes_per_second = 100e6;
  options_.device_memory_bytes = 64 * kMiB;
  Connect();
  const ChunkHandle chunk = AllocateOne(20000000);  // a copy takes 0.2 s
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(session_->Transfer(Load(chunk)).Wait().ok());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GE(took.count(), 0.2);
}

TEST_F(SessionTest, MakePlan_AnswersAndRefuses) {
  Connect();
  Trace trace;
  trace.arena_bytes = 4 * kMiB;
  trace.link = {1e9, 1e9, 1e-5};
  for (int i = 0; i < 3; ++i) {
    const ChunkHandle chunk = AllocateOne(kMiB, ChunkKind::kGatheredWeight, false);
    trace.chunks.push_back({chunk.id, kMiB, kMiB, 0, true});
  }
  for (uint32_t i = 0; i < 3; ++i) trace.moments.push_back({{{i, false}}, 1000, 0.001});
  const absl::StatusOr<Plan> plan = session_->MakePlan(trace, {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_TRUE(plan->everything_fits);
  EXPECT_EQ(plan->moments.size(), 3u);
  EXPECT_NE(plan->explanation, "");
  trace.arena_bytes = kMiB / 2;
  EXPECT_FALSE(session_->MakePlan(trace, {}).ok());
}

TEST_F(SessionTest, EndOfTheDaemon_LeavesLeasesAndFailsRequests) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  const ChunkHandle absent = AllocateOne(4096);
  { ASSERT_TRUE(session_->Use(chunk.id).ok()); }
  env_.Stop();
  const absl::Status drop = session_->Drop(chunk.id).Wait();
  EXPECT_TRUE(absl::IsUnavailable(drop)) << drop;
  EXPECT_THAT(Message(drop), HasSubstr("ended"));
  std::optional<Lease> lease = session_->TryLease(chunk.id);
  ASSERT_TRUE(lease.has_value());
  lease->data[0] = std::byte{1};
  lease->MarkDirty();
  lease->Release();
  EXPECT_TRUE(absl::IsUnavailable(session_->Use(absent.id).status()));
  EXPECT_TRUE(absl::IsUnavailable(session_->Allocate({{"x", ChunkKind::kGeneric, 1}}).status()));
  EXPECT_TRUE(absl::IsUnavailable(session_->Healthy()));
  chunk.home[0] = std::byte{2};  // still mapped
  session_.reset();
}

TEST_F(SessionTest, EndOfTheSession_CompletesWhatIsPending) {
  options_.copy_bytes_per_second = 50e6;
  Connect();
  std::vector<Pending> pending;
  std::atomic<int> callbacks = 0;
  for (int i = 0; i < 8; ++i) {
    const ChunkHandle chunk = AllocateOne(400000);
    pending.push_back(session_->Transfer(Load(chunk)));
    pending.back().Then([&](const absl::Status&) { ++callbacks; });
  }
  session_.reset();
  EXPECT_EQ(callbacks.load(), 8);
  for (const Pending& transfer : pending) {
    EXPECT_TRUE(transfer.ready());
    const absl::Status status = transfer.Wait();
    EXPECT_TRUE(status.ok() || absl::IsCancelled(status)) << status;
  }
}

TEST_F(SessionTest, FailedCopy_FailsTheSessionInWords) {
  device::FaultPlan plan;
  plan.point = device::FaultPoint::kCopy;
  plan.nth = 2;
  absl::StatusOr<std::unique_ptr<Session>> session =
      ConnectWithDevice(options_, device::MakeFaultyDevice(device::MakeHostDevice({}), plan));
  ASSERT_TRUE(session.ok()) << session.status();
  session_ = *std::move(session);
  const ChunkHandle first = AllocateOne(4096);
  const ChunkHandle second = AllocateOne(4096);
  EXPECT_TRUE(session_->Transfer(Load(first)).Wait().ok());
  const absl::Status failed = session_->Transfer(Load(second)).Wait();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(Message(failed), HasSubstr("injected device fault"));
  EXPECT_FALSE(session_->Healthy().ok());
  EXPECT_FALSE(session_->Drop(first.id).Wait().ok());
}

TEST_F(SessionTest, FailedImport_LeavesNoSession) {
  device::FaultPlan plan;
  plan.point = device::FaultPoint::kImportSlab;
  options_.keep_on_death = true;
  EXPECT_FALSE(
      ConnectWithDevice(options_, device::MakeFaultyDevice(device::MakeHostDevice({}), plan)).ok());
  options_.device_memory_bytes = 64 * kMiB;  // all memory: the failed session retained none
  Connect();
}

TEST_F(SessionTest, SessionsInTurn_GiveEverythingBack) {
  options_.device_memory_bytes = 64 * kMiB;  // all memory
  for (int i = 0; i < 3; ++i) {
    Connect();
    AllocateOne(100 * kMiB);
    session_.reset();
  }
}

TEST_F(SessionTest, ForkedChild_CannotUseOrHarmTheSession) {
  Connect();
  const ChunkHandle chunk = AllocateOne(4096);
  { ASSERT_TRUE(session_->Use(chunk.id).ok()); }
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    wrong += session_->TryLease(chunk.id).has_value();
    wrong += !absl::IsFailedPrecondition(session_->Drop(chunk.id).Wait());
    wrong += !absl::IsFailedPrecondition(session_->Use(chunk.id).status());
    wrong += !absl::IsFailedPrecondition(session_->Allocate({{"x"}}).status());
    wrong += !absl::IsFailedPrecondition(session_->Healthy());
    wrong += session_->ResidencyOf(chunk.id) != Residency::kNone;
    session_->BeginMoment(1);
    session_.reset();
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(session_->Use(chunk.id).ok());
  EXPECT_TRUE(session_->Drop(chunk.id).Wait().ok());
}

}  // namespace
}  // namespace geminid
