#include "daemon/core/jobs/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace geminid::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr DeviceIndex kDevice{0};
const std::string kTenant = "uid:1";

Time At(int64_t seconds) { return Time() + Duration::Seconds(seconds); }

// A queue over a device of 100 bytes and a host of 1000. The test numbers the sessions.
class JobQueueTest : public ::testing::Test {
 protected:
  RankRequest Ask(uint64_t device_bytes, int32_t priority = 0) const {
    return {.priority = priority, .device_bytes = device_bytes, .preemptible = true};
  }

  absl::Status Join(uint64_t session, const std::string& job, RankRequest ask,
                    int64_t seconds = 0) {
    return queue_.Join(SessionId{session}, {tenant_, job, ""}, ask, At(seconds));
  }

  // Restores a job as an engine does that takes over.
  void Restore(uint64_t session, const std::string& job, const RankRequest& ask, JobState state,
               bool yielded = false, int64_t seconds = 0) {
    queue_.Restore(
        {tenant_, job, ""}, ask,
        {.session = SessionId{session}, .state = state, .yielded = yielded, .since = At(seconds)});
  }

  // Charges bytes as the engine does when the session makes its arena.
  void Charge(uint64_t session, uint64_t bytes) {
    ASSERT_TRUE(ledger_.HandOut(DeviceAccount(kDevice), bytes).ok());
    ASSERT_TRUE(quota_.TryCharge(tenant_, DeviceAccount(kDevice), bytes));
    queue_.Charged(SessionId{session}, DeviceAccount(kDevice), bytes);
  }
  void Return(uint64_t session, uint64_t bytes) {
    ASSERT_TRUE(ledger_.TakeBack(DeviceAccount(kDevice), bytes).ok());
    ASSERT_TRUE(quota_.Return(tenant_, DeviceAccount(kDevice), bytes).ok());
    queue_.Returned(SessionId{session}, DeviceAccount(kDevice), bytes);
  }
  void Yield(uint64_t session, uint64_t bytes, int64_t seconds) {
    queue_.Yielded(SessionId{session}, At(seconds));
    Return(session, bytes);
  }

  JobState State(uint64_t session) {
    const absl::StatusOr<JobStatus> standing = queue_.StandingOf(SessionId{session});
    EXPECT_TRUE(standing.ok()) << standing.status();
    return standing.ok() ? standing->state : JobState::kGathering;
  }
  std::string Reason(uint64_t session) { return queue_.StandingOf(SessionId{session})->reason; }

  std::string tenant_ = kTenant;
  Ledger ledger_{{100}, 1000};
  Quota quota_{{}};
  JobQueue queue_{&ledger_, &quota_, {.gather_time = Duration::Seconds(60)}};
};

TEST_F(JobQueueTest, JobOfTwoRanks_IsAdmittedWhenBothAreThere) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  EXPECT_THAT(queue_.Decide(At(0)).admitted, IsEmpty());
  EXPECT_EQ(State(1), JobState::kGathering);
  EXPECT_THAT(Reason(1), HasSubstr("1 of its 2 ranks on this node attached (0)"));
  ask.rank = 1;
  ASSERT_TRUE(Join(2, "a", ask, 1).ok());
  EXPECT_THAT(queue_.Decide(At(1)).admitted, ElementsAre(SessionId{1}, SessionId{2}));
  EXPECT_EQ(queue_.AvailableBytes(SessionId{3}, kTenant, DeviceAccount(kDevice)), 0u);
  EXPECT_EQ(queue_.AvailableBytes(SessionId{1}, kTenant, DeviceAccount(kDevice)), 50u);
}

// A job holds no arena while its arenas are being made.
TEST_F(JobQueueTest, JobAdmittedWithoutAllItsArenas_IsListedWithWhatIsStillLacking) {
  RankRequest ask = Ask(40);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  ask.rank = 1;
  ask.device_bytes = 50;
  ASSERT_TRUE(Join(2, "a", ask).ok());
  (void)queue_.Decide(At(0));
  EXPECT_EQ(queue_.Jobs()[0].standing.state, JobState::kRunning);
  EXPECT_EQ(queue_.Jobs()[0].standing.reason, "starting: does not have its 90 B of device 0 yet");
  Charge(1, 40);
  EXPECT_EQ(queue_.Jobs()[0].standing.reason, "starting: does not have its 50 B of device 0 yet");
  Charge(2, 50);
  EXPECT_EQ(queue_.Jobs()[0].standing.reason, "");
}

TEST_F(JobQueueTest, JobThatAskedForNoDeviceMemory_LacksNothing) {
  ASSERT_TRUE(Join(1, "a", Ask(0)).ok());
  (void)queue_.Decide(At(0));
  EXPECT_EQ(queue_.Jobs()[0].standing.state, JobState::kRunning);
  EXPECT_EQ(queue_.Jobs()[0].standing.reason, "");
}

