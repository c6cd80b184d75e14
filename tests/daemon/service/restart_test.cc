// A daemon stops as if it had died, and another one takes over, in one process, with sessions of
// the client library.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "base/mapping.h"
#include "base/memfd.h"
#include "client/device/host/host_device.h"
#include "client/src/session_impl.h"
#include "client/src/session_internal.h"
#include "daemon/core/records/manifest.h"
#include "daemon/os/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/shm/attach_messages.h"
#include "tests/client/device/faulty_device.h"
#include "tests/daemon/service/restart_fixture.h"

namespace geminid::service {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(RestartTest, Session_GoesOnAsIfNothingHadHappened) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get(), "layer 7");
  std::memset(chunk.home, 0x5a, chunk.bytes);
  absl::StatusOr<Lease> lease = session->Use(chunk.id, absl::Seconds(30));
  ASSERT_TRUE(lease.ok()) << lease.status();
  const core::AccountTotals host = Totals(core::kHostAccount);
  const core::AccountTotals device = Totals(core::DeviceAccount(shm::DeviceIndex{0}));
  env_.Stop();
  // Memory and leases work without a daemon.
  EXPECT_EQ(std::to_integer<int>(lease->data[100]), 0x5a);
  EXPECT_TRUE(session->TryLease(chunk.id).has_value());
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_EQ(Totals(core::kHostAccount).in_use_bytes, host.in_use_bytes);
  EXPECT_EQ(Totals(core::kHostAccount).reserved_bytes, host.reserved_bytes);
  EXPECT_EQ(Totals(core::DeviceAccount(shm::DeviceIndex{0})).in_use_bytes, device.in_use_bytes);
  EXPECT_EQ(Check(), absl::OkStatus());
  // A leased chunk may not be dropped under the new daemon either.
  EXPECT_FALSE(session->Drop(chunk.id).Wait(absl::Seconds(30)).ok());
  lease->Release();
  EXPECT_TRUE(session->Drop(chunk.id).Wait(absl::Seconds(30)).ok());
  const ChunkHandle another = Allocate(session.get());
  EXPECT_NE(another.id, chunk.id);
  EXPECT_TRUE(session->Use(another.id, absl::Seconds(30)).ok());
  const std::optional<core::ChunkSnapshot> shown =
      env_.daemon().hub().Inspect([&](const core::Engine& engine, const auto&) {
        return engine.FindChunk(shm::SessionId{session->id()},
                                shm::ChunkId{static_cast<uint32_t>(chunk.id)});
      });
  ASSERT_TRUE(shown.has_value());
  EXPECT_EQ(shown->name, "layer 7");
}

TEST_F(RestartTest, RequestsAndCallsMadeMeanwhile_AreCarriedOutByTheNextOne) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get());
  env_.Stop();
  const Pending extent = session->AllocateExtent(chunk.id, kAnyOffset, true);
  const Pending published = session->Publish(chunk.id);
  EXPECT_FALSE(extent.ready());
  std::thread caller([&] {
    EXPECT_TRUE(session->Allocate({{"b", ChunkKind::kGeneric, 4096, true}}).ok());
  });
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_TRUE(extent.Wait(absl::Seconds(30)).ok());
  EXPECT_TRUE(published.Wait(absl::Seconds(30)).ok());
  EXPECT_EQ(session->ResidencyOf(chunk.id), Residency::kResident);
  caller.join();
  EXPECT_EQ(Check(), absl::OkStatus());
}

