// A job's report may have any values.
#include "daemon/planner/sharing/node_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace geminid::planner {
namespace {

using ::testing::SizeIs;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

NodeJob TwoRanks(std::vector<RanksRow> rows) {
  NodeJob job;
  job.key = {"uid:7", "train"};
  job.ranks = 2;
  job.memory_bytes = 16 * kMiB;
  job.rows = std::move(rows);
  return job;
}

TEST(UsableRows, OfWhatCanBe_AreInTheOrderOfRanks) {
  const NodeJob job = TwoRanks({{4, 32 * kMiB, 30}, {1, 8 * kMiB, 10}, {2, 16 * kMiB, 19}});
  const std::vector<GoodputRow> rows = UsableRows(job);
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].share, (Share{.memory_bytes = 8 * kMiB, .ranks = 1}));
  EXPECT_EQ(rows[2].goodput, 30);
  EXPECT_EQ(RowOfNow(job, rows), 1u);
}

TEST(UsableRows, OfWhatCannotBe_AreLeftOut) {
  const NodeJob job = TwoRanks({{0, 0, 10},
                                {2, 16 * kMiB, 19},
                                {3, 24 * kMiB, kNan},
                                {4, 32 * kMiB, kInfinity},
                                {5, 40 * kMiB, -1},
                                {6, 48 * kMiB, 0},
                                {7, std::numeric_limits<uint64_t>::max(), 50},
                                {std::numeric_limits<uint64_t>::max(), 8, 60},
                                {8, 64 * kMiB, 1e300}});
  const std::vector<GoodputRow> rows = UsableRows(job);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].share.ranks, 2u);
}

// Otherwise the job would get the memory of others.
TEST(UsableRows, OfLessMemoryThanARankHas_HaveWhatARankHas) {
  const NodeJob job = TwoRanks({{1, 0, 10}, {2, 0, 19}, {4, 1, 30}});
  const std::vector<GoodputRow> rows = UsableRows(job);
  ASSERT_THAT(rows, SizeIs(3));
  EXPECT_EQ(rows[0].share.memory_bytes, 8 * kMiB);
  EXPECT_EQ(rows[1].share.memory_bytes, 16 * kMiB);
  EXPECT_EQ(rows[2].share.memory_bytes, 32 * kMiB);
}

TEST(UsableRows, OfMoreRanks_TakeNoLessMemory) {
  const NodeJob job = TwoRanks({{1, 50 * kMiB, 10}, {2, 16 * kMiB, 19}});
  const std::vector<GoodputRow> rows = UsableRows(job);
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[1].share.memory_bytes, 50 * kMiB);
}

TEST(UsableRows, BeyondTheTenantsLimit_AreLeftOut) {
  NodeJob job = TwoRanks({{2, 16 * kMiB, 19}, {3, 24 * kMiB, 25}, {4, 32 * kMiB, 30}});
  job.most_bytes = 24 * kMiB;
  EXPECT_THAT(UsableRows(job), SizeIs(2));
  job.most_bytes = 0;
  EXPECT_THAT(UsableRows(job), SizeIs(1)) << "it has these, and keeps them";
}

TEST(UsableRows, OfAJobThatSaysNothingOfItsOwnNumber_AreWhatItHas) {
  for (const auto& rows : {std::vector<RanksRow>{}, std::vector<RanksRow>{{4, 8, 30}}}) {
    const std::vector<GoodputRow> usable = UsableRows(TwoRanks(rows));
    ASSERT_THAT(usable, SizeIs(1));
    EXPECT_EQ(usable[0].share, (Share{.memory_bytes = 16 * kMiB, .ranks = 2}));
  }
  NodeJob fixed = TwoRanks({{2, 16 * kMiB, 19}, {4, 32 * kMiB, 30}});
  fixed.fixed = "it saves a checkpoint";
  EXPECT_THAT(UsableRows(fixed), SizeIs(1));
}

TEST(UsableRows, OfAJobThatSaysMany_AreThoseThatItMaySay) {
  std::vector<RanksRow> many;
  for (uint64_t ranks = 1; ranks < 1000; ++ranks) many.push_back({ranks, 0, 1.0});
  EXPECT_THAT(UsableRows(TwoRanks(many)), SizeIs(kMostRowsOfJob));
}

TEST(UsableRows, OfAJobThatWaits_AreTheMemoryThatItWaitsFor) {
  NodeJob job = TwoRanks({});
  job.ranks = 0;
  const std::vector<GoodputRow> rows = UsableRows(job);
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0].share, (Share{.memory_bytes = 16 * kMiB, .ranks = 0}));
  EXPECT_EQ(RowOfNow(job, rows), std::nullopt);
}

TEST(LeastRow, OfAGuarantee_IsTheBestWithinIt) {
  NodeJob job =
      TwoRanks({{1, 8 * kMiB, 10}, {2, 16 * kMiB, 19}, {3, 24 * kMiB, 18}, {4, 32 * kMiB, 30}});
  const std::vector<GoodputRow> rows = UsableRows(job);
  EXPECT_EQ(LeastRowOf(job, rows), 0u);
  job.guaranteed_bytes = 24 * kMiB;
  EXPECT_EQ(LeastRowOf(job, rows), 1u) << "a third rank would make it slower";
  job.guaranteed_bytes = 32 * kMiB;
  EXPECT_EQ(LeastRowOf(job, rows), 3u);
}

TEST(Remaining, ThatCannotBe_IsNotKnown) {
  NodeJob job = TwoRanks({});
  EXPECT_EQ(RemainingOf(job), std::nullopt);
  for (const double wrong : {kNan, kInfinity, -kInfinity, -1.0, 1e301}) {
    job.remaining = wrong;
    EXPECT_EQ(RemainingOf(job), std::nullopt) << wrong;
  }
  job.remaining = 0;
  EXPECT_EQ(RemainingOf(job), 0);
}

}  // namespace
}  // namespace geminid::planner