TEST_F(JobQueueTest, RanksThatDoNotAllCome_AreUndoneAndTold) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  EXPECT_EQ(queue_.NextDeadline(), Time());
  (void)queue_.Decide(At(0));
  EXPECT_EQ(queue_.NextDeadline(), At(60));
  (void)queue_.Decide(At(59));
  EXPECT_EQ(State(1), JobState::kGathering);
  (void)queue_.Decide(At(60));
  const absl::Status undone = queue_.StandingOf(SessionId{1}).status();
  EXPECT_EQ(undone.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(undone.message(), AllOf(HasSubstr("1 of its 2 ranks"), HasSubstr("within 60 s")));
  EXPECT_THAT(queue_.Jobs(), IsEmpty());
}

TEST_F(JobQueueTest, MoreThanThereIs_IsRefusedAtOnceWithNumbers) {
  ASSERT_TRUE(Join(1, "a", Ask(101)).ok());
  (void)queue_.Decide(At(0));
  const absl::Status refused = queue_.StandingOf(SessionId{1}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("can never be admitted"), HasSubstr("101 B"),
                                       HasSubstr("at most 100 B")));
}

TEST_F(JobQueueTest, TwoRanksTogetherMoreThanThereIs_AreRefusedTogether) {
  RankRequest ask = Ask(60);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  ask.rank = 1;
  ASSERT_TRUE(Join(2, "a", ask).ok());
  EXPECT_THAT(queue_.Decide(At(0)).admitted, IsEmpty());
  EXPECT_FALSE(queue_.StandingOf(SessionId{1}).ok());
  EXPECT_FALSE(queue_.StandingOf(SessionId{2}).ok());
}

TEST_F(JobQueueTest, JobThatDoesNotFitNow_WaitsWithPositionAndReason) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  ASSERT_TRUE(Join(2, "b", Ask(30)).ok());
  ASSERT_TRUE(Join(3, "c", Ask(30)).ok());
  EXPECT_THAT(queue_.Decide(At(0)).admitted, ElementsAre(SessionId{1}));
  EXPECT_EQ(queue_.StandingOf(SessionId{2})->position, 1u);
  EXPECT_EQ(queue_.StandingOf(SessionId{3})->position, 2u);
  EXPECT_THAT(Reason(2), AllOf(HasSubstr("needs 30 B of device 0"), HasSubstr("can have 20 B")));
  queue_.Leave(SessionId{1}, At(1));
  EXPECT_THAT(queue_.Decide(At(1)).admitted, ElementsAre(SessionId{2}, SessionId{3}));
}

TEST_F(JobQueueTest, JobThatMustNotWait_IsRefused) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  RankRequest ask = Ask(30);
  ask.may_wait = false;
  ASSERT_TRUE(Join(2, "b", ask).ok());
  (void)queue_.Decide(At(0));
  EXPECT_EQ(queue_.StandingOf(SessionId{2}).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(JobQueueTest, SmallerJobBehind_DoesNotPassWhatTheFirstWaitsFor) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  ASSERT_TRUE(Join(2, "b", Ask(90)).ok());
  ASSERT_TRUE(Join(3, "c", Ask(10)).ok());
  (void)queue_.Decide(At(0));
  EXPECT_EQ(State(3), JobState::kQueued);  // 20 bytes are free, and all of them are for b
  queue_.Leave(SessionId{1}, At(1));
  EXPECT_THAT(queue_.Decide(At(1)).admitted, ElementsAre(SessionId{2}, SessionId{3}));
}

TEST_F(JobQueueTest, JobAtItsTenantsLimit_KeepsNothingFromOthers) {
  quota_.SetLimits({{.tenant = "uid:1", .device_bytes = 50}});
  ASSERT_TRUE(Join(1, "a", Ask(50)).ok());
  ASSERT_TRUE(Join(2, "b", Ask(50)).ok());
  tenant_ = "uid:2";
  ASSERT_TRUE(Join(3, "c", Ask(50)).ok());
  EXPECT_THAT(queue_.Decide(At(0)).admitted, ElementsAre(SessionId{1}, SessionId{3}));
  EXPECT_THAT(Reason(2), HasSubstr("uid:1 may have 50 B"));
}

TEST_F(JobQueueTest, Guarantee_IsKeptFromOthersUntilItsTenantComes) {
  quota_.SetLimits({{.tenant = "uid:2", .guaranteed_device_bytes = 40}});
  ASSERT_TRUE(Join(1, "a", Ask(70)).ok());
  (void)queue_.Decide(At(0));
  EXPECT_THAT(queue_.StandingOf(SessionId{1}).status().message(), HasSubstr("at most 60 B"));
  ASSERT_TRUE(Join(2, "b", Ask(60)).ok());
  EXPECT_THAT(queue_.Decide(At(0)).admitted, ElementsAre(SessionId{2}));
  tenant_ = "uid:2";
  ASSERT_TRUE(Join(3, "c", Ask(40)).ok());
  EXPECT_THAT(queue_.Decide(At(1)).admitted, ElementsAre(SessionId{3}));
}