// The daemon died between two steps: it had pushed a ticket, but had not removed the request from
// the ring. The client copied and reported it.
TEST_F(RestartTest, TransferThatWasAnswered_IsNotCarriedOutAgain) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get());
  {
    const absl::StatusOr<Lease> lease = session->Use(chunk.id, absl::Seconds(30));
    ASSERT_TRUE(lease.ok()) << lease.status();
    session->Transition(chunk.id, ChunkState::kCompute);
    ASSERT_TRUE(session->Transition(chunk.id, ChunkState::kHold, /*dirty=*/true)
                    .Wait(absl::Seconds(30))
                    .ok());
  }
  ASSERT_TRUE(session->WriteBack(chunk.id).Wait(absl::Seconds(30)).ok());
  env_.Stop();
  {
    const auto state = *base::Mapping::Map(kept_.Of("s1-state"), sizeof(shm::StateSegment));
    const auto client = *base::Mapping::Map(kept_.Of("s1-client"), sizeof(shm::ClientSegment));
    std::atomic<uint64_t>& read =
        reinterpret_cast<shm::StateSegment*>(state.data())->cursor.requests_read;
    const auto* const requests =
        reinterpret_cast<const shm::ClientSegment*>(client.data())->requests;
    uint64_t last = read.load();
    while (requests[--last % shm::kRingEntries].op != shm::RequestOp::kTransfer) {
      ASSERT_GT(last, 0u);
    }
    read.store(last);
  }
  ASSERT_TRUE(env_.Start(options_).ok());
  const absl::Status dropped = session->Drop(chunk.id).Wait(absl::Seconds(30));
  EXPECT_TRUE(dropped.ok()) << dropped;
  EXPECT_EQ(Check(), absl::OkStatus());
}

TEST_F(RestartTest, ManyRestarts_LoseNothingAndKeepNothingTooMuch) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get());
  const size_t kept = kept_.Names().size();
  for (int i = 0; i < 30; ++i) {
    ASSERT_NO_FATAL_FAILURE(Restart());
    ASSERT_TRUE(session->Use(chunk.id, absl::Seconds(30)).ok());
    ASSERT_TRUE(session->Drop(chunk.id).Wait(absl::Seconds(30)).ok());
  }
  EXPECT_EQ(kept_.Names().size(), kept);
  EXPECT_EQ(env_.daemon().hub().daemon_epoch(), 31u);
}

// The daemon died right after it welcomed the client and before it stored that.
class ForgottenTest : public RestartTest {
 protected:
  absl::StatusOr<std::unique_ptr<Session>> ConnectAndBeForgotten(const std::string& run,
                                                                 std::function<void()> forget) {
    ConnectOptions options;
    options.socket = env_.socket();
    options.job = "job";
    options.run = run;
    options.keep_on_death = !run.empty();
    options.device_memory_bytes = kMiB;
    device::FaultPlan plan;
    // The client has its welcome then, and has made no call.
    plan.point = device::FaultPoint::kRegisterHost;
    plan.action = device::FaultAction::kRun;
    plan.run = std::move(forget);
    return ConnectWithDevice(options, device::MakeFaultyDevice(device::MakeHostDevice({}), plan));
  }
  static constexpr size_t kWelcomedAt = 24;
  static constexpr size_t kKeptUntilAt = 32;
};

TEST_F(ForgottenTest, NewClient_GetsAnotherSession) {
  const absl::StatusOr<std::unique_ptr<Session>> session = ConnectAndBeForgotten("", [this] {
    env_.Stop();
    Exchange("s1-books", kWelcomedAt, 0);
    ASSERT_TRUE(env_.Start(options_).ok());
    EXPECT_EQ(env_.daemon().hub().AttachedSessions(), 0u);
  });
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->id(), 2u);
  const ChunkHandle chunk = Allocate(session->get());
  EXPECT_TRUE((*session)->Use(chunk.id, absl::Seconds(30)).ok());
  EXPECT_EQ(env_.daemon().hub().AttachedSessions(), 1u);
}

// The client makes its first call while there is no daemon, or gets its answer from the next one.
TEST_F(ForgottenTest, NewClientThatWaitsForTheNextDaemon_GetsAnotherSession) {
  std::thread next;
  const absl::StatusOr<std::unique_ptr<Session>> session = ConnectAndBeForgotten("", [&] {
    env_.Stop();
    Exchange("s1-books", kWelcomedAt, 0);
    next = std::thread([this] { EXPECT_TRUE(env_.Start(options_).ok()); });
  });
  next.join();
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->id(), 2u);
}

