// The cost of a long queue, and of a job that does not yield, for other jobs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "daemon/core/jobs/job_queue.h"

namespace geminid::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Account kDevice = DeviceAccount(DeviceIndex{0});
constexpr uint64_t kArena = 1000;

Time At(int64_t milliseconds) { return Time() + Duration::Milliseconds(milliseconds); }

// A device of 100 arenas.
class JobQueueLoad : public ::testing::Test {
 protected:
  absl::Status Join(uint64_t session, const std::string& tenant, int32_t priority, uint64_t bytes,
                    int64_t at = 0) {
    tenants_[session] = tenant;
    return queue_.Join(SessionId{session}, {tenant, absl::StrCat("job", session), ""},
                       {.priority = priority, .device_bytes = bytes, .preemptible = true}, At(at));
  }
  void Charge(uint64_t session, uint64_t bytes, Account account = kDevice) {
    ASSERT_TRUE(ledger_.HandOut(account, bytes).ok());
    ASSERT_TRUE(quota_.TryCharge(tenants_[session], account, bytes));
    queue_.Charged(SessionId{session}, account, bytes);
  }
  void Return(uint64_t session, uint64_t bytes, Account account = kDevice) {
    ASSERT_TRUE(ledger_.TakeBack(account, bytes).ok());
    ASSERT_TRUE(quota_.Return(tenants_[session], account, bytes).ok());
    queue_.Returned(SessionId{session}, account, bytes);
  }
  // A job that runs and has its arena.
  void Run(uint64_t session, const std::string& tenant, int32_t priority, uint64_t bytes,
           int64_t at = 0) {
    ASSERT_TRUE(Join(session, tenant, priority, bytes, at).ok());
    (void)Decide(at);
    ASSERT_EQ(State(session), JobState::kRunning);
    Charge(session, bytes);
    (void)Decide(at);
  }
  // Decides like the engine: whenever a deadline is due.
  JobActions Decide(int64_t at) {
    const std::optional<Time> due = queue_.NextDeadline();
    return due.has_value() && *due <= At(at) ? queue_.Decide(At(at)) : JobActions();
  }
  JobState State(uint64_t session) {
    const absl::StatusOr<JobStatus> standing = queue_.StandingOf(SessionId{session});
    EXPECT_TRUE(standing.ok()) << standing.status();
    return standing.ok() ? standing->state : JobState::kGathering;
  }
  std::string Reason(uint64_t session) { return queue_.StandingOf(SessionId{session})->reason; }
  // 100 preemptible jobs hold all of the device. 150 more wait for memory that no job frees.
  void FillTheQueue() {
    int64_t at = 0;
    for (uint64_t i = 0; i < 100; ++i) Run(1 + i, "stranger", -50, kArena, at += 1000);
    for (uint64_t i = 0; i < 150; ++i) {
      ASSERT_TRUE(Join(1000 + i, "stranger", -60, kArena, at).ok());
    }
    now_ = at + 1000;
    (void)Decide(now_);
    EXPECT_EQ(State(1000), JobState::kQueued);
  }

  Ledger ledger_{{100 * kArena}, uint64_t{1} << 40};
  Quota quota_{{}};
  JobQueue queue_{
      &ledger_, &quota_, {.gather_time = Duration::Seconds(60), .waiting_per_tenant = 1000}};
  std::map<uint64_t, std::string> tenants_;
  int64_t now_ = 0;  // milliseconds
};

TEST_F(JobQueueLoad, ManySmallCharges_AreNotDecidedOnOneByOne) {
  FillTheQueue();
  now_ += 2000;
  (void)Decide(now_);
  const uint64_t before = queue_.looks();
  // 1,000 charges each of a session without a job, and of one that takes more than its promise.
  for (int i = 0; i < 1000; ++i) {
    Charge(9999, 64, kHostAccount);
    (void)Decide(now_ + i);
    Charge(1, 64, kHostAccount);
    (void)Decide(now_ + i);
  }
  const uint64_t jobs = queue_.Jobs().size();
  EXPECT_LE(queue_.looks() - before, 2 * 12 * jobs) << "two decisions in a second";
}

TEST_F(JobQueueLoad, ChargesOfWhatWasPromised_AreNothingToDecideOn) {
  ASSERT_TRUE(Join(1, "a", 0, 1000).ok());
  (void)queue_.Decide(At(0));
  (void)queue_.Decide(At(1));
  Charge(1, 100);
  (void)Decide(1);
  const uint64_t before = queue_.looks();
  for (int i = 0; i < 9; ++i) {
    Charge(1, 100);
    EXPECT_FALSE(queue_.NextDeadline().has_value());
  }
  EXPECT_EQ(queue_.looks(), before);
}