TEST_F(JobQueueTest, HigherPriority_ComesFirst_UntilWaitingOutweighsIt) {
  queue_.SetOptions({.ageing = Duration::Seconds(100)});
  ASSERT_TRUE(Join(1, "a", {.device_bytes = 100}).ok());
  (void)queue_.Decide(At(0));
  ASSERT_TRUE(Join(2, "old", {.device_bytes = 60}, 0).ok());
  ASSERT_TRUE(Join(3, "high", {.priority = 1, .device_bytes = 60}, 99).ok());
  ASSERT_TRUE(Join(4, "late", {.priority = 1, .device_bytes = 60}, 101).ok());
  (void)queue_.Decide(At(101));
  EXPECT_EQ(queue_.StandingOf(SessionId{3})->position, 1u);
  EXPECT_EQ(queue_.StandingOf(SessionId{2})->position, 2u);
  EXPECT_EQ(queue_.StandingOf(SessionId{4})->position, 3u);
}

TEST_F(JobQueueTest, HigherPriority_HasTheLowerOneYield_WhichComesBack) {
  ASSERT_TRUE(Join(1, "low", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 80);
  ASSERT_TRUE(Join(2, "high", Ask(80, 1), 1).ok());
  EXPECT_THAT(queue_.Decide(At(1)).asked_to_yield, ElementsAre(SessionId{1}));
  EXPECT_EQ(State(1), JobState::kYielding);
  EXPECT_THAT(Reason(1), HasSubstr("makes room for a job of priority 1"));
  EXPECT_THAT(Reason(2), HasSubstr("were asked to make room"));
  EXPECT_THAT(queue_.Decide(At(2)).asked_to_yield, IsEmpty());  // one request is enough
  Yield(1, 80, 3);
  EXPECT_THAT(queue_.Decide(At(3)).admitted, ElementsAre(SessionId{2}));
  EXPECT_EQ(State(1), JobState::kPreempted);
  queue_.Leave(SessionId{2}, At(4));
  EXPECT_THAT(queue_.Decide(At(4)).admitted, ElementsAre(SessionId{1}));
}

// The job's process hangs between its admission and its arena.
TEST_F(JobQueueTest, JobThatNeverMakesItsArena_LosesItsPromiseToAHigherPriority) {
  ASSERT_TRUE(Join(1, "low", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  ASSERT_TRUE(Join(2, "high", Ask(80, 1), 1).ok());
  EXPECT_THAT(queue_.Decide(At(1)).admitted, IsEmpty());
  EXPECT_EQ(State(1), JobState::kRunning);  // its arena may be on its way
  EXPECT_EQ(queue_.NextDeadline(), At(60));
  // The job has no arena to give back.
  EXPECT_THAT(queue_.Decide(At(60)).asked_to_yield, IsEmpty());
  EXPECT_EQ(State(1), JobState::kPreempted);
  EXPECT_THAT(queue_.Decide(At(60)).admitted, ElementsAre(SessionId{2}));
  queue_.Leave(SessionId{2}, At(61));
  EXPECT_THAT(queue_.Decide(At(61)).admitted, ElementsAre(SessionId{1}));
}

// The first urgent job takes the promise away, which leaves enough for the second.
TEST_F(JobQueueTest, TwoUrgentJobs_ShareThePromiseOfOneThatNeverMakesItsArena) {
  ASSERT_TRUE(Join(1, "runs", Ask(50, -1)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 50);
  ASSERT_TRUE(Join(2, "hangs", Ask(50, -2)).ok());
  (void)queue_.Decide(At(0));
  ASSERT_EQ(State(2), JobState::kRunning);
  ASSERT_TRUE(Join(3, "first", Ask(20, 1), 1).ok());
  ASSERT_TRUE(Join(4, "second", Ask(20, 1), 1).ok());
  EXPECT_THAT(queue_.Decide(At(60)).asked_to_yield, IsEmpty());
  EXPECT_EQ(State(1), JobState::kRunning);
  EXPECT_EQ(State(2), JobState::kPreempted);
  (void)queue_.Decide(At(60));
  EXPECT_EQ(State(3), JobState::kRunning);
  EXPECT_EQ(State(4), JobState::kRunning);
  EXPECT_EQ(State(1), JobState::kRunning);
}

// Rank 0 waits for rank 1, and would not answer a request.
TEST_F(JobQueueTest, JobWithSomeOfItsArenas_IsAskedForAllWhenItHasThem) {
  RankRequest ask = Ask(40);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "low", ask).ok());
  ask.rank = 1;
  ASSERT_TRUE(Join(2, "low", ask).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 40);
  ASSERT_TRUE(Join(3, "high", Ask(80, 1), 1).ok());
  EXPECT_THAT(queue_.Decide(At(600)).asked_to_yield, IsEmpty());
  Charge(2, 40);
  EXPECT_THAT(queue_.Decide(At(601)).asked_to_yield, ElementsAre(SessionId{1}, SessionId{2}));
  Yield(1, 40, 602);
  Yield(2, 40, 602);
  EXPECT_EQ(State(2), JobState::kPreempted);
  EXPECT_THAT(queue_.Decide(At(602)).admitted, ElementsAre(SessionId{3}));
}

TEST_F(JobQueueTest, TwoHigherPriorities_TakeOneJobsPromiseAndNobodyElses) {
  ASSERT_TRUE(Join(1, "lowest", Ask(60, -1)).ok());
  ASSERT_TRUE(Join(2, "low", Ask(40)).ok());
  (void)queue_.Decide(At(0));
  Charge(2, 40);
  ASSERT_TRUE(Join(3, "high", Ask(30, 1), 1).ok());
  ASSERT_TRUE(Join(4, "higher", Ask(30, 2), 1).ok());
  for (int decision = 0; decision < 2; ++decision) {
    EXPECT_THAT(queue_.Decide(At(60)).asked_to_yield, IsEmpty());
  }
  EXPECT_EQ(State(1), JobState::kPreempted);
  for (uint64_t session : {2, 3, 4}) EXPECT_EQ(State(session), JobState::kRunning) << session;
}

TEST_F(JobQueueTest, HeldJobThatNeverMakesItsArena_WaitsOnceItsTimeIsOver) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  ASSERT_TRUE(queue_.Hold(queue_.Jobs()[0].id).ok());
  (void)queue_.Decide(At(59));
  EXPECT_EQ(State(1), JobState::kRunning);
  EXPECT_EQ(queue_.NextDeadline(), At(60));
  (void)queue_.Decide(At(60));
  EXPECT_EQ(State(1), JobState::kPreempted);
}

TEST_F(JobQueueTest, Preempted_DoesNotComeBackBeforeWhoMadeItYield) {
  queue_.SetOptions({.ageing = Duration::Seconds(10)});
  ASSERT_TRUE(Join(1, "low", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 80);
  ASSERT_TRUE(Join(2, "old", Ask(90), 1).ok());  // has low's priority, and came long before high
  (void)queue_.Decide(At(1));
  ASSERT_TRUE(Join(3, "high", Ask(80, 1), 100).ok());
  (void)queue_.Decide(At(100));
  EXPECT_EQ(queue_.StandingOf(SessionId{2})->position, 1u);
  if (State(1) == JobState::kYielding) Yield(1, 80, 101);
  for (int64_t second = 101; second < 110; ++second) {
    EXPECT_THAT(queue_.Decide(At(second)).asked_to_yield, IsEmpty());
  }
}

TEST_F(JobQueueTest, PreemptedJobWhoseHostMemoryTheFirstLacks_PassesIt) {
  RankRequest low = Ask(80);
  low.host_bytes = 600;
  ASSERT_TRUE(Join(1, "low", low).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 80);
  ASSERT_TRUE(Join(2, "high", Ask(80, 1), 1).ok());
  (void)queue_.Decide(At(1));
  Yield(1, 80, 2);
  (void)queue_.Decide(At(2));
  RankRequest large = Ask(80, 1);
  large.host_bytes = 500;
  ASSERT_TRUE(Join(3, "large", large, 3).ok());
  (void)queue_.Decide(At(3));
  queue_.Leave(SessionId{2}, At(4));
  EXPECT_THAT(queue_.Decide(At(4)).admitted, ElementsAre(SessionId{1}));
}

// The other rank's session ended with the earlier daemon.
TEST_F(JobQueueTest, RestoredJobWhoseRanksHaveAllYielded_IsPreempted) {
  queue_.Restore(
      {"uid:1", "job", ""}, {.ranks = 2, .preemptible = true},
      {.session = SessionId{1}, .state = JobState::kYielding, .yielded = true, .since = {}});
  (void)queue_.Decide(Time());
  EXPECT_EQ(queue_.StandingOf(SessionId{1})->state, JobState::kPreempted);
}

TEST_F(JobQueueTest, OnlyThoseThatAreNeeded_Yield) {
  ASSERT_TRUE(Join(1, "a", Ask(40, -2)).ok());
  ASSERT_TRUE(Join(2, "b", Ask(60, -1)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 40);
  Charge(2, 60);
  ASSERT_TRUE(Join(3, "c", Ask(50), 1).ok());
  // The job of the lowest priority does not free enough alone; the other job does.
  EXPECT_THAT(queue_.Decide(At(1)).asked_to_yield, ElementsAre(SessionId{2}));
}

TEST_F(JobQueueTest, NobodyYields_WhereThatWouldNotDo) {
  ASSERT_TRUE(Join(1, "a", Ask(40, -1)).ok());
  ASSERT_TRUE(Join(2, "b", Ask(60, 0)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 40);
  Charge(2, 60);
  ASSERT_TRUE(Join(3, "c", Ask(50), 1).ok());
  EXPECT_THAT(queue_.Decide(At(1)).asked_to_yield, IsEmpty());
}

TEST_F(JobQueueTest, DrainedQueue_AdmitsNobodyNew_ButWhoWasAdmitted) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 80);
  queue_.SetDrained(true);
  ASSERT_TRUE(Join(2, "b", Ask(10)).ok());
  EXPECT_THAT(queue_.Decide(At(1)).admitted, IsEmpty());
  EXPECT_THAT(Reason(2), HasSubstr("drains"));
  Yield(1, 80, 2);
  EXPECT_THAT(queue_.Decide(At(2)).admitted, ElementsAre(SessionId{1}));
  queue_.SetDrained(false);
  EXPECT_THAT(queue_.Decide(At(3)).admitted, ElementsAre(SessionId{2}));
}

TEST_F(JobQueueTest, HeldJob_YieldsAndStaysAwayUntilItIsLetGo) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 80);
  const JobId job = queue_.Jobs()[0].id;
  ASSERT_TRUE(queue_.Hold(job).ok());
  EXPECT_THAT(queue_.Decide(At(1)).asked_to_yield, ElementsAre(SessionId{1}));
  Yield(1, 80, 2);
  EXPECT_THAT(queue_.Decide(At(2)).admitted, IsEmpty());
  ASSERT_TRUE(queue_.LetGo(job).ok());
  EXPECT_THAT(queue_.Decide(At(3)).admitted, ElementsAre(SessionId{1}));
}