TEST_F(ForgottenTest, Successor_GetsTheSameSessionAgain) {
  absl::StatusOr<std::unique_ptr<Session>> first = ConnectAndBeForgotten("run-1", [] {});
  ASSERT_TRUE(first.ok()) << first.status();
  const ChunkHandle chunk = Allocate(first->get());
  (*first)->LeaveToSuccessor();
  first->reset();
  const absl::StatusOr<std::unique_ptr<Session>> second = ConnectAndBeForgotten("run-1", [this] {
    env_.Stop();
    for (const size_t half : {size_t{0}, sizeof(uint32_t)}) {
      Exchange("s1-books.1", kKeptUntilAt + half, 0x7fff'ffff);
    }
    ASSERT_TRUE(env_.Start(options_).ok());
  });
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->id(), 1u);
  const auto claimed = Claim(**second, {{"a", ChunkKind::kGeneric, 64 * 1024, true}});
  ASSERT_TRUE(claimed.ok()) << claimed.status();
  EXPECT_EQ(claimed->front().id, chunk.id);
  EXPECT_EQ(Check(), absl::OkStatus());
}

// The client still has all that it had before.
TEST_F(ForgottenTest, ClientThatMadeACall_IsKnownWhoeverNotesIt) {
  const std::unique_ptr<Session> session = Connect();
  Exchange("s1-books", kWelcomedAt, 0);
  const ChunkHandle chunk = Allocate(session.get());
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_TRUE(session->Use(chunk.id, absl::Seconds(30)).ok());
}

// The earlier daemon's holder is there, but no other part of it.
TEST_F(RestartTest, ClientThatComesBetweenTwoDaemons_WaitsForTheSecond) {
  env_.Stop();
  const std::string holder = env_.socket() + shm::kHolderSuffix;
  const absl::StatusOr<base::UniqueFd> listener = os::ListenSeqpacket(holder, 0600, 1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::thread next([this] { EXPECT_TRUE(env_.Start(options_).ok()); });
  const std::unique_ptr<Session> session = Connect();
  next.join();
  EXPECT_NE(session, nullptr);
}

TEST_F(RestartTest, ClientThatComesAfterTheLastDaemon_WaitsForNone) {
  env_.Stop();
  ConnectOptions options;
  options.socket = env_.socket();
  options.timeout = absl::InfiniteDuration();
  const absl::Status refused = Session::Connect(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("no daemon serves"));
}

TEST_F(RestartTest, EndedSession_IsKeptNoMore) {
  const size_t before = kept_.Names().size();
  {
    const std::unique_ptr<Session> session = Connect();
    Allocate(session.get());
    EXPECT_GT(kept_.Names().size(), before + 7);
  }
  Restart();  // has waited for memory that was being destroyed
  EXPECT_EQ(kept_.Names().size(), before);
  EXPECT_EQ(Totals(core::kHostAccount).reserved_bytes, 0u);
}

TEST_F(RestartTest, ClientThatLeftMeanwhile_IsFoundGone) {
  std::unique_ptr<Session> session = Connect();
  Allocate(session.get());
  env_.Stop();
  session.reset();
  ASSERT_TRUE(env_.Start(options_).ok());
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (env_.daemon().hub().AttachedSessions() > 0 && absl::Now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_EQ(env_.daemon().hub().AttachedSessions(), 0u);
}

TEST_F(RestartTest, ManifestOfAnotherRelease_StopsTheStartAndTouchesNothing) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get());
  env_.Stop();
  const std::vector<std::string> names = kept_.Names();
  constexpr size_t kVersionAt = 4;
  constexpr size_t kSecondBlock = 64;
  const uint32_t first = Exchange("manifest", kVersionAt, core::kManifestVersion + 1);
  const uint32_t second =
      Exchange("manifest", kSecondBlock + kVersionAt, core::kManifestVersion + 1);
  const absl::Status refused = env_.Start(options_);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("start the release that wrote it"));
  EXPECT_EQ(kept_.Names(), names);
  // Restores the version of that release.
  Exchange("manifest", kVersionAt, first);
  Exchange("manifest", kSecondBlock + kVersionAt, second);
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_TRUE(session->Use(chunk.id, absl::Seconds(30)).ok());
}