TEST_F(JobQueueLoad, ManySmallReturns_LeaveMostOfTheTimeToOthers) {
  FillTheQueue();
  Charge(9999, 64'000, kHostAccount);
  uint64_t decisions = 0;
  for (int i = 0; i < 1000; ++i) {
    const uint64_t before = queue_.looks();
    Return(9999, 64, kHostAccount);
    (void)Decide(now_ + i);  // each a millisecond later
    decisions += queue_.looks() > before ? 1 : 0;
  }
  EXPECT_GE(decisions, 2u) << "somebody might fit";
  EXPECT_LE(decisions, 40u);
}

TEST_F(JobQueueLoad, OneDecision_LooksAtEachJobAFewTimes) {
  FillTheQueue();
  now_ += 1000;
  (void)Decide(now_);
  const uint64_t before = queue_.looks();
  Return(1, kArena);
  queue_.Leave(SessionId{1}, At(now_));  // all waiting jobs may fit
  now_ += 1000;
  EXPECT_EQ(Decide(now_).admitted.size(), 1u);
  EXPECT_LE(queue_.looks() - before, 12 * queue_.Jobs().size());
  // A job that needs half of the device makes 50 jobs yield, in one decision.
  ASSERT_TRUE(Join(5000, "urgent", 0, 50 * kArena, now_).ok());
  const uint64_t before_urgent = queue_.looks();
  now_ += 1000;
  const JobActions actions = Decide(now_);
  EXPECT_EQ(actions.asked_to_yield.size(), 50u);
  EXPECT_LE(queue_.looks() - before_urgent, 12 * queue_.Jobs().size());
}

TEST_F(JobQueueLoad, JobsThatWait_AreAsManyAsATenantMayHave) {
  queue_.SetOptions({.waiting_per_tenant = 3});
  Run(1, "stranger", 0, 100 * kArena);
  for (uint64_t i = 2; i < 5; ++i) ASSERT_TRUE(Join(i, "stranger", 0, kArena).ok());
  const absl::Status refused = Join(5, "stranger", 0, kArena);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("3 jobs of stranger"), HasSubstr("job5"),
                                       HasSubstr("waiting_jobs_per_tenant")));
  EXPECT_TRUE(Join(6, "other", 0, kArena).ok()) << "it is no business of other tenants";
  queue_.Leave(SessionId{2}, At(1));
  EXPECT_TRUE(Join(7, "stranger", 0, kArena).ok());
  Return(1, 100 * kArena);
  queue_.Leave(SessionId{1}, At(2));
  (void)queue_.Decide(At(2));
  EXPECT_TRUE(Join(8, "stranger", 0, kArena).ok()) << "those before it have begun";
}

// --- jobs that do not yield ----------------------------------------------------------------------

TEST_F(JobQueueLoad, JobThatDoesNotYield_HasTheNextOneAskedWhenPatienceEnds) {
  Run(1, "stranger", -2, 50 * kArena);
  Run(2, "fair", -1, 50 * kArena);
  ASSERT_TRUE(Join(3, "urgent", 0, 40 * kArena, 1000).ok());
  EXPECT_THAT(Decide(1000).asked_to_yield, ElementsAre(SessionId{1}));
  (void)Decide(1001);
  EXPECT_EQ(queue_.NextDeadline(), At(61'000));
  EXPECT_THAT(Decide(60'999).asked_to_yield, IsEmpty());
  EXPECT_THAT(Decide(61'000).asked_to_yield, ElementsAre(SessionId{2}));
  EXPECT_THAT(Reason(1),
              AllOf(HasSubstr("has not given it back in 60 s"), HasSubstr("geminictl end job1")));
  queue_.Yielded(SessionId{2}, At(62'000));
  Return(2, 50 * kArena);
  EXPECT_THAT(Decide(62'000).admitted, ElementsAre(SessionId{3}));
}

TEST_F(JobQueueLoad, ManyThatDoNotYield_CostOnePatienceTogether) {
  for (uint64_t i = 1; i <= 9; ++i) Run(i, "stranger", -2, 10 * kArena);
  Run(10, "fair", -1, 10 * kArena);
  ASSERT_TRUE(Join(11, "urgent", 0, 10 * kArena, 1000).ok());
  EXPECT_EQ(Decide(1000).asked_to_yield.size(), 1u);
  (void)Decide(1001);
  const std::vector<SessionId> asked = Decide(61'000).asked_to_yield;
  EXPECT_EQ(asked.size(), 9u) << "the others of the stranger, and one that is counted upon";
  EXPECT_THAT(asked, ::testing::Contains(SessionId{10}));
}

TEST_F(JobQueueLoad, JobThatYieldsLate_WaitsAndComesBack) {
  Run(1, "slow", -1, 60 * kArena);
  ASSERT_TRUE(Join(2, "urgent", 0, 60 * kArena, 1000).ok());
  EXPECT_THAT(Decide(1000).asked_to_yield, ElementsAre(SessionId{1}));
  (void)Decide(1001);
  (void)Decide(61'000);
  EXPECT_THAT(Reason(2), Not(HasSubstr("were asked to make room")));
  queue_.Yielded(SessionId{1}, At(90'000));
  Return(1, 60 * kArena);
  EXPECT_THAT(Decide(90'000).admitted, ElementsAre(SessionId{2}));
  EXPECT_EQ(State(1), JobState::kPreempted);
  queue_.Leave(SessionId{2}, At(91'000));
  EXPECT_THAT(Decide(91'000).admitted, ElementsAre(SessionId{1}));
}

TEST_F(JobQueueLoad, RestoredJobThatDoesNotYield_HasNoMorePatience) {
  const RankRequest ask = {.priority = -2, .device_bytes = 50 * kArena, .preemptible = true};
  tenants_[1] = "stranger";
  queue_.Restore({"stranger", "job1", ""}, ask,
                 {.session = SessionId{1}, .state = JobState::kYielding, .since = At(1000)});
  Charge(1, 50 * kArena);
  (void)Decide(1500);
  Run(2, "fair", -1, 50 * kArena, 2000);
  ASSERT_TRUE(Join(3, "urgent", 0, 40 * kArena, 2000).ok());
  EXPECT_THAT(Decide(2000).asked_to_yield, IsEmpty());
  (void)Decide(2001);
  EXPECT_THAT(Decide(61'000).asked_to_yield, ElementsAre(SessionId{2}));
}

}  // namespace
}  // namespace geminid::core