TEST_F(JobQueueTest, JobHeldAgainBeforeItIsBack_YieldsOnceItIs) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 80);
  const JobId job = queue_.Jobs()[0].id;
  ASSERT_TRUE(queue_.Hold(job).ok());
  (void)queue_.Decide(At(1));
  Yield(1, 80, 2);
  ASSERT_TRUE(queue_.LetGo(job).ok());
  EXPECT_THAT(queue_.Decide(At(3)).admitted, ElementsAre(SessionId{1}));
  ASSERT_TRUE(queue_.Hold(job).ok());
  EXPECT_THAT(queue_.Decide(At(4)).asked_to_yield, IsEmpty());  // the job has no arena to give back
  EXPECT_EQ(State(1), JobState::kRunning);
  EXPECT_THAT(Reason(1), HasSubstr("the operator moves it"));
  Charge(1, 80);
  EXPECT_THAT(queue_.Decide(At(5)).asked_to_yield, ElementsAre(SessionId{1}));
  Yield(1, 80, 6);
  EXPECT_THAT(queue_.Decide(At(6)).admitted, IsEmpty());
  EXPECT_EQ(State(1), JobState::kPreempted);
}

TEST_F(JobQueueTest, JobLetGoBeforeItIsBack_IsNotAsked) {
  ASSERT_TRUE(Join(1, "a", Ask(80)).ok());
  (void)queue_.Decide(At(0));
  const JobId job = queue_.Jobs()[0].id;
  ASSERT_TRUE(queue_.Hold(job).ok());
  (void)queue_.Decide(At(1));
  ASSERT_TRUE(queue_.LetGo(job).ok());
  Charge(1, 80);
  EXPECT_THAT(queue_.Decide(At(2)).asked_to_yield, IsEmpty());
  EXPECT_EQ(Reason(1), "");
}