TEST_F(RestartTest, LessMemoryThanWasHandedOut_StopsTheStart) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get());
  env_.Stop();
  testing::DaemonEnvOptions less = options_;
  less.device_memory = "512KiB";
  const absl::Status refused = env_.Start(less);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("gives less than job job already has"));
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_TRUE(session->Use(chunk.id, absl::Seconds(30)).ok());
}

TEST_F(RestartTest, SessionWhoseBooksAreTorn_EndsAlone) {
  const std::unique_ptr<Session> torn = Connect("torn");
  const std::unique_ptr<Session> sound = Connect("sound");
  Allocate(torn.get());
  const ChunkHandle chunk = Allocate(sound.get());
  env_.Stop();
  constexpr size_t kChecksumAt = 16;
  const std::string books = "s" + std::to_string(torn->id()) + "-books";
  Exchange(books, kChecksumAt, 0x12345678);
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_TRUE(sound->Use(chunk.id, absl::Seconds(30)).ok());
  EXPECT_FALSE(kept_.Has(books));
  EXPECT_EQ(torn->ReserveWorkspace(4096, true).Wait(absl::Seconds(30)).code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(Check(), absl::OkStatus());
}

TEST_F(RestartTest, MemoryThatWasBeingMade_IsTakenBack) {
  const std::unique_ptr<Session> session = Connect();
  Allocate(session.get());
  env_.Stop();
  const std::string pool = "s" + std::to_string(session->id()) + "-pool4711";
  base::UniqueFd memory = *base::CreateRevocableMemfd("pool", kMiB);
  const base::UniqueFd same(::fcntl(memory.get(), F_DUPFD_CLOEXEC, 0));
  kept_.Put(pool, std::move(memory));
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_FALSE(kept_.Has(pool));
  struct stat file = {};
  ASSERT_EQ(::fstat(same.get(), &file), 0);
  EXPECT_EQ(file.st_size, 0);
}

TEST_F(RestartTest, SessionWithoutAll_EndsAndIsForgotten) {
  const std::unique_ptr<Session> session = Connect();
  Allocate(session.get());
  env_.Stop();
  const std::string prefix = "s" + std::to_string(session->id());
  const ino_t manifest = InodeOf("manifest");
  Kept::Store(&kept_).Remove(prefix + "-daemon-event").IgnoreError();
  ASSERT_TRUE(env_.Start(options_).ok());
  for (const std::string& name : kept_.Names()) EXPECT_THAT(name, Not(HasSubstr(prefix + "-")));
  EXPECT_EQ(env_.daemon().hub().AttachedSessions(), 0u);
  EXPECT_FALSE(session->Allocate({{"b", ChunkKind::kGeneric, 4096, true}}).ok());
  EXPECT_EQ(InodeOf("manifest"), manifest);  // the same file, without the session's chunks
  EXPECT_EQ(Check(), absl::OkStatus());
}

TEST_F(RestartTest, DaemonsKilledWhileTheyTookOver_LoseNothing) {
  const std::unique_ptr<Session> session = Connect();
  const ChunkHandle chunk = Allocate(session.get());
  env_.Stop();
  const auto bytes = static_cast<uint64_t>(::lseek(kept_.Of("manifest").get(), 0, SEEK_END));
  const base::Mapping mapping = *base::Mapping::Map(kept_.Of("manifest"), bytes);
  for (uint32_t i = 0; i < 10 * core::kMaxCrashes; ++i) {
    ASSERT_TRUE(core::Manifest::Open({mapping.data(), bytes}).ok());
  }
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_TRUE(session->Use(chunk.id, absl::Seconds(30)).ok());
}

TEST_F(RestartTest, ManifestThatEndsDaemons_IsGivenUpInTheEnd) {
  const std::unique_ptr<Session> session = Connect();
  Allocate(session.get());
  env_.Stop();
  const auto bytes = static_cast<uint64_t>(::lseek(kept_.Of("manifest").get(), 0, SEEK_END));
  const base::Mapping mapping = *base::Mapping::Map(kept_.Of("manifest"), bytes);
  for (uint32_t i = 1; i < core::kMaxCrashes; ++i) {
    ASSERT_TRUE(core::Manifest::Open({mapping.data(), bytes}, 0, /*crashed=*/true).ok());
  }
  constexpr size_t kCrashedAt = 544;
  Exchange("node", kCrashedAt, 1);
  const ino_t manifest = InodeOf("manifest");
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_EQ(env_.daemon().hub().AttachedSessions(), 0u);
  EXPECT_NE(InodeOf("manifest"), manifest);
}

// --- clients that die, and their replacements ---

class SuccessorTest : public RestartTest {
 protected:
  absl::StatusOr<std::unique_ptr<Session>> ConnectRun(
      const std::string& run = "run-1", std::optional<Admission> admission = std::nullopt) {
    ConnectOptions options;
    options.admission = std::move(admission);
    options.socket = env_.socket();
    options.job = "job";
    options.run = run;
    options.keep_on_death = true;
    options.device_memory_bytes = kMiB;
    return Session::Connect(options);
  }
  std::unique_ptr<Session> MustConnect() {
    absl::StatusOr<std::unique_ptr<Session>> session = ConnectRun();
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *std::move(session) : nullptr;
  }
  uint64_t HandedOut() {
    const core::AccountTotals totals = Totals(core::kHostAccount);
    return totals.in_use_bytes + totals.reserved_bytes;
  }
  static void Die(std::unique_ptr<Session> session) {
    session->LeaveToSuccessor();
    session.reset();
  }
  static const inline std::vector<ChunkSpec> kSpecs = {
      {"weights", ChunkKind::kWeight, 100'000, true}, {"spare", ChunkKind::kSpare, 5000, true}};

  // Chunks with data in the first, on the device or not.
  std::vector<ChunkHandle> AllocateAndWrite(Session* session) {
    const absl::StatusOr<std::vector<ChunkHandle>> chunks = session->Allocate(kSpecs);
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    std::memset((*chunks)[0].home, 0x5a, (*chunks)[0].bytes);
    return *chunks;
  }
  void ExpectClaimed(Session* session, const std::vector<ChunkHandle>& made) {
    ASSERT_TRUE(session->is_successor());
    const absl::StatusOr<std::vector<ChunkHandle>> claimed = Claim(*session, kSpecs);
    ASSERT_TRUE(claimed.ok()) << claimed.status();
    EXPECT_EQ((*claimed)[0].id, made[0].id);
    EXPECT_EQ((*claimed)[1].id, made[1].id);
    for (uint64_t at = 0; at < (*claimed)[0].bytes; ++at) {
      ASSERT_EQ(std::to_integer<int>((*claimed)[0].home[at]), 0x5a) << at;
    }
    EXPECT_EQ(Check(), absl::OkStatus());
  }
};

TEST_F(SuccessorTest, Successor_GetsTheSessionAndClaimsItsMemory) {
  std::unique_ptr<Session> session = MustConnect();
  const uint64_t id = session->id();
  EXPECT_FALSE(session->is_successor());
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  CommitSegmentOf(*session)->versions[7].store(42);
  Die(std::move(session));
  session = MustConnect();
  EXPECT_EQ(session->id(), id);
  EXPECT_EQ(session->arena_bytes(), kMiB);
  EXPECT_EQ(CommitSegmentOf(*session)->versions[7].load(), 42u);
  ExpectClaimed(session.get(), made);
  // The session works like any other.
  const absl::StatusOr<Lease> lease = session->Use(made[0].id, absl::Seconds(30));
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(std::to_integer<int>(lease->data[100]), 0x5a);
}

TEST_F(SuccessorTest, DeviceCopyThatWasHeld_IsThereForTheSuccessor) {
  std::unique_ptr<Session> session = MustConnect();
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  {
    const absl::StatusOr<Lease> lease = session->Use(made[0].id, absl::Seconds(30));
    ASSERT_TRUE(lease.ok()) << lease.status();
    std::memset(session->HostAddress(lease->data), 0x33, made[0].bytes);
    session->Transition(made[0].id, ChunkState::kCompute);
    ASSERT_TRUE(session->Transition(made[0].id, ChunkState::kHold, /*dirty=*/true)
                    .Wait(absl::Seconds(30))
                    .ok());
  }
  const uint64_t offset = session->DeviceOffset(made[0].id);
  Die(std::move(session));
  session = MustConnect();
  ExpectClaimed(session.get(), made);
  EXPECT_EQ(session->ResidencyOf(made[0].id), Residency::kResident);
  EXPECT_EQ(session->DeviceOffset(made[0].id), offset);
  ASSERT_TRUE(session->WriteBack(made[0].id).Wait(absl::Seconds(30)).ok());
  EXPECT_EQ(std::to_integer<int>(session->Home(made[0].id)[99'999]), 0x33);
}

// The daemon that ended also passed the pool, which lies before the slabs.
TEST_F(SuccessorTest, ClaimThatAnEarlierDaemonHadAnswered_LeavesTheArenaToBeHadAgain) {
  std::unique_ptr<Session> session = MustConnect();
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  Die(std::move(session));
  absl::StatusOr<std::unique_ptr<Session>> next =
      ConnectRun("run-1", Admission{.run = "run-1", .preemptible = true});
  ASSERT_TRUE(next.ok()) << next.status();
  ExpectClaimed(next->get(), made);
  std::vector<core::ChunkSpec> specs;
  for (const ChunkSpec& spec : kSpecs) {
    specs.push_back({spec.name, static_cast<shm::ChunkKind>(spec.kind), spec.bytes, true});
  }
  constexpr uint64_t kFirstOfASuccessor = (uint64_t{1} << shm::kAllocationBits) + 1;
  SessionHub& hub = env_.daemon().hub();
  ASSERT_TRUE(hub.Claim(hub.AllSessions().front(), specs, kFirstOfASuccessor).ok());
  ASSERT_TRUE(GiveArenaBack(**next).ok());
  const absl::StatusOr<ArenaWait> again = TakeArenaAgain(**next);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->taken);
  EXPECT_EQ((*next)->arena_bytes(), kMiB);
}

TEST_F(SuccessorTest, WhatIsNotClaimed_IsFreed) {
  std::unique_ptr<Session> session = MustConnect();
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  Allocate(session.get(), "other");
  const uint64_t before = HandedOut();
  Die(std::move(session));
  session = MustConnect();
  ExpectClaimed(session.get(), made);
  EXPECT_EQ(HandedOut(), before);
  ASSERT_TRUE(FreeUnclaimed(*session).ok());
  EXPECT_EQ(HandedOut(), before - 64 * 1024);
  EXPECT_EQ(Claim(*session, {{"other", ChunkKind::kGeneric, 64 * 1024}}).status().code(),
            absl::StatusCode::kNotFound);
  session.reset();
  EXPECT_EQ(HandedOut(), 0u);
}

TEST_F(SuccessorTest, DaemonKilledBetweenThem_ChangesNothing) {
  std::unique_ptr<Session> session = MustConnect();
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  env_.Stop();
  Die(std::move(session));  // no daemon is there to notice
  ASSERT_TRUE(env_.Start(options_).ok());
  session = MustConnect();
  ExpectClaimed(session.get(), made);
  Restart();
  std::unique_ptr<Session> other = Connect("other");
  ASSERT_NE(other, nullptr);
  ASSERT_EQ(session->Use(made[0].id, absl::Seconds(30)).status(), absl::OkStatus());
  Die(std::move(session));
  Restart();
  session = MustConnect();
  ExpectClaimed(session.get(), made);
}

TEST_F(SuccessorTest, ManySuccessors_KeepNothingTooMuch) {
  std::unique_ptr<Session> session = MustConnect();
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  const size_t kept = kept_.Names().size();
  for (int i = 0; i < 5; ++i) {
    Die(std::move(session));
    session = MustConnect();
    ExpectClaimed(session.get(), made);
  }
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (kept_.Names().size() != kept && absl::Now() < give_up) std::this_thread::yield();
  EXPECT_EQ(kept_.Names().size(), kept);
  ASSERT_TRUE(session->Use(made[0].id, absl::Seconds(30)).ok());
  session.reset();
  EXPECT_EQ(kept_.Names(), (std::vector<std::string>{"manifest", "node"}));
}

TEST_F(SuccessorTest, DaemonKilledAtAnyInstantOfMeetingASuccessor_HasTheSessionStill) {
  std::unique_ptr<Session> session = MustConnect();
  const std::vector<ChunkHandle> made = AllocateAndWrite(session.get());
  const size_t kept = kept_.Names().size();
  constexpr int kChanges = 13;  // seven are added, six are removed
  for (int instant = 0; instant <= kChanges; ++instant) {
    Die(std::move(session));
    kept_.DieAfter(instant);
    session = MustConnect();
    Die(std::move(session));
    env_.Stop();
    kept_.LiveAgain();
    ASSERT_TRUE(env_.Start(options_).ok());
    EXPECT_EQ(kept_.Names().size(), kept) << instant;
    session = MustConnect();
    ASSERT_NO_FATAL_FAILURE(ExpectClaimed(session.get(), made)) << instant;
  }
}

TEST_F(SuccessorTest, PredecessorThatLives_IsNotReplaced) {
  const std::unique_ptr<Session> session = MustConnect();
  AllocateAndWrite(session.get());
  const absl::Status refused = ConnectRun().status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("rank 0 of run run-1 of job job is process"));
}

TEST_F(SuccessorTest, AnotherRunOrNone_GetsASessionOfItsOwn) {
  std::unique_ptr<Session> session = MustConnect();
  AllocateAndWrite(session.get());
  Die(std::move(session));
  const absl::StatusOr<std::unique_ptr<Session>> another = ConnectRun("run-2");
  ASSERT_TRUE(another.ok()) << another.status();
  EXPECT_FALSE((*another)->is_successor());
  const absl::StatusOr<std::unique_ptr<Session>> none = ConnectRun("");
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE((*none)->is_successor());
  EXPECT_TRUE(MustConnect()->is_successor());
}

TEST_F(SuccessorTest, SessionThatSaidGoodbyeBetweenTwoDaemons_HasNoSuccessor) {
  std::unique_ptr<Session> session = MustConnect();
  AllocateAndWrite(session.get());
  env_.Stop();
  std::thread next([this] { EXPECT_TRUE(env_.Start(options_).ok()); });
  session.reset();
  next.join();
  EXPECT_FALSE(MustConnect()->is_successor());
}

TEST_F(SuccessorTest, SessionThatSaidGoodbye_HasNoSuccessor) {
  std::unique_ptr<Session> session = MustConnect();
  AllocateAndWrite(session.get());
  session.reset();
  EXPECT_FALSE(MustConnect()->is_successor());
}

// --- the operator's settings ---

TEST_F(RestartTest, DrainedDaemon_IsDrainedAfterItsDeath) {
  env_.daemon().hub().Drain(true);
  const auto drained = [this] {
    return env_.daemon().hub().Inspect(
        [](const core::Engine& engine, const auto&) { return engine.jobs().drained(); });
  };
  Restart();
  EXPECT_TRUE(drained());
  Restart();
  EXPECT_TRUE(drained());
  env_.daemon().hub().Drain(false);
  Restart();
  EXPECT_FALSE(drained());
}

}  // namespace
}  // namespace geminid::service
