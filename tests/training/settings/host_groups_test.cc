#include "training/settings/host_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

std::optional<std::vector<int>> Hosts(const std::vector<LocalPlace>& by_rank) {
  return HostsOf(by_rank);
}

TEST(HostsOf, OfRanksInAnyNumbering_AreWhereTheirLocalNumbersGoOn) {
  EXPECT_THAT(Hosts({{0, 2}, {1, 2}, {0, 2}, {1, 2}}), Optional(ElementsAre(0, 0, 1, 1)));
  EXPECT_THAT(Hosts({{0, 2}, {0, 2}, {1, 2}, {1, 2}}), Optional(ElementsAre(0, 1, 0, 1)));
  EXPECT_THAT(Hosts({{0, 1}, {0, 3}, {1, 3}, {2, 3}}), Optional(ElementsAre(0, 1, 1, 1)));
}

TEST(HostsOf, WhereALauncherDoesNotSayOrCannotBeRight_AreNotKnown) {
  EXPECT_EQ(Hosts({{0, 0}, {0, 0}}), std::nullopt);
  EXPECT_EQ(Hosts({{1, 2}, {0, 2}}), std::nullopt);
  EXPECT_EQ(Hosts({{0, 2}}), std::nullopt);
  EXPECT_EQ(Hosts({{0, 2}, {2, 2}}), std::nullopt);
}

TEST(RanksOnHostOf, OfHostsWithAsManyEach_AreInOrderWhateverTheNumbering) {
  const auto here = [](int rank, std::vector<int64_t> hosts) {
    return RanksOnHostOf(rank, hosts).value();
  };
  EXPECT_THAT(here(1, {7, 7, 9, 9}), ElementsAre(0, 1));
  EXPECT_THAT(here(2, {7, 9, 7, 9}), ElementsAre(0, 2));
  EXPECT_THAT(here(1, {7, 9, 8}), ElementsAre(1));
  EXPECT_THAT(here(1, {7, 7}), IsEmpty());
}

TEST(RanksOnHostOf, OfHostsWithMoreAndFewer_SaysHowMany) {
  const absl::Status status = RanksOnHostOf(0, std::vector<int64_t>{7, 7, 9}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("there are 1 to 2; start as many on each"));
}

std::string Warning(const Parallel& parallel, const std::vector<int>& host_by_rank,
                    int fits_up_to = 64) {
  return WarnOfGroups(parallel, host_by_rank, [&](int size) { return size <= fits_up_to; });
}

TEST(WarnOfGroups, WithinHosts_SaysNothing) {
  EXPECT_EQ(Warning({.tensor = {.size = 2}}, {0, 0, 1, 1}), "");
  EXPECT_EQ(Warning({.expert = 4}, {0, 0, 0, 0}), "");
  EXPECT_EQ(Warning({.pipeline = 2, .sequence = 2}, {0, 1, 0, 1}), "");  // no tensor or expert axis
}

TEST(WarnOfGroups, OfRanksNumberedRoundTheHosts_AsksForAnotherNumbering) {
  EXPECT_EQ(Warning({.tensor = {.size = 2}}, {0, 1, 0, 1}),
            "the ranks of tensor, 2 that follow each other, talk most and lie on several hosts; "
            "number the ranks host by host (with Slurm --distribution=block)");
  EXPECT_THAT(Warning({.expert = 2}, {0, 1, 0, 1}), HasSubstr("the ranks of expert, 2 that"));
}

TEST(WarnOfGroups, OfASizeThatNoHostHas_NamesTheLargestThatStaysWithin) {
  const std::vector<int> of_six = {0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1};
  EXPECT_THAT(Warning({.tensor = {.size = 4}}, of_six), HasSubstr("with a size of 3 they would"));
  EXPECT_THAT(Warning({.tensor = {.size = 12}}, of_six), HasSubstr("with a size of 6 they would"));
  EXPECT_THAT(Warning({.tensor = {.size = 12}}, of_six, 2), HasSubstr("with a size of 2"));
}

TEST(WarnOfGroups, WhereNothingCanBeDone_SaysNothing) {
  EXPECT_EQ(Warning({.tensor = {.size = 2}}, {0, 1}), "");
  EXPECT_EQ(Warning({.tensor = {.size = 4}}, {0, 0, 1, 1}, 1), "");
}

}  // namespace
}  // namespace geminid::trainer