TEST_F(JobQueueTest, JobThatCannotYield_IsNotHeld) {
  RankRequest ask = Ask(80);
  ask.preemptible = false;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  (void)queue_.Decide(At(0));
  const absl::Status refused = queue_.Hold(queue_.Jobs()[0].id);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(State(1), JobState::kRunning);
}

TEST_F(JobQueueTest, RanksThatDisagree_AreRefused) {
  RankRequest ask = Ask(10);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  ask.rank = 1;
  ask.priority = -1;
  EXPECT_EQ(Join(2, "a", ask).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobQueueTest, RankThatDiedWhileQueued_SendsItsJobBackToGathering) {
  ASSERT_TRUE(Join(9, "other", Ask(100)).ok());
  (void)queue_.Decide(At(0));
  RankRequest ask = Ask(10);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  ask.rank = 1;
  ASSERT_TRUE(Join(2, "a", ask).ok());
  (void)queue_.Decide(At(0));
  EXPECT_EQ(State(1), JobState::kQueued);
  queue_.Leave(SessionId{2}, At(1));
  queue_.Leave(SessionId{9}, At(1));
  EXPECT_THAT(queue_.Decide(At(1)).admitted, IsEmpty());
  EXPECT_EQ(State(1), JobState::kGathering);
  ASSERT_TRUE(Join(3, "a", ask, 2).ok());
  EXPECT_THAT(queue_.Decide(At(2)).admitted, UnorderedElementsAre(SessionId{1}, SessionId{3}));
}

TEST_F(JobQueueTest, TwoRunsOfOneName_AreTwoJobs) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  for (uint64_t session : {1, 2}) {
    ASSERT_TRUE(
        queue_.Join(SessionId{session}, {kTenant, "a", absl::StrCat("run", session)}, ask, At(0))
            .ok());
  }
  ask.rank = 1;
  ASSERT_TRUE(queue_.Join(SessionId{3}, {kTenant, "a", "run2"}, ask, At(0)).ok());
  EXPECT_THAT(queue_.Decide(At(0)).admitted, UnorderedElementsAre(SessionId{2}, SessionId{3}));
}

