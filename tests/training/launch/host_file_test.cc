#include "training/launch/host_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "training/launch/host_name.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  const auto hosts = ParseHostFile("hosts", text);
  EXPECT_EQ(hosts.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(hosts.status().message());
}

TEST(ParseHostFile, OfWhatMpirunTakes_HasHostsAndSlotsInOrder) {
  const auto hosts =
      ParseHostFile("hosts", "# a cluster\n\nnode-b slots=4\r\n  10.0.0.7\tslots=2 # two\nnode-a");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(*hosts, (std::vector<HostSlots>{{"node-b", 4}, {"10.0.0.7", 2}, {"node-a", 1}}));
  EXPECT_EQ(SlotsOf(*hosts), 7);
}

TEST(ParseHostFile, WithAByteOrderMark_HasTheNameBehindIt) {
  const auto hosts = ParseHostFile("hosts", "\xef\xbb\xbfnode-a slots=2\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->front().name, "node-a");
}

TEST(ParseHostFile, OfOtherWords_NamesTheLine) {
  EXPECT_THAT(ErrorOf("a slots=2\nb max_slots=3\n"),
              HasSubstr("hosts:2: 'max_slots=3' is not understood; a line is HOST slots=N"));
  EXPECT_THAT(ErrorOf("a slots=zero\n"), HasSubstr("hosts:1: slots"));
  EXPECT_THAT(ErrorOf("a slots=0\n"), HasSubstr("hosts:1: slots"));
  EXPECT_THAT(ErrorOf("a slots=2\nb\na\n"), HasSubstr("hosts:3: a appears twice"));
}

TEST(ParseHostFile, OfAHostThatLooksLikeAnOption_IsRefused) {
  EXPECT_THAT(ErrorOf("-oProxyCommand=reboot\n"), HasSubstr("begins with '-'"));
}

// The form of hostfiles of ssh, pdsh and deepspeed.
TEST(ParseHostFile, WithAUser_IsReachedByTheHostAlone) {
  const auto hosts = ParseHostFile("hosts", "alice@node-a slots=2\nnode-b\n");
  ASSERT_TRUE(hosts.ok()) << hosts.status();
  EXPECT_EQ(hosts->at(0).name, "alice@node-a");
  EXPECT_EQ(AddressOf(hosts->at(0).name), "node-a");
  EXPECT_EQ(AddressOf(hosts->at(1).name), "node-b");
  EXPECT_THAT(ErrorOf("a\nbob@a\n"), HasSubstr("hosts:2: a appears twice"));
  EXPECT_THAT(ErrorOf("a\nbob@localhost\n"), HasSubstr("by which the others reach that host"));
  EXPECT_THAT(ErrorOf("bob@\n"), HasSubstr("USER@HOST slots=N"));
  EXPECT_THAT(ErrorOf("@a\n"), HasSubstr("USER@HOST slots=N"));
}

TEST(ParseHostFile, OfNoHost_SaysSo) { EXPECT_THAT(ErrorOf("# none\n"), HasSubstr("no host")); }

TEST(ParseHostFile, OfTheLoopbackBesideOthers_AsksForItsName) {
  EXPECT_TRUE(ParseHostFile("hosts", "localhost slots=2").ok());
  for (const char* name : {"localhost", "127.0.0.1", "::1"}) {
    EXPECT_THAT(ErrorOf(std::string("a\n") + name),
                HasSubstr("by which the others reach that host"));
  }
}

TEST(ParseHostFile, OfMoreSlotsThanARunCanHave_IsRefused) {
  EXPECT_TRUE(ParseHostFile("hosts", "a slots=1000\nb slots=24").ok());
  EXPECT_THAT(ErrorOf("a slots=1000\nb slots=25"), HasSubstr("1025 slots"));
}

TEST(TakeSlots, OfFewerRanks_FillsTheFirstHosts) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 2}, {"c", 2}};
  EXPECT_EQ(TakeSlots(hosts, 3).value(), (std::vector<HostSlots>{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(TakeSlots(hosts, 6).value(), hosts);
}

TEST(TakeSlots, OfMoreRanks_SaysHowManyThereAre) {
  const auto taken = TakeSlots({{"a", 2}}, 3);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("has 2 slots"));
}

}  // namespace
}  // namespace geminid::trainer
