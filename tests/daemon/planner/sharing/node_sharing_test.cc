// Requests to jobs of a node for other numbers of ranks, on a clock of the test's own.
#include "daemon/planner/sharing/node_sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace geminid::planner {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kRankBytes = 8 * kMiB;
constexpr double kInterval = 60;
constexpr SharingSettings kSettings = {.least_seconds = kInterval, .least_gain = 0.05};
constexpr Share kEight = {.memory_bytes = 8 * kRankBytes, .ranks = 8};

// A job with 1 to `most` ranks. The fraction `serial` of its step does not scale.
NodeJob Job(const std::string& name, uint64_t ranks, uint64_t most, double serial = 0.1) {
  NodeJob job;
  job.key = {"uid:7", name};
  job.ranks = ranks;
  job.memory_bytes = ranks * kRankBytes;
  for (uint64_t r = 1; r <= most; ++r) {
    job.rows.push_back({r, r * kRankBytes, 1 / (serial + (1 - serial) / static_cast<double>(r))});
  }
  return job;
}

struct Asked {
  double at = 0;
  RanksRequest request;
};

class Node : public ::testing::Test {
 protected:
  NodeJob& JobOf(const std::string& name) {
    return *std::ranges::find(jobs_, name, [](const NodeJob& job) { return job.key.job; });
  }
  void Remove(const std::string& name) {
    std::erase_if(jobs_, [&](const NodeJob& job) { return job.key.job == name; });
  }

  // Calls Next five times a second. A job fulfils a request at once, unless it refuses.
  void RunFor(double seconds) {
    for (const double end = now_ + seconds; now_ < end; now_ += 0.2) {
      const auto request = sharing_.Next(room_, jobs_, now_);
      if (!request) continue;
      asked_.push_back({now_, *request});
      EXPECT_FALSE(request->why.empty());
      EXPECT_EQ(sharing_.Next(room_, jobs_, now_), std::nullopt) << "one at a time";
      if (refuses_ == request->job.job) {
        sharing_.Refused("its log has failed", now_);
        continue;
      }
      NodeJob& job = JobOf(request->job.job);
      EXPECT_EQ(job.ranks, request->from);
      job.ranks = request->to;
      job.memory_bytes = request->to * kRankBytes;
      sharing_.Done(now_);
      ExpectRoomForAll();
    }
  }

  void ExpectRoomForAll() const {
    uint64_t before = 0, bytes = 0;
    for (const NodeJob& job : jobs_) {
      before += job.ranks;
      if (job.ranks > 0) bytes += job.memory_bytes;
    }
    // After a request for fewer ranks, other requests for fewer may still be due.
    if (asked_.back().request.to > asked_.back().request.from) {
      EXPECT_LE(before, room_.ranks);
      EXPECT_LE(bytes, room_.memory_bytes);
    }
  }

  std::string Why(const std::string& name) const {
    return sharing_.ShareOf({"uid:7", name}, now_).why;
  }

  NodeSharing sharing_{kSettings};
  Share room_ = kEight;
  std::vector<NodeJob> jobs_;
  std::string refuses_;
  std::vector<Asked> asked_;
  double now_ = 1000;
};

TEST_F(Node, WithOneJob_GivesItTheRanksThatItLearnsFastestWith) {
  jobs_ = {Job("a", 1, 4)};
  RunFor(kInterval - 1);
  EXPECT_THAT(asked_, IsEmpty()) << "it keeps what it came with for an interval";
  RunFor(2 * kInterval);
  ASSERT_THAT(asked_, SizeIs(1));
  EXPECT_EQ(asked_[0].request.to, 4u);
  EXPECT_THAT(asked_[0].request.why, HasSubstr("it learns 208% faster with them"));
  EXPECT_THAT(Why("a"), HasSubstr("no other number of ranks learns faster"));
}

TEST_F(Node, WithAJobThatMoreRanksMakeSlower_LeavesItAlone) {
  jobs_ = {Job("a", 1, 2)};
  jobs_[0].rows[1].goodput = 0.9;
  RunFor(10 * kInterval);
  EXPECT_THAT(asked_, IsEmpty());
}

// The job reports the lower goodput only since it has those ranks.
TEST_F(Node, WithRanksThatMadeAJobSlower_TakesThemBackAndDoesNotTryAgain) {
  jobs_ = {Job("a", 1, 2)};
  RunFor(2 * kInterval);
  ASSERT_EQ(jobs_[0].ranks, 2u);
  jobs_[0].rows[1].goodput = 0.9;
  RunFor(20 * kInterval);
  EXPECT_EQ(jobs_[0].ranks, 1u);
  EXPECT_THAT(asked_, SizeIs(2));
  EXPECT_THAT(asked_[1].request.why, HasSubstr("it learns 11% faster"));
}