TEST_F(JobQueueTest, RankThatComesAgain_JoinsItsRunningJobWhereItFits) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  ask.rank = 1;
  ASSERT_TRUE(Join(2, "a", ask).ok());
  (void)queue_.Decide(At(0));
  queue_.Leave(SessionId{2}, At(1));
  ASSERT_TRUE(Join(3, "a", ask, 2).ok());
  EXPECT_EQ(State(3), JobState::kRunning);
}

// --- after the daemon's death ---

TEST_F(JobQueueTest, RestoredJob_RunsWithWhatWasPromisedToIt) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  Restore(1, "a", ask, JobState::kRunning);
  ask.rank = 1;
  Restore(2, "a", ask, JobState::kRunning);
  EXPECT_THAT(queue_.Decide(At(1)).admitted, IsEmpty());
  EXPECT_EQ(State(1), JobState::kRunning);
  EXPECT_EQ(State(2), JobState::kRunning);
  EXPECT_EQ(queue_.AvailableBytes(SessionId{3}, kTenant, DeviceAccount(kDevice)), 0u);
  EXPECT_EQ(queue_.AvailableBytes(SessionId{2}, kTenant, DeviceAccount(kDevice)), 50u);
}

TEST_F(JobQueueTest, RestoredJobWhoseRanksWereNotedAtDifferentTimes_StandsAsTheFurthestOne) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  Restore(1, "a", ask, JobState::kQueued);
  ask.rank = 1;
  Restore(2, "a", ask, JobState::kRunning);
  EXPECT_EQ(State(1), JobState::kRunning);
}

TEST_F(JobQueueTest, RestoredJobOfWhichAllHadCome_IsQueuedAndAdmitted) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  Restore(1, "a", ask, JobState::kGathering);
  ask.rank = 1;
  Restore(2, "a", ask, JobState::kGathering);
  EXPECT_THAT(queue_.Decide(At(1)).admitted, ElementsAre(SessionId{1}, SessionId{2}));
}

TEST_F(JobQueueTest, RestoredJobThatStillGathers_IsUndoneInTime) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  Restore(1, "a", ask, JobState::kGathering, /*yielded=*/false, 10);
  (void)queue_.Decide(At(69));
  EXPECT_EQ(State(1), JobState::kGathering);
  (void)queue_.Decide(At(70));
  EXPECT_EQ(queue_.StandingOf(SessionId{1}).status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(JobQueueTest, RestoredJobThatYields_IsAskedAgainWhereItHasNotGivenBack) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  Restore(1, "a", ask, JobState::kYielding, /*yielded=*/true);
  ask.rank = 1;
  Restore(2, "a", ask, JobState::kYielding);
  Charge(2, 50);
  EXPECT_THAT(queue_.Decide(At(1)).asked_to_yield, ElementsAre(SessionId{2}));
  Yield(2, 50, 2);
  EXPECT_THAT(queue_.Decide(At(2)).admitted, UnorderedElementsAre(SessionId{1}, SessionId{2}));
}

// The daemon died before it had stored that the second rank yields.
TEST_F(JobQueueTest, RestoredJobThatYields_IsNotAskedForAnArenaThatIsNotThere) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  Restore(1, "a", ask, JobState::kYielding);
  ask.rank = 1;
  Restore(2, "a", ask, JobState::kRunning);
  Charge(1, 50);
  EXPECT_THAT(queue_.Decide(At(1)).asked_to_yield, ElementsAre(SessionId{1}));
  Yield(1, 50, 2);
  EXPECT_THAT(queue_.Decide(At(2)).admitted, UnorderedElementsAre(SessionId{1}, SessionId{2}));
}

