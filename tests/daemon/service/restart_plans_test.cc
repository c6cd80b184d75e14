// Plans outlive the daemon. The next daemon evicts by them and shows them before any client has
// made another plan. A stored plan may have any contents.
#include <unistd.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/memfd.h"
#include "daemon/service/sessions/stored_plan.h"
#include "geminid/plan.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/daemon/service/restart_fixture.h"

namespace geminid::service {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kQuarter = kMiB / 4;
constexpr char kAll[] = "abcd";

// A session whose arena is full of a, b, c and d. The first use was of `a` and the last of `d`, so
// by last use `a` would be evicted first.
class RestartPlans : public RestartTest {
 protected:
  void SetUp() override {
    RestartTest::SetUp();
    session_ = Connect();
    ASSERT_NE(session_, nullptr);
    for (const char name : std::string(kAll)) {
      chunks_.push_back(Add(std::string(1, name)));
      ASSERT_TRUE(session_->Use(chunks_.back(), absl::Seconds(30)).ok());
      // The chunk holds data and may be evicted.
      ASSERT_TRUE(
          session_->Transition(chunks_.back(), ChunkState::kHold).Wait(absl::Seconds(30)).ok());
    }
  }
  ChunkId Add(const std::string& name) {
    const absl::StatusOr<std::vector<ChunkHandle>> chunks =
        session_->Allocate({{name, ChunkKind::kGeneric, kQuarter, true}});
    EXPECT_TRUE(chunks.ok()) << chunks.status();
    return chunks.ok() ? chunks->front().id : kNoChunk;
  }
  // A trace with one use each, in this order of indices.
  Trace TraceOf(const std::vector<uint32_t>& order) const {
    Trace trace;
    trace.arena_bytes = kMiB;
    for (const ChunkId chunk : chunks_) {
      trace.chunks.push_back(
          {.chunk = chunk, .device_bytes = kQuarter, .transfer_bytes = kQuarter});
    }
    for (const uint32_t index : order) {
      trace.moments.push_back({.uses = {{.index = index}}, .compute_seconds = 1e-3});
    }
    trace.link.host_to_device_bytes_per_second = 1e9;
    trace.link.device_to_host_bytes_per_second = 1e9;
    return trace;
  }
  Plan MakePlan(const std::vector<uint32_t>& order) {
    absl::StatusOr<Plan> plan = session_->MakePlan(TraceOf(order), {});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return plan.ok() ? *std::move(plan) : Plan{};
  }
  // Uses another chunk. Returns the name of the chunk that is evicted.
  std::string EvictOne() {
    const ChunkId wanted = Add("wanted");
    EXPECT_TRUE(session_->Use(wanted, absl::Seconds(30)).ok());
    std::string gone;
    for (size_t i = 0; i < chunks_.size(); ++i) {
      if (session_->ResidencyOf(chunks_[i]) != Residency::kResident) gone += kAll[i];
    }
    return gone;
  }
  std::string PlanName(uint64_t number) const {
    return absl::StrCat("s", session_->id(), "-plan", number);
  }
  std::shared_ptr<const StoredPlan> KeptOf(const Session& session) {
    return env_.daemon().hub().Inspect([&](const core::Engine&, const auto& sessions) {
      return sessions.at(shm::SessionId{session.id()})->stored_plan;
    });
  }
  // Replaces a stored file by the result of `change`, while there is no daemon.
  void ChangeKept(const std::string& name, const std::function<void(std::string*)>& change) {
    absl::StatusOr<std::string> file = base::ReadMemfd(kept_.Of(name), kMiB);
    ASSERT_TRUE(file.ok()) << file.status();
    change(&*file);
    Kept::Store(&kept_).Remove(name).IgnoreError();
    kept_.Put(name, *base::CreateWrittenMemfd("plan", *file));
  }
  // Expects a session without a plan and otherwise unchanged, in which a new plan can be made and
  // is stored.
  void ExpectGivenUp(const std::string& why) {
    ::testing::internal::CaptureStderr();
    const absl::Status started = env_.Start(options_);
    const std::string log = ::testing::internal::GetCapturedStderr();
    ASSERT_TRUE(started.ok()) << started;
    EXPECT_THAT(log, HasSubstr("the stored plan of a session is dropped"));
    EXPECT_THAT(log, HasSubstr(why));
    EXPECT_EQ(Check(), absl::OkStatus());
    EXPECT_EQ(KeptOf(*session_), nullptr);
    EXPECT_THAT(kept_.NamesWith("-plan"), IsEmpty());
    EXPECT_EQ(EvictOne(), "a");
    MakePlan({0, 1, 2, 3});
    EXPECT_EQ(kept_.NamesWith("-plan").size(), 1u);
    ASSERT_NO_FATAL_FAILURE(Restart());
    EXPECT_NE(KeptOf(*session_), nullptr);
  }

