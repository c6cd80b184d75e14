// The daemon dies in a call, at each of its stores in turn. The next daemon takes over.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mapping.h"
#include "base/memfd.h"
#include "base/pages.h"
#include "gmock/gmock.h"
#include "tests/daemon/core/engine/engine_fixture.h"
#include "tests/daemon/core/engine/store_death.h"

namespace geminid::core {
namespace {

using ::testing::IsEmpty;

constexpr uint64_t kSlot = shm::kSlotBytes;
constexpr uint32_t kRecords = 64;
constexpr uint64_t kArenaBytes = 16 * kSlot;

base::Mapping NewMemory(const std::string& name, uint64_t bytes) {
  const uint64_t rounded = base::RoundUpToPage(bytes);
  return *base::Mapping::Map(*base::CreateSealedMemfd(name, rounded), rounded);
}

// One device of the size of an arena, sessions with books, and memory that outlives an engine.
class World {
 public:
  explicit World(StoreDeath* death) : death_(death) {
    options_.host_capacity_bytes = uint64_t{1} << 30;
    options_.devices = {HostDevice(DeviceIndex{0}, 2 * kArenaBytes)};
    manifest_ = NewMemory("manifest", Manifest::BytesFor(kRecords));
    death_->Watch(manifest_.data(), manifest_.bytes());
    Manifest manifest = *Manifest::Create(ManifestBytes(), 1);
    manifest.Remove(*manifest.Add({.session = SessionId{1}, .kind = ChunkKind::kWeight}, {}));
    engine_ = std::make_unique<Engine>(options_, &tables_, std::move(manifest));
  }
  ~World() {
    death_->Forget(manifest_.data());
    for (const auto& [id, books] : books_) death_->Forget(books.data());
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Engine& engine() { return *engine_; }
  FakeTables& tables() { return tables_; }
  Time now() const { return now_; }

  SessionId Open(const SessionSpec& spec) {
    const SessionId id = *engine_->OpenSession(spec, now_);
    base::Mapping& memory = books_[id];
    memory = NewMemory("books", SessionBooks::Bytes());
    death_->Watch(memory.data(), memory.bytes());
    SessionFacts facts;
    facts.id = id;
    facts.spec = spec;
    engine_->KeepBooks(id, *SessionBooks::Create({memory.data(), memory.bytes()}, facts));
    engine_->SetWelcomed(id);
    return id;
  }
  // The pool is made and stored before the session has it.
  Promise Begin(SessionId session, const std::vector<ChunkSpec>& specs, uint64_t number) {
    const Promise promise = *engine_->BeginAllocation(session, specs, number);
    if (promise.bytes > 0) pools_[session][promise.pool] = promise.bytes;
    return promise;
  }
  ChunkId Add(SessionId session, ChunkKind kind, bool has_home = true) {
    return engine_
        ->FinishAllocation(Begin(session, {{"c", kind, 8000, has_home}}, ++allocations_).charge)
        ->chunks[0];
  }
  shm::Request Make(shm::RequestOp op, ChunkId chunk, uint16_t flags = 0, uint64_t argument = 0) {
    shm::Request request{};
    request.request_id = ++requests_;
    request.op = op;
    request.flags = flags;
    request.cause = TransferCause::kDemand;
    request.deadline_moment = kNoDeadline;
    request.source = request.destination = chunk;
    request.argument = argument;
    return request;
  }
  std::vector<Outgoing> Send(SessionId session, const shm::Request& request) {
    std::vector<Outgoing> out;
    engine_->HandleRequest(session, request, now_, &out);
    for (const Outgoing& each : out) EXPECT_EQ(each.error, "");
    return out;
  }
  void MakeResident(SessionId session, ChunkId chunk) {
    Send(session, Make(shm::RequestOp::kAllocateExtent, chunk, 0, shm::kAnyOffset));
    Send(session, Make(shm::RequestOp::kPublish, chunk));
  }
  void Move(SessionId session, ChunkId chunk, ChunkState to, bool dirty = false) {
    Send(session, Make(shm::RequestOp::kTransition, chunk, 0,
                       static_cast<uint64_t>(to) | (dirty ? shm::kDirtyBit : 0)));
  }
  void Copy(SessionId session, ChunkId source, ChunkId destination, uint16_t flags = 0) {
    shm::Request request = Make(shm::RequestOp::kTransfer, destination, flags, shm::kAnyOffset);
    request.source = source;
    request.bytes = 8000;
    Send(session, request);
  }

  void TakeOver() {
    engine_ = std::make_unique<Engine>(options_, &tables_, *Manifest::Open(ManifestBytes()));
    for (const auto& [id, memory] : books_) {
      const SessionBooks books = *SessionBooks::Open({memory.data(), memory.bytes()});
      InheritedSession inherited(books);
      inherited.pools = pools_[id];
      inherited.arena_bytes = books.arena_bytes();
      for (uint32_t i = 0; i < kRecords; ++i) {
        inherited.state_words.push_back(tables_.State(id, ChunkId{i}).Encode());
      }
      const absl::Status restored = engine_->RestoreSession(inherited, now_);
      EXPECT_EQ(restored, absl::OkStatus());
    }
    std::vector<Outgoing> out;
    engine_->FinishRestore(now_, &out);
    EXPECT_EQ(engine_->Check(), absl::OkStatus());
  }
  bool HasArena(SessionId session) const {
    const base::Mapping& memory = books_.at(session);
    return SessionBooks::Open({memory.data(), memory.bytes()})->arena_bytes() > 0;
  }
  void GiveBack(const Releases& releases) {
    for (const ChargeId charge : releases.charges) engine_->GiveBack(charge);
  }
  std::vector<std::string> StatusOfChunks(SessionId session) {
    std::vector<std::string> all;
    for (const ChunkSnapshot& chunk : engine_->Chunks(session, kRecords)) {
      all.push_back(std::string(shm::Name(chunk.status.residency)) + ", " +
                    shm::Name(chunk.status.state) + ", valid " + Name(chunk.status.valid) +
                    (chunk.status.dirty ? ", dirty" : ""));
    }
    return all;
  }

 private:
  std::span<std::byte> ManifestBytes() { return {manifest_.data(), Manifest::BytesFor(kRecords)}; }

  StoreDeath* const death_;
  EngineOptions options_;
  FakeTables tables_;
  base::Mapping manifest_;
  std::map<SessionId, base::Mapping> books_;
  std::map<SessionId, std::map<PoolId, uint64_t>> pools_;
  std::unique_ptr<Engine> engine_;
  Time now_ = Time::FromNanoseconds(1'000'000'000);
  uint64_t requests_ = 0;
  uint64_t allocations_ = 0;
};

SessionSpec SpecOf(const std::string& job, shm::DeathPolicy policy = shm::DeathPolicy::kFree,
                   const std::string& run = "") {
  SessionSpec spec;
  spec.tenant = "uid:1000";
  spec.job = job;
  spec.run = run;
  spec.world_size = 1;
  spec.death_policy = policy;
  return spec;
}

class EngineDeaths : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!StoreDeath::IsPossible()) GTEST_SKIP() << "needs single steps, and no sanitizer";
  }
  // Runs `prepare` and `call` in a new world each time. The daemon dies in the call at its first
  // store, then at its second, and so on, until a call ends alive. After each, `check` sees the
  // next daemon.
  void DieAtEveryStore(const std::function<void(World&)>& prepare,
                       const std::function<void(World&)>& call,
                       const std::function<void(World&, bool died)>& check) {
    bool died = true;
    for (int stores = 0; died; ++stores) {
      SCOPED_TRACE("a death after " + std::to_string(stores) + " stores");
      World world(&death_);
      prepare(world);
      died = death_.DiesAt(stores, [&] { call(world); });
      world.TakeOver();
      check(world, died);
      if (HasFailure()) return;
      deaths_ += died ? 1 : 0;
    }
    EXPECT_GT(deaths_, 0);
  }