TEST_F(JobQueueTest, RestoredJobThatMadeWay_ComesBackWhenThereIsRoom) {
  Restore(1, "a", Ask(80), JobState::kPreempted, /*yielded=*/true);
  ASSERT_TRUE(Join(2, "b", Ask(80, 1), 1).ok());
  EXPECT_THAT(queue_.Decide(At(1)).admitted, ElementsAre(SessionId{2}));
  Charge(2, 80);
  EXPECT_EQ(State(1), JobState::kPreempted);
  queue_.Leave(SessionId{2}, At(2));
  Return(2, 80);
  EXPECT_THAT(queue_.Decide(At(3)).admitted, ElementsAre(SessionId{1}));
}

TEST_F(JobQueueTest, RestoredJobThatWasHeld_StaysAwayUntilItIsLetGo) {
  queue_.Restore({tenant_, "a", ""}, Ask(80),
                 {.session = SessionId{1},
                  .state = JobState::kPreempted,
                  .yielded = true,
                  .held = true,
                  .since = At(0)});
  EXPECT_THAT(queue_.Decide(At(1)).admitted, IsEmpty());
  ASSERT_TRUE(queue_.LetGo(queue_.Jobs()[0].id).ok());
  EXPECT_THAT(queue_.Decide(At(2)).admitted, ElementsAre(SessionId{1}));
}

TEST_F(JobQueueTest, RestoredJobs_AreToldApartByTheirRuns) {
  RankRequest ask = Ask(40);
  ask.ranks = 2;
  for (uint64_t session : {1, 2}) {
    queue_.Restore({kTenant, "a", absl::StrCat("run", session)}, ask,
                   {.session = SessionId{session}, .since = At(0)});
  }
  EXPECT_EQ(queue_.Jobs().size(), 2u);
  EXPECT_THAT(queue_.Decide(At(1)).admitted, IsEmpty());
}

// A rank of the first job died before the daemon did.
TEST_F(JobQueueTest, RestoredJobsOfOneNameWithoutARun_AreToldApartByTheirNumbers) {
  const auto restore = [&](uint64_t session, int32_t rank, JobId job) {
    RankRequest ask = Ask(20);
    ask.ranks = 2;
    ask.rank = rank;
    queue_.Restore(
        {tenant_, "a", ""}, ask,
        {.session = SessionId{session}, .job = job, .state = JobState::kRunning, .since = {}});
  };
  restore(1, 0, JobId{7});
  restore(3, 0, JobId{9});
  restore(4, 1, JobId{9});
  const std::vector<JobSnapshot> jobs = queue_.Jobs();
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_THAT(jobs[0].sessions, ElementsAre(SessionId{1}));
  EXPECT_THAT(jobs[1].sessions, ElementsAre(SessionId{3}, SessionId{4}));
  EXPECT_EQ(queue_.JobOf(SessionId{4}), JobId{9});
  ASSERT_TRUE(Join(5, "b", Ask(10)).ok());
  EXPECT_EQ(queue_.JobOf(SessionId{5}), JobId{10});
}

TEST_F(JobQueueTest, RestoredRankWhoseNumberIsAnotherJobs_GetsAJobOfItsOwn) {
  const JobQueue::RankState running{
      .session = SessionId{1}, .job = JobId{7}, .state = JobState::kRunning, .since = {}};
  queue_.Restore({tenant_, "a", ""}, Ask(20), running);
  JobQueue::RankState damaged = running;
  damaged.session = SessionId{2};
  queue_.Restore({tenant_, "b", ""}, Ask(20), damaged);
  EXPECT_NE(queue_.JobOf(SessionId{2}), JobId{7});
  EXPECT_EQ(State(2), JobState::kRunning);
  damaged.session = SessionId{3};
  damaged.job = JobId{~uint64_t{0}};
  queue_.Restore({tenant_, "c", ""}, Ask(20), damaged);
  ASSERT_TRUE(Join(4, "d", Ask(10)).ok());
  EXPECT_LT(Value(queue_.JobOf(SessionId{3})), 100u);
  EXPECT_LT(Value(queue_.JobOf(SessionId{4})), 100u);
  EXPECT_EQ(queue_.Jobs().size(), 4u);
}