  std::unique_ptr<Session> session_;
  std::vector<ChunkId> chunks_;
};

TEST_F(RestartPlans, WithoutAPlan_TheLeastRecentlyUsedGoes) {
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(EvictOne(), "a");
}

TEST_F(RestartPlans, Successor_EvictsByThePlanWithoutAnotherSample) {
  MakePlan({0, 2, 3, 1});
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(EvictOne(), "b");
  EXPECT_EQ(Check(), absl::OkStatus());
}

TEST_F(RestartPlans, MomentOfTheSession_IsWhereItWas) {
  MakePlan({0, 2, 3, 1});
  session_->BeginMoment(3);
  ASSERT_NO_FATAL_FAILURE(Restart());
  // The next use is b's, and d's is the farthest.
  EXPECT_EQ(EvictOne(), "d");
}

TEST_F(RestartPlans, NumbersAndTrace_AreThoseThatTheClientWasTold) {
  const Plan plan = MakePlan({0, 2, 3, 1});
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(Restart());
  const std::shared_ptr<const StoredPlan> kept = KeptOf(*session_);
  ASSERT_NE(kept, nullptr);
  const absl::StatusOr<StoredPlan::Contents> contents = kept->Read(shm::SessionId{session_->id()});
  ASSERT_TRUE(contents.ok()) << contents.status();
  EXPECT_EQ(contents->plan.plan_hash(), plan.plan_hash);
  EXPECT_EQ(contents->trace.moments(3).uses(0).index(), 1u);
  const PlanNumbers numbers =
      env_.daemon().hub().Inspect([&](const core::Engine&, const auto& sessions) {
        return sessions.at(shm::SessionId{session_->id()})->plan;
      });
  EXPECT_EQ(numbers.transfer_bytes, plan.transfer_bytes);
  EXPECT_GT(numbers.transfer_bytes, 0u);
  EXPECT_EQ(numbers.transfer_bytes_lower_bound, plan.transfer_bytes_lower_bound);
  EXPECT_THAT(env_.MetricsPage(), HasSubstr("geminid_plan_transfer_bytes{"));
  EXPECT_THAT(env_.MetricsPage(), Not(HasSubstr("geminid_plan_memory_bytes 0\n")));
}

TEST_F(RestartPlans, ManyPlans_LeaveTheLastOneAlone) {
  for (int i = 0; i < 5; ++i) MakePlan({0, 1, 2, 3});
  MakePlan({0, 2, 3, 1});
  EXPECT_THAT(kept_.NamesWith("-plan"), ElementsAre(PlanName(6)));
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_THAT(kept_.NamesWith("-plan"), ElementsAre(PlanName(6)));
  MakePlan({0, 1, 3, 2});
  EXPECT_THAT(kept_.NamesWith("-plan"), ElementsAre(PlanName(7)));
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(EvictOne(), "c");
}

TEST_F(RestartPlans, DaemonKilledWhileAPlanTakesTheOthersPlace_HasOneOfThem) {
  for (int instant = 0; instant <= 2; ++instant) {  // one is put, one is removed
    MakePlan({0, 1, 2, 3});
    kept_.DieAfter(instant);
    MakePlan({0, 2, 3, 1});
    env_.Stop();
    kept_.LiveAgain();
    ASSERT_TRUE(env_.Start(options_).ok());
    EXPECT_EQ(kept_.NamesWith("-plan").size(), 1u) << instant;
    const std::shared_ptr<const StoredPlan> kept = KeptOf(*session_);
    ASSERT_NE(kept, nullptr) << instant;
    const auto contents = kept->Read(shm::SessionId{session_->id()});
    ASSERT_TRUE(contents.ok()) << contents.status();
    EXPECT_EQ(contents->trace.moments(3).uses(0).index(), instant == 0 ? 3u : 1u) << instant;
  }
}

TEST_F(RestartPlans, ChunkThatWasFreedSince_IsNoReasonToGiveUpTheOthers) {
  MakePlan({0, 2, 3, 1});
  ASSERT_TRUE(session_->Free(std::span(&chunks_[2], 1)).ok());
  ASSERT_NO_FATAL_FAILURE(Restart());
  ASSERT_NE(KeptOf(*session_), nullptr);
  const absl::StatusOr<Lease> stays = session_->Use(Add("fills the hole"), absl::Seconds(30));
  ASSERT_TRUE(stays.ok()) << stays.status();
  EXPECT_THAT(EvictOne(), HasSubstr("b"));
  EXPECT_EQ(session_->ResidencyOf(chunks_[0]), Residency::kResident);
  EXPECT_EQ(session_->ResidencyOf(chunks_[3]), Residency::kResident);
  EXPECT_EQ(Check(), absl::OkStatus());
}

TEST_F(RestartPlans, OfASessionThatEnded_NothingIsKept) {
  MakePlan({0, 2, 3, 1});
  EXPECT_THAT(kept_.NamesWith("-plan"), ElementsAre(PlanName(1)));
  session_.reset();
  Restart();  // has waited for memory that was being destroyed
  EXPECT_THAT(kept_.NamesWith("-"), IsEmpty()) << "of sessions";
}

TEST_F(RestartPlans, DamagedPlan_IsGivenUpAlone) {
  MakePlan({0, 2, 3, 1});
  env_.Stop();
  ChangeKept(PlanName(1), [](std::string* file) { (*file)[file->size() / 2] ^= 0x10; });
  ExpectGivenUp("it is damaged");
}

TEST_F(RestartPlans, PlanThatIsCutOff_IsGivenUpAlone) {
  MakePlan({0, 2, 3, 1});
  env_.Stop();
  ChangeKept(PlanName(1), [](std::string* file) { file->resize(20); });
  ExpectGivenUp("it is truncated");
}

TEST_F(RestartPlans, PlanOfAnotherRelease_IsGivenUpAlone) {
  MakePlan({0, 2, 3, 1});
  env_.Stop();
  ChangeKept(PlanName(1), [](std::string* file) { ++(*file)[4]; });
  ExpectGivenUp("it is of version 2, and this release reads version 1");
}

TEST_F(RestartPlans, PlanOfAnotherSession_IsGivenUpAlone) {
  MakePlan({0, 2, 3, 1});
  const std::unique_ptr<Session> other = Connect("other");
  ASSERT_NE(other, nullptr);
  ASSERT_TRUE(other
                  ->MakePlan({.arena_bytes = kMiB,
                              .chunks = {{.chunk = Allocate(other.get()).id,
                                          .device_bytes = kQuarter,
                                          .transfer_bytes = kQuarter}},
                              .moments = {{.uses = {{.index = 0}}, .compute_seconds = 1e-3}},
                              .link = TraceOf({}).link},
                             {})
                  .ok());
  env_.Stop();
  const std::string others = absl::StrCat("s", other->id(), "-plan1");
  const std::string file = *base::ReadMemfd(kept_.Of(others), kMiB);
  ChangeKept(PlanName(1), [&](std::string* mine) { *mine = file; });
  Kept::Store(&kept_).Remove(others).IgnoreError();
  ExpectGivenUp(absl::StrCat("it belongs to session ", other->id()));
}

TEST_F(RestartPlans, DamagedNewerPlan_LeavesTheOlderOne) {
  MakePlan({0, 2, 3, 1});
  const std::string older = *base::ReadMemfd(kept_.Of(PlanName(1)), kMiB);
  MakePlan({0, 1, 2, 3});
  env_.Stop();
  ChangeKept(PlanName(2), [](std::string* file) { file->back() ^= 1; });
  kept_.Put(PlanName(1), *base::CreateWrittenMemfd("plan", older));
  ASSERT_TRUE(env_.Start(options_).ok());
  EXPECT_THAT(kept_.NamesWith("-plan"), ElementsAre(PlanName(1)));
  EXPECT_EQ(EvictOne(), "b");
  MakePlan({0, 1, 2, 3});
  EXPECT_THAT(kept_.NamesWith("-plan"), ElementsAre(PlanName(3))) << "no name is given twice";
}

// A client that ends leaves a plan. Its replacement measures again.
TEST_F(RestartTest, PlanOfAPredecessor_IsNotItsSuccessors) {
  ConnectOptions options;
  options.socket = env_.socket();
  options.job = "job";
  options.run = "run-1";
  options.keep_on_death = true;
  options.device_memory_bytes = kMiB;
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  Trace trace;
  trace.arena_bytes = kMiB;
  trace.chunks = {
      {.chunk = Allocate(session->get()).id, .device_bytes = 65536, .transfer_bytes = 65536}};
  trace.moments = {{.uses = {{.index = 0}}, .compute_seconds = 1e-3}};
  trace.link = {.host_to_device_bytes_per_second = 1e9, .device_to_host_bytes_per_second = 1e9};
  ASSERT_TRUE((*session)->MakePlan(trace, {}).ok());
  EXPECT_EQ(kept_.NamesWith("-plan").size(), 1u);
  (*session)->LeaveToSuccessor();
  session->reset();
  ASSERT_NO_FATAL_FAILURE(Restart());
  session = Session::Connect(options);
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_TRUE((*session)->is_successor());
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (!kept_.NamesWith("-plan").empty() && absl::Now() < give_up) std::this_thread::yield();
  EXPECT_THAT(kept_.NamesWith("-plan"), IsEmpty());
  ASSERT_NO_FATAL_FAILURE(Restart());
  EXPECT_EQ(env_.daemon().hub().Inspect([](const core::Engine& engine, const auto&) {
    return engine.Sessions().front().has_plan;
  }),
            false);
  EXPECT_EQ(Check(), absl::OkStatus());
}

}  // namespace
}  // namespace geminid::service