TEST_F(Node, ToWhichASecondJobComes_TakesRanksOfTheFirst) {
  jobs_ = {Job("a", 8, 8)};
  RunFor(2 * kInterval);
  EXPECT_THAT(asked_, IsEmpty());
  jobs_.push_back(Job("b", 1, 8));
  RunFor(4 * kInterval);
  EXPECT_LT(JobOf("a").ranks, 8u);
  EXPECT_GT(JobOf("b").ranks, 1u);
  EXPECT_LE(JobOf("a").ranks + JobOf("b").ranks, 8u);
  ASSERT_FALSE(asked_.empty());
  EXPECT_EQ(asked_[0].request.job.job, "a");
  EXPECT_LT(asked_[0].request.to, 8u);
}

TEST_F(Node, OfWhichAJobEnds_GivesItsRanksToTheOther) {
  jobs_ = {Job("a", 4, 8), Job("b", 4, 8)};
  RunFor(2 * kInterval);
  EXPECT_THAT(asked_, IsEmpty());
  EXPECT_THAT(Why("a"), HasSubstr("the node has no room for them beside b of uid:7 (4 ranks)"));
  Remove("b");
  RunFor(2 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 8u);
}

TEST_F(Node, WithPriorities_ServesTheHigherOneFirstAndLeavesTheOtherItsLeast) {
  jobs_ = {Job("a", 4, 8), Job("b", 4, 8)};
  JobOf("b").priority = 5;
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 1u);
  EXPECT_EQ(JobOf("b").ranks, 7u);
  ASSERT_THAT(asked_, SizeIs(2));
  EXPECT_THAT(asked_[0].request.why, HasSubstr("makes room for b of uid:7, which learns"));
}

TEST_F(Node, WithAGuarantee_NeverGoesBelowIt) {
  jobs_ = {Job("a", 4, 8), Job("b", 4, 8)};
  JobOf("a").guaranteed_bytes = 3 * kRankBytes;
  JobOf("b").priority = 5;
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 3u);
  EXPECT_EQ(JobOf("b").ranks, 5u);
}

TEST_F(Node, WithAGuaranteeThatOthersHave_GivesItBack) {
  jobs_ = {Job("a", 1, 8), Job("b", 7, 8)};
  JobOf("a").guaranteed_bytes = 3 * kRankBytes;
  JobOf("b").priority = 5;
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 3u);
  EXPECT_EQ(JobOf("b").ranks, 5u);
}

TEST_F(Node, WithAJobThatIsFixed_CountsItAsTakenRoom) {
  jobs_ = {Job("a", 1, 8), Job("b", 4, 8)};
  JobOf("b").fixed = "uid:7 asked for 4 ranks";
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 4u);
  EXPECT_EQ(JobOf("b").ranks, 4u);
  EXPECT_EQ(Why("b"), "uid:7 asked for 4 ranks");
}

// --- refusals ------------------------------------------------------------------------------------

TEST_F(Node, WithAJobThatRefuses_AsksItEverMoreRarely) {
  jobs_ = {Job("a", 1, 4)};
  refuses_ = "a";
  RunFor(1000 * kInterval);
  ASSERT_GE(asked_.size(), 5u);
  EXPECT_LE(asked_.size(), 24u);
  for (size_t i = 1; i < asked_.size(); ++i) {
    const double doublings = std::min(static_cast<double>(i), 6.0);
    EXPECT_GE(asked_[i].at - asked_[i - 1].at, kInterval * std::exp2(doublings)) << i;
  }
  EXPECT_THAT(Why("a"), HasSubstr("it was asked for 4 ranks and refused: its log has failed; it "
                                  "is asked again in "));
}

TEST_F(Node, WithAJobThatRefusesToGiveRanksBack_ServesTheOthersFromTheRest) {
  jobs_ = {Job("a", 6, 8), Job("b", 1, 8)};
  JobOf("b").priority = 5;
  refuses_ = "a";
  RunFor(3 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 6u);
  EXPECT_EQ(JobOf("b").ranks, 2u);
}

TEST_F(Node, OfWhichAJobGoesWhileOthersAreToChange_LooksAnew) {
  jobs_ = {Job("a", 4, 8), Job("b", 2, 8), Job("c", 2, 8)};
  JobOf("a").priority = -1;
  RunFor(kInterval);
  const auto first = sharing_.Next(room_, jobs_, now_ + 1);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->job.job, "a");
  sharing_.Refused("the job ended", now_ + 1);
  Remove("a");
  RunFor(2 * kInterval);
  EXPECT_EQ(JobOf("b").ranks + JobOf("c").ranks, 8u);
}

