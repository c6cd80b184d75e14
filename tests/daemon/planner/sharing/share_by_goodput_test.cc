#include "daemon/planner/sharing/share_by_goodput.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace geminid::planner {
namespace {

using testing::HasSubstr;

constexpr Share kTen = {10, 10, 10};
constexpr SharingSettings kSettings = {.least_seconds = 60, .least_gain = 0.02, .move_seconds = 5};

Share All(std::uint64_t amount) { return {amount, amount, amount}; }

// A job with rows of 1 to 10 of each resource. The goodput is amount^power.
SharingJob JobOf(double power, double remaining) {
  SharingJob job = {.id = 1, .remaining = remaining};
  for (std::uint64_t amount = 1; amount <= 10; ++amount) {
    job.rows.push_back({All(amount), std::pow(static_cast<double>(amount), power)});
  }
  return job;
}

SharingDecision Decide(const std::vector<SharingJob>& jobs, double now = 1000) {
  const absl::StatusOr<SharingDecision> decision = ShareByGoodput(kTen, jobs, kSettings, now);
  EXPECT_TRUE(decision.ok()) << decision.status();
  return decision.value_or(SharingDecision{});
}

TEST(ShareByGoodput, OfOneJob_GivesItItsBestRow) {
  const SharingDecision decision = Decide({JobOf(0.5, 100)});
  EXPECT_EQ(decision.rows[0], 9u);
  ASSERT_EQ(decision.moves.size(), 1u);
  EXPECT_EQ(decision.moves[0], (Move{0, std::nullopt, 9}));
  EXPECT_EQ(decision.look_again, std::nullopt);
}

TEST(ShareByGoodput, OfNoJobs_GivesNothing) { EXPECT_TRUE(Decide({}).rows.empty()); }

TEST(ShareByGoodput, OfEqualJobsThatScaleBadly_GivesBothAboutHalf) {
  const SharingDecision decision = Decide({JobOf(0.3, 1000), JobOf(0.3, 1000)});
  EXPECT_EQ(*decision.rows[0] + 1 + *decision.rows[1] + 1, 10u);
  EXPECT_NEAR(static_cast<double>(*decision.rows[0]), 4, 1);
}

// One job is as fast with a part of the node as with all of it: the other gains from the rest.
TEST(ShareByGoodput, OfAJobThatGainsNothing_GivesTheRestToTheOther) {
  SharingJob flat = JobOf(1, 1000);
  for (GoodputRow& row : flat.rows) row.goodput = std::min(row.goodput, 2.0);
  const SharingDecision decision = Decide({flat, JobOf(1, 5000)});
  EXPECT_EQ(decision.rows[0], 1u);
  EXPECT_EQ(decision.rows[1], 7u);
}

// Both are faster with the other's row, and neither may wait in between.
TEST(ShareByGoodput, OfJobsThatCannotSwap_ServesWhoWaitsFromTheRest) {
  const auto holder = [](Share has, Share wants) {
    SharingJob job = {.id = 1, .guarantee = All(1), .remaining = 1e6};
    job.rows = {{wants, 100}, {has, 1}};
    job.row = 1;
    return job;
  };
  const Share flat = {9, 1, 1};
  const Share tall = {1, 9, 1};
  SharingJob comes = {.id = 3, .guarantee = All(1), .remaining = 1e6};
  comes.rows = {{All(1), 1}};
  const std::vector<SharingJob> jobs = {holder(flat, tall), holder(tall, flat), comes};
  const absl::StatusOr<SharingDecision> decision =
      ShareByGoodput({11, 11, 3}, jobs, kSettings, 1000);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->rows[0], 1u);
  EXPECT_EQ(decision->rows[1], 1u);
  EXPECT_EQ(decision->rows[2], 0u);
  EXPECT_EQ(decision->moves, (std::vector<Move>{{2, std::nullopt, 0}}));
  EXPECT_EQ(decision->look_again, 1000 + kSettings.least_seconds);
}

TEST(ShareByGoodput, OfWorkThatIsNoNumber_IsRefused) {
  for (const double remaining : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const std::vector<SharingJob> jobs = {JobOf(1, remaining)};
    EXPECT_TRUE(absl::IsInvalidArgument(ShareByGoodput(kTen, jobs, kSettings, 0).status()));
  }
}

TEST(ShareByGoodput, OfAHigherPriority_ServesItFirst) {
  std::vector<SharingJob> jobs = {JobOf(0.3, 10), JobOf(0.3, 1000)};
  jobs[1].priority = 1;
  const SharingDecision decision = Decide(jobs);
  EXPECT_EQ(decision.rows[0], std::nullopt);
  EXPECT_EQ(decision.rows[1], 9u);
}