  StoreDeath death_;
  int deaths_ = 0;
};

TEST_F(EngineDeaths, InAnAllocation_LeaveNothingThatItsNumberDoesNotFree) {
  SessionId session{};
  Promise promise;
  DieAtEveryStore(
      [&](World& world) {
        session = world.Open(SpecOf("job"));
        promise = world.Begin(session,
                              {{"a", ChunkKind::kWeight, 5000, true},
                               {"b", ChunkKind::kGatheredWeight, 5000, false},
                               {"c", ChunkKind::kExpAvg, 5000, true}},
                              7);
      },
      [&](World& world) { ASSERT_TRUE(world.engine().FinishAllocation(promise.charge).ok()); },
      [&](World& world, bool) {
        const absl::StatusOr<Releases> freed =
            world.engine().Free(session, *world.engine().MadeBy(session, 7, 7));
        ASSERT_TRUE(freed.ok()) << freed.status();
        world.GiveBack(*freed);
        EXPECT_EQ(world.engine().ChunkCount(session), 0u);
        EXPECT_THAT(world.engine().Pools(), IsEmpty());
        EXPECT_EQ(world.engine().manifest().used_records(), 0u);
      });
}

TEST_F(EngineDeaths, InAFree_LeaveWhatIsFreedWhenItIsAskedAgain) {
  SessionId session{};
  std::vector<ChunkId> chunks;
  DieAtEveryStore(
      [&](World& world) {
        session = world.Open(SpecOf("job"));
        ASSERT_TRUE(world.engine().CreateArena(session, kArenaBytes).ok());
        chunks = {world.Add(session, ChunkKind::kWeight), world.Add(session, ChunkKind::kExpAvg)};
        world.MakeResident(session, chunks[0]);
      },
      [&](World& world) { ASSERT_TRUE(world.engine().Free(session, chunks).ok()); },
      [&](World& world, bool) {
        std::vector<ChunkId> left = chunks;
        std::erase_if(left, [&](ChunkId chunk) {
          return !world.engine().FindChunk(session, chunk).has_value();
        });
        const absl::StatusOr<Releases> freed = world.engine().Free(session, left);
        ASSERT_TRUE(freed.ok()) << freed.status();
        world.GiveBack(*freed);
        EXPECT_EQ(world.engine().ChunkCount(session), 0u);
        EXPECT_EQ(world.engine().manifest().used_records(), 0u);
      });
}

// After each death the files are charged once, or not at all.
TEST_F(EngineDeaths, WhileFilesOnDiskAreCharged_LeaveThemChargedWithTheirChunk) {
  constexpr uint64_t kBytes = 123'456'789;
  SessionId session{};
  Promise promise;
  DieAtEveryStore(
      [&](World& world) {
        session = world.Open(SpecOf("job"));
        promise = world.Begin(session, {{"files", ChunkKind::kOnDisk, kBytes, false}}, 7);
      },
      [&](World& world) { ASSERT_TRUE(world.engine().FinishAllocation(promise.charge).ok()); },
      [&](World& world, bool died) {
        const std::vector<ChunkId> made = *world.engine().MadeBy(session, 7, 7);
        EXPECT_TRUE(died || made.size() == 1);
        const uint64_t bytes = made.size() * kBytes;
        EXPECT_EQ(world.engine().ledger().InUseBytes(kDiskAccount, session), bytes);
        EXPECT_EQ(world.engine().quota().ChargedBytes("uid:1000", kDiskAccount), bytes);
        const absl::StatusOr<Releases> closed =
            world.engine().CloseSession(session, CloseReason::kDied, Time());
        ASSERT_TRUE(closed.ok()) << closed.status();
        world.GiveBack(*closed);
        EXPECT_EQ(world.engine().ledger().Totals(kDiskAccount).capacity_bytes, 0u);
        EXPECT_EQ(world.engine().quota().ChargedBytes("uid:1000", kDiskAccount), 0u);
      });
}

// The client of the session died during several operations.
class RankAndDaemon : public EngineDeaths {
 protected:
  // The client dies, and then the daemon in the call that notes the death. Whatever part of that
  // call the next daemon finds, it retains the same chunks.
  void DieTogether(const SessionSpec& spec) {
    SessionId session{};
    const auto prepare = [&](World& world) {
      session = world.Open(spec);
      ASSERT_TRUE(world.engine().CreateArena(session, kArenaBytes).ok());
      const ChunkId loading = world.Add(session, ChunkKind::kWeight);
      const ChunkId writing_back = world.Add(session, ChunkKind::kExpAvg);
      const ChunkId gathered = world.Add(session, ChunkKind::kGatheredWeight, false);
      const ChunkId saved_to = world.Add(session, ChunkKind::kGeneric);
      const ChunkId computing = world.Add(session, ChunkKind::kWeight);
      world.Copy(session, loading, loading, shm::kAllocateDestination);
      for (const ChunkId chunk : {writing_back, gathered, computing}) {
        world.MakeResident(session, chunk);
      }
      world.Move(session, computing, ChunkState::kCompute, /*dirty=*/true);
      world.Copy(session, writing_back, writing_back);
      world.Copy(session, gathered, saved_to);
      world.Send(session, world.Make(shm::RequestOp::kReserveWorkspace, shm::kNoChunk));
    };
    std::vector<std::string> expected;
    {
      World alive(&death_);
      prepare(alive);
      ASSERT_TRUE(alive.engine().CloseSession(session, CloseReason::kDied, alive.now()).ok());
      expected = alive.StatusOfChunks(session);
      ASSERT_EQ(expected.size(), 5u);
    }
    DieAtEveryStore(
        prepare,
        [&](World& world) {
          ASSERT_TRUE(world.engine().CloseSession(session, CloseReason::kDied, world.now()).ok());
        },
        [&](World& world, bool) {
          ASSERT_EQ(world.engine().Sessions().size(), 1u) << "the retained session is lost";
          if (world.engine().Sessions()[0].state == SessionState::kAttached) {
            ASSERT_TRUE(world.engine().CloseSession(session, CloseReason::kDied, world.now()).ok());
          }
          EXPECT_EQ(world.StatusOfChunks(session), expected);
          EXPECT_TRUE(world.engine().ReopenSession(session, spec, world.now()).ok());
        });
  }
};

TEST_F(RankAndDaemon, ThatDieTogether_LeaveTheRun) {
  DieTogether(SpecOf("job", shm::DeathPolicy::kKeep, "run-1"));
}

// A copy that was being computed on does not count as whole, however often the daemon has died
// since.
TEST_F(RankAndDaemon, ThatDieTogetherWithoutARun_LeaveWhatIsWhole) {
  DieTogether(SpecOf("job", shm::DeathPolicy::kKeep));
}

// The client has detached, or no client wants its memory. The session may end, but in order.
TEST_F(EngineDeaths, InTheEndOfASession_LeaveOneThatCanEnd) {
  SessionId session{};
  DieAtEveryStore(
      [&](World& world) {
        session = world.Open(SpecOf("job"));
        ASSERT_TRUE(world.engine().CreateArena(session, kArenaBytes).ok());
        const ChunkId loading = world.Add(session, ChunkKind::kWeight);
        world.Copy(session, loading, loading, shm::kAllocateDestination);
        world.Add(session, ChunkKind::kExpAvg);
      },
      [&](World& world) {
        ASSERT_TRUE(world.engine().CloseSession(session, CloseReason::kDied, world.now()).ok());
      },
      [&](World& world, bool) {
        const absl::StatusOr<Releases> releases =
            world.engine().CloseSession(session, CloseReason::kDied, world.now());
        ASSERT_TRUE(releases.ok()) << releases.status();
        world.GiveBack(*releases);
        EXPECT_EQ(world.engine().manifest().used_records(), 0u);
        EXPECT_EQ(world.engine().Check(), absl::OkStatus());
      });
}

class CloseInSlices : public EngineDeaths {
 protected:
  // Closes one chunk a slice.
  static void Close(World* world, SessionId session, CloseReason reason) {
    absl::StatusOr<Releases> releases = world->engine().BeginClose(session, reason, world->now());
    ASSERT_TRUE(releases.ok()) << releases.status();
    while (!world->engine().ContinueClose(session, 1, &*releases)) {
    }
  }
};

// The client has detached, and the daemon dies between two slices. The next daemon must not treat
// the session as one that continues or that a replacement can have.
TEST_F(CloseInSlices, OfASessionThatEnds_AreFinishedByTheNextDaemon) {
  SessionId session{};
  const SessionSpec spec = SpecOf("job", shm::DeathPolicy::kKeep, "run-1");
  DieAtEveryStore(
      [&](World& world) {
        session = world.Open(spec);
        ASSERT_TRUE(world.engine().CreateArena(session, kArenaBytes).ok());
        const ChunkId loading = world.Add(session, ChunkKind::kWeight);
        world.Copy(session, loading, loading, shm::kAllocateDestination);
        for (int i = 0; i < 3; ++i) world.Add(session, ChunkKind::kExpAvg);
      },
      [&](World& world) { Close(&world, session, CloseReason::kDetached); },
      [&](World& world, bool) {
        EXPECT_EQ(world.engine().FindKept(spec), std::nullopt);
        if (!world.engine().Sessions().empty()) {
          // The daemon died before the first slice.
          EXPECT_EQ(world.engine().ChunkCount(session), 4u);
          Close(&world, session, CloseReason::kDetached);
        }
        std::vector<Outgoing> out;
        EXPECT_EQ(world.engine().Sessions().size(), 0u);
        (void)world.engine().Tick(world.now(), &out);
        EXPECT_EQ(world.engine().manifest().used_records(), 0u);
        EXPECT_EQ(world.engine().counters().sessions_expired, 0u);
        EXPECT_EQ(world.engine().Check(), absl::OkStatus());
      });
}

// A job yields to another, and continues after it.
TEST_F(EngineDeaths, InGivingAnArenaBack_LeaveAJobThatGoesOn) {
  SessionId low{};
  const RankRequest ask = {.priority = -1, .device_bytes = 2 * kArenaBytes, .preemptible = true};
  const auto release = [&](World& world) {
    const absl::StatusOr<Releases> releases = world.engine().ReleaseArena(low, world.now());
    ASSERT_TRUE(releases.ok()) << releases.status();
    world.GiveBack(*releases);
  };
  DieAtEveryStore(
      [&](World& world) {
        low = world.Open(SpecOf("low"));
        ASSERT_TRUE(world.engine().Admit(low, "", ask, 1, world.now()).ok());
        ASSERT_TRUE(world.engine().CreateArena(low, ask.device_bytes).ok());
        const SessionId high = world.Open(SpecOf("high"));
        RankRequest more = ask;
        more.priority = 0;
        ASSERT_TRUE(world.engine().Admit(high, "", more, 1, world.now()).ok());
        ASSERT_TRUE(world.tables().yields[low]);
      },
      release,
      [&](World& world, bool died) {
        // The shell repeats the request for a client that got no answer.
        if (died && world.HasArena(low)) release(world);
        for (const SessionSnapshot& session : world.engine().Sessions()) {
          if (session.id == low) continue;
          RankRequest more = ask;
          more.priority = 0;
          EXPECT_EQ(world.engine().Admit(session.id, "", more, 1, world.now())->state,
                    JobState::kRunning);
          ASSERT_TRUE(
              world.engine().CloseSession(session.id, CloseReason::kDetached, world.now()).ok());
        }
        std::vector<Outgoing> out;
        world.engine().Tick(world.now(), &out);
        EXPECT_EQ(world.engine().Admit(low, "", ask, 1, world.now())->state, JobState::kRunning);
      });
}

}  // namespace
}  // namespace geminid::core