// --- jobs that wait ------------------------------------------------------------------------------

TEST_F(Node, WhereAJobWaitsForMemory_MakesRoomForIt) {
  jobs_ = {Job("a", 8, 8)};
  RunFor(2 * kInterval);
  NodeJob waits;
  waits.key = {"uid:8", "w"};
  waits.memory_bytes = 3 * kRankBytes;
  jobs_.push_back(waits);
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 5u);
  ASSERT_THAT(asked_, SizeIs(1));
  EXPECT_THAT(asked_[0].request.why,
              HasSubstr("makes room for w of uid:8, which waits for 24.0 MiB"));
}

TEST_F(Node, WhereAJobWaitsForMoreThanThereCanBe_TakesNothingFromOthersForIt) {
  jobs_ = {Job("a", 8, 8)};
  NodeJob waits;
  waits.key = {"uid:8", "w"};
  waits.memory_bytes = 8 * kRankBytes;
  jobs_.push_back(waits);
  RunFor(4 * kInterval);
  EXPECT_THAT(asked_, IsEmpty()) << "one rank of a stays in any case";
}

// While job a has no ranks, the queue would admit w, and a would wait for its end.
TEST_F(Node, WhereAJobWaitsThatWouldFitDuringAChange_DoesNotGrowAnother) {
  jobs_ = {Job("a", 1, 8)};
  NodeJob waits;
  waits.key = {"uid:8", "w"};
  waits.memory_bytes = 8 * kRankBytes;
  jobs_.push_back(waits);
  RunFor(4 * kInterval);
  EXPECT_THAT(asked_, IsEmpty());
  Remove("w");
  RunFor(2 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 8u);
}

TEST_F(Node, WhereAJobOfLowerPriorityWaits_LetsItWait) {
  jobs_ = {Job("a", 8, 8)};
  JobOf("a").priority = 1;
  NodeJob waits;
  waits.key = {"uid:8", "w"};
  waits.memory_bytes = kRankBytes;
  jobs_.push_back(waits);
  RunFor(4 * kInterval);
  EXPECT_THAT(asked_, IsEmpty());
  JobOf("w").priority = 1;  // it has waited for so long
  RunFor(2 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 7u);
}

// --- restarts and lies ---------------------------------------------------------------------------

TEST_F(Node, OfADaemonThatHasRestarted_LeavesAllAsTheyAreForAnInterval) {
  jobs_ = {Job("a", 1, 4), Job("b", 4, 8)};
  RunFor(kInterval / 2);
  sharing_ = NodeSharing(kSettings);
  RunFor(kInterval - 1);
  EXPECT_THAT(asked_, IsEmpty());
  RunFor(2 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 4u);
}

TEST_F(Node, WithReportsThatLie_ServesTheOthers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  jobs_ = {Job("a", 1, 4), Job("liar", 2, 8)};
  NodeJob& liar = JobOf("liar");
  liar.remaining = kNan;
  liar.rows = {{0, 0, 1},
               {2, 0, 1},
               {8, 0, std::numeric_limits<double>::infinity()},
               {std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max(), 1e15},
               {4, std::numeric_limits<uint64_t>::max(), 1e15}};
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 4u);
  EXPECT_EQ(JobOf("liar").ranks, 2u);
}

TEST_F(Node, WithMoreRanksThanItHasRoomFor_TakesThemFromTheLowestPriority) {
  room_.ranks = 3;
  jobs_ = {Job("a", 2, 2), Job("b", 2, 2), Job("c", 1, 1)};
  JobOf("a").priority = 1;
  RunFor(4 * kInterval);
  EXPECT_EQ(JobOf("a").ranks, 1u);
  EXPECT_EQ(JobOf("b").ranks, 1u);
  room_.ranks = 0;  // jobs with a fixed number of ranks have them all
  RunFor(4 * kInterval);
  EXPECT_THAT(asked_, SizeIs(2)) << "nobody has less than its least";
}

// --- experiences with other schedulers -----------------------------------------------------------

// Measured steps always differ. Ranks that change with the noise cost more than they gain.
TEST_F(Node, WithAJobThatSaysItNeverEnds_ChangesNothingForALittle) {
  jobs_ = {Job("a", 1, 2)};
  jobs_[0].rows[0].goodput = 1e-9;
  jobs_[0].rows[1].goodput = 1.01e-9;
  jobs_[0].remaining = 1e300;
  RunFor(4 * kInterval);
  EXPECT_THAT(asked_, IsEmpty());
}