TEST(ShareByGoodput, OfALowerPriorityWithAGuarantee_LeavesItThat) {
  std::vector<SharingJob> jobs = {JobOf(0.3, 10), JobOf(0.3, 1000)};
  jobs[0].guarantee = {3, 2, 0};
  jobs[1].priority = 1;
  const SharingDecision decision = Decide(jobs);
  EXPECT_EQ(decision.rows[0], 2u);  // the least row with three of the memory
  EXPECT_EQ(decision.rows[1], 6u);
}

TEST(ShareByGoodput, WithinTheInterval_LeavesARowAsItIs) {
  std::vector<SharingJob> jobs = {JobOf(0.3, 10'000), JobOf(0.3, 10'000)};
  jobs[0].row = 9;
  jobs[0].since = 950;
  const SharingDecision now = Decide(jobs, 1009);
  EXPECT_EQ(now.rows[0], 9u);
  EXPECT_EQ(now.rows[1], std::nullopt);
  EXPECT_TRUE(now.moves.empty());
  EXPECT_EQ(now.look_again, 1010);
  const SharingDecision later = Decide(jobs, 1010);
  EXPECT_LT(*later.rows[0], 9u);
  EXPECT_NE(later.rows[1], std::nullopt);
  // The move that frees amounts comes before the move that takes them.
  ASSERT_EQ(later.moves.size(), 2u);
  EXPECT_EQ(later.moves[0].job, 0u);
}

TEST(ShareByGoodput, OfAGuaranteeWithinTheInterval_GivesItAtOnce) {
  std::vector<SharingJob> jobs = {JobOf(0.3, 10'000), JobOf(0.3, 10'000)};
  jobs[0].row = 9;
  jobs[0].since = 999;
  jobs[1].guarantee = All(4);
  const SharingDecision decision = Decide(jobs, 1000);
  EXPECT_LE(*decision.rows[0], 5u);
  EXPECT_GE(*decision.rows[1], 3u);
}

TEST(ShareByGoodput, ForASmallGain_ChangesNothing) {
  // They have four and six of ten. With five each they would end a trifle earlier, at the cost of
  // two moves.
  std::vector<SharingJob> jobs = {JobOf(0.3, 1000), JobOf(0.3, 1000)};
  jobs[0].row = 3;
  jobs[1].row = 5;
  EXPECT_TRUE(Decide(jobs).moves.empty());
  // For jobs that scale, nine and one of ten are worth a change.
  jobs = {JobOf(0.8, 10'000), JobOf(0.8, 10'000)};
  jobs[0].row = 0;
  jobs[1].row = 0;
  EXPECT_FALSE(Decide(jobs).moves.empty());
}

TEST(ShareByGoodput, OfJobsWhoseWorkIsNotKnown_SharesAllTheSame) {
  std::vector<SharingJob> jobs = {JobOf(0.5, 0), JobOf(0.5, 0)};
  for (SharingJob& job : jobs) job.remaining.reset();
  const SharingDecision decision = Decide(jobs);
  EXPECT_NE(decision.rows[0], std::nullopt);
  EXPECT_NE(decision.rows[1], std::nullopt);
}

TEST(ShareByGoodput, OfAJobThatFitsNowhere_HasItWait) {
  SharingJob large = {.id = 1, .rows = {{All(11), 5}}};
  const SharingDecision decision = Decide({large, JobOf(1, 10)});
  EXPECT_EQ(decision.rows[0], std::nullopt);
  EXPECT_EQ(decision.rows[1], 9u);
}

TEST(ShareByGoodput, OfWhatCannotBe_SaysWhatAndWhy) {
  const auto error = [](const SharingJob& job) {
    return std::string(
        ShareByGoodput(kTen, std::vector{job, job}, kSettings, 0).status().message());
  };
  SharingJob job = JobOf(1, 10);
  job.guarantee = All(6);
  EXPECT_THAT(error(job), HasSubstr("guaranteed 12 bytes of device memory together, and the node "
                                    "has 10"));
  job.guarantee = All(11);
  EXPECT_THAT(error(job), HasSubstr("job 1 has no row that is at least its guarantee"));
  job = JobOf(1, 10);
  job.rows[3].goodput = 0;
  EXPECT_THAT(error(job), HasSubstr("row 3 of job 1 has the goodput 0"));
  job = JobOf(1, 10);
  job.row = 10;
  EXPECT_THAT(error(job), HasSubstr("job 1 has row 10 of 10"));
  job.row = 8;
  EXPECT_THAT(error(job),
              HasSubstr("the jobs have 18 bytes of device memory, and the node has 10"));
}

}  // namespace
}  // namespace geminid::planner
