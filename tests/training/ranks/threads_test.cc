#include "training/ranks/threads.h"

#include <gtest/gtest.h>

#include <vector>

namespace geminid::trainer {
namespace {

const std::vector<int> kFour = {0, 1, 2, 3};

TEST(ThreadsOfShare, OfOneRank_IsAllThatItMayUse) {
  EXPECT_EQ(ThreadsOfShare({.allowed = kFour, .ranks = std::vector<double>{1, 1, 1, 1}}), 4u);
  const std::vector<int> one = {2};
  EXPECT_EQ(ThreadsOfShare({.allowed = one, .ranks = std::vector<double>{0, 0, 1}}), 1u);
}

TEST(ThreadsOfShare, OfRanksThatShareProcessors_DoesNotUseThemTwice) {
  for (const int ranks : {2, 3, 4, 5, 9}) {
    const std::vector<double> sharing(4, ranks);
    const size_t threads =
        ThreadsOfShare({.allowed = kFour, .ranks = sharing, .ranks_on_host = 1.0 * ranks});
    EXPECT_EQ(threads, static_cast<size_t>(std::max(1, 4 / ranks))) << ranks;
  }
}

TEST(ThreadsOfShare, OfRanksBoundToTheirOwn_IsWhatEachIsBoundTo) {
  const std::vector<int> mine = {2, 3};
  const std::vector<double> ranks(4, 1);
  EXPECT_EQ(ThreadsOfShare({.allowed = mine, .ranks = ranks, .ranks_on_host = 2}), 2u);
}

TEST(ThreadsOfShare, OnSeveralHosts_CountsThoseOfOne) {
  // Eight ranks are on four hosts, two on each, and share all processors of their host.
  const std::vector<double> ranks(4, 8);
  EXPECT_EQ(ThreadsOfShare({.allowed = kFour, .ranks = ranks, .hosts = 4, .ranks_on_host = 2}), 2u);
}

TEST(ThreadsOfShare, OfThreeRanksOnSixProcessors_IsNotRoundedDown) {
  const std::vector<int> six = {0, 1, 2, 3, 4, 5};
  const std::vector<double> ranks(6, 3);
  EXPECT_EQ(ThreadsOfShare({.allowed = six, .ranks = ranks, .ranks_on_host = 3}), 2u);
}

TEST(ThreadsOfShare, UnderAQuota_StaysWithinIt) {
  const std::vector<double> alone(4, 1), two(4, 2);
  EXPECT_EQ(ThreadsOfShare({.allowed = kFour, .ranks = alone, .quota = 2.5}), 2u);
  EXPECT_EQ(ThreadsOfShare({.allowed = kFour, .ranks = alone, .quota = 0.5}), 1u);
  EXPECT_EQ(ThreadsOfShare({.allowed = kFour, .ranks = two, .quota = 2.0, .ranks_on_host = 2}), 1u);
}

TEST(ThreadsOfShare, OfAProcessorBeyondTheTable_IsTheRanksOwn) {
  const std::vector<int> far = {5, 2000};
  EXPECT_EQ(ThreadsOfShare({.allowed = far, .ranks = std::vector<double>(6, 2)}), 1u);
  EXPECT_EQ(ThreadsOfShare({.allowed = far, .ranks = std::vector<double>(6, 1)}), 2u);
}

}  // namespace
}  // namespace geminid::trainer