// The name then belongs to another job.
TEST_F(Node, OfWhichAJobThatRefusedHasEnded_AsksTheNextOneOfTheName) {
  jobs_ = {Job("a", 1, 4)};
  refuses_ = "a";
  RunFor(20 * kInterval);
  asked_.clear();
  refuses_.clear();
  sharing_.Ended(jobs_[0].key);
  RunFor(2 * kInterval + 1);
  EXPECT_EQ(JobOf("a").ranks, 4u);
}

TEST_F(Node, WithReportsThatFluctuate_DoesNotFlap) {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(1, 0.05);
  jobs_ = {Job("a", 1, 8, 0.1), Job("b", 1, 8, 0.2), Job("c", 1, 8, 0.3)};
  const std::vector<NodeJob> truth = jobs_;
  RunFor(5 * kInterval);
  const size_t settled = asked_.size();
  for (int minute = 0; minute < 240; ++minute) {
    for (size_t j = 0; j < jobs_.size(); ++j) {
      // The job measures the row of its own number. The other rows follow from it.
      for (size_t r = 0; r < jobs_[j].rows.size(); ++r) {
        const double factor = jobs_[j].rows[r].ranks == jobs_[j].ranks ? noise(random) : 1;
        jobs_[j].rows[r].goodput = truth[j].rows[r].goodput * factor;
      }
    }
    RunFor(kInterval);
  }
  EXPECT_LE(asked_.size() - settled, 40u) << "in four hours of three jobs";
}

// A job that arrives takes from the others once, not once for each decision.
TEST_F(Node, ToWhichManyJobsCome_ChangesEachAFewTimes) {
  room_ = {.memory_bytes = 64 * kRankBytes, .ranks = 16};
  for (int i = 0; i < 8; ++i) {
    jobs_.push_back(Job(std::string(1, static_cast<char>('a' + i)), 1, 16));
    RunFor(3 * kInterval);
  }
  RunFor(20 * kInterval);
  for (const NodeJob& job : jobs_) EXPECT_GE(job.ranks, 1u) << job.key.job;
  uint64_t all = 0;
  for (const NodeJob& job : jobs_) all += job.ranks;
  EXPECT_LE(all, 16u);
  EXPECT_GE(all, 15u) << "one rank may be worth less than the pause of whoever would get it";
  const size_t settled = asked_.size();
  EXPECT_LE(settled, 60u);
  RunFor(60 * kInterval);
  EXPECT_EQ(asked_.size(), settled) << "nothing has changed since";
}

// Whatever jobs report and do, no job has less than its least, and none gets more than exists.
TEST_F(Node, OfRandomJobs_NeverPassesItsBounds) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint64_t n) { return random() % n; };
    sharing_ = NodeSharing(kSettings);
    jobs_.clear();
    room_ = {.memory_bytes = below(20) * kRankBytes, .ranks = below(20)};
    for (int look = 0; look < 60; ++look) {
      now_ += 20;
      if (jobs_.size() < 5 && below(3) == 0) {
        NodeJob job = Job(std::to_string(look), 1 + below(4), 1 + below(8));
        job.ranks = std::min<uint64_t>(job.ranks, job.rows.size());
        job.memory_bytes = job.ranks * kRankBytes;
        job.priority = static_cast<int32_t>(below(3));
        job.guaranteed_bytes = below(4) * kRankBytes;
        if (below(5) == 0) job.rows[below(job.rows.size())].goodput = -1;
        if (below(5) == 0) job.ranks = 0;
        jobs_.push_back(job);
      }
      if (!jobs_.empty() && below(8) == 0) jobs_.erase(jobs_.begin());
      const auto request = sharing_.Next(room_, jobs_, now_);
      if (!request) continue;
      NodeJob& job = JobOf(request->job.job);
      ASSERT_GT(job.ranks, 0u);
      ASSERT_EQ(job.ranks, request->from);
      ASSERT_NE(request->to, request->from);
      const auto rows = UsableRows(job);
      const auto to = std::ranges::find(rows, request->to, [](auto& r) { return r.share.ranks; });
      ASSERT_NE(to, rows.end());
      if (below(4) == 0) {
        sharing_.Refused("no", now_);
        continue;
      }
      job.ranks = request->to;
      job.memory_bytes = to->share.memory_bytes;
      sharing_.Done(now_);
      if (request->to < request->from) continue;
      uint64_t ranks = 0, bytes = 0;
      for (const NodeJob& each : jobs_) {
        ranks += each.ranks;
        bytes += each.ranks > 0 ? each.memory_bytes : 0;
      }
      ASSERT_LE(ranks, room_.ranks) << seed;
      ASSERT_LE(bytes, room_.memory_bytes) << seed;
    }
  }
}

}  // namespace
}  // namespace geminid::planner