TEST_F(JobQueueTest, RankThatComesWithWhatItsPredecessorHad_NeedsNoMore) {
  RankRequest ask = Ask(50);
  ask.ranks = 2;
  ask.may_wait = false;
  ASSERT_TRUE(Join(1, "a", ask).ok());
  ask.rank = 1;
  ASSERT_TRUE(Join(2, "a", ask).ok());
  (void)queue_.Decide(At(0));
  Charge(1, 50);
  Charge(2, 50);
  queue_.Leave(SessionId{2}, At(1));  // the rank's session is kept
  ask.rank = 1;
  EXPECT_EQ(Join(3, "a", ask, 2).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(
      queue_
          .Join(SessionId{3}, {tenant_, "a", ""}, ask, At(2), {.host_bytes = 0, .device_bytes = 50})
          .ok());
  EXPECT_EQ(State(3), JobState::kRunning);
}

// --- ranks that died with an arena, and the ranks that replace them ---

class JobQueueOfTheDead : public JobQueueTest {
 protected:
  // A job of two ranks with 40 bytes each, of which rank 0 has given its arena back.
  void YieldHalf() {
    ASSERT_TRUE(Join(1, "low", Of(0)).ok());
    ASSERT_TRUE(Join(2, "low", Of(1)).ok());
    (void)queue_.Decide(At(0));
    Charge(1, 40);
    Charge(2, 40);
    ASSERT_TRUE(queue_.Hold(queue_.Jobs()[0].id).ok());
    EXPECT_EQ(queue_.Decide(At(1)).asked_to_yield.size(), 2u);
    Yield(1, 40, 2);
  }
  // Its second rank has the arena of the dead one.
  void Replace(uint64_t first, uint64_t second) {
    ASSERT_TRUE(Join(first, "low", Of(0), 3).ok());
    ASSERT_TRUE(queue_
                    .Join(SessionId{second}, {tenant_, "low", ""}, Of(1), At(3),
                          {.host_bytes = 0, .device_bytes = 40})
                    .ok());
  }
  RankRequest Of(int32_t rank) const {
    RankRequest ask = Ask(40);
    ask.ranks = 2;
    ask.rank = rank;
    return ask;
  }
  void ExpectBothYieldAndTheOtherComes(uint64_t first, uint64_t second, uint64_t other) {
    EXPECT_THAT(queue_.Decide(At(5)).asked_to_yield, IsEmpty());  // they need each other for a step
    Charge(first, 40);
    EXPECT_THAT(queue_.Decide(At(6)).asked_to_yield,
                UnorderedElementsAre(SessionId{first}, SessionId{second}));
    Yield(first, 40, 7);
    Yield(second, 40, 7);
    EXPECT_THAT(queue_.Decide(At(7)).admitted, ElementsAre(SessionId{other}));
    EXPECT_EQ(State(second), JobState::kPreempted);
  }
};

TEST_F(JobQueueOfTheDead, HeldJobWithOneOfItsArenas_RunsBeforeTheJobThatWaitsForThatArena) {
  YieldHalf();
  ASSERT_TRUE(Join(9, "high", Ask(100, 1), 2).ok());
  EXPECT_THAT(queue_.Decide(At(2)).admitted, IsEmpty());
  for (uint64_t session : {1, 2}) queue_.Leave(SessionId{session}, At(3));
  Replace(3, 4);
  ASSERT_TRUE(queue_.Hold(queue_.JobOf(SessionId{3})).ok());
  EXPECT_THAT(queue_.Decide(At(4)).admitted, ElementsAre(SessionId{3}, SessionId{4}));
  ExpectBothYieldAndTheOtherComes(3, 4, 9);
}

// Nobody holds it: it makes way for a job of higher priority, as it was about to.
TEST_F(JobQueueOfTheDead, JobWithOneOfItsArenas_RunsBeforeTheJobThatWaitsForThatArena) {
  YieldHalf();
  ASSERT_TRUE(Join(9, "high", Ask(100, 1), 2).ok());
  for (uint64_t session : {1, 2}) queue_.Leave(SessionId{session}, At(3));
  Replace(3, 4);
  EXPECT_THAT(queue_.Decide(At(4)).admitted, ElementsAre(SessionId{3}, SessionId{4}));
  ExpectBothYieldAndTheOtherComes(3, 4, 9);
}

// The first replacement comes before the second death is known, so the job is still there.
TEST_F(JobQueueOfTheDead, RankWithAnArenaThatRejoinsAHeldJob_HasItRunUntilItHasYielded) {
  YieldHalf();
  ASSERT_TRUE(Join(9, "high", Ask(100, 1), 2).ok());
  queue_.Leave(SessionId{1}, At(3));
  ASSERT_TRUE(Join(3, "low", Of(0), 3).ok());
  queue_.Leave(SessionId{2}, At(3));
  EXPECT_EQ(State(3), JobState::kPreempted);
  ASSERT_TRUE(queue_
                  .Join(SessionId{4}, {tenant_, "low", ""}, Of(1), At(3),
                        {.host_bytes = 0, .device_bytes = 40})
                  .ok());
  EXPECT_THAT(queue_.Decide(At(4)).admitted, ElementsAre(SessionId{3}, SessionId{4}));
  ExpectBothYieldAndTheOtherComes(3, 4, 9);
}

}  // namespace
}  // namespace geminid::core
