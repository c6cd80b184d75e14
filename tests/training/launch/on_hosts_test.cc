// The number of ranks that continue after a host is lost.
#include "training/launch/on_hosts.h"

#include <gtest/gtest.h>

namespace geminid::trainer {
namespace {

TEST(RanksOnThoseLeft, AreTheMostThatFit) {
  const std::vector<HostSlots> hosts = {{"a", 4}, {"b", 3}};
  EXPECT_EQ(RanksOnThoseLeft(hosts, 12, [](int) { return true; }), 7);
  EXPECT_EQ(RanksOnThoseLeft(hosts, 5, [](int) { return true; }), 5) << "there were spare slots";
  EXPECT_EQ(RanksOnThoseLeft(hosts, 12, [](int ranks) { return 12 % ranks == 0; }), 6);
  EXPECT_EQ(RanksOnThoseLeft(hosts, 12, [](int ranks) { return ranks == 8; }), 0);
  EXPECT_EQ(RanksOnThoseLeft({}, 12, [](int) { return true; }), 0);
}

}  // namespace
}  // namespace geminid::trainer
