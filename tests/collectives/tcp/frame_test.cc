#include "collectives/tcp/frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace geminid::collectives {
namespace {

std::vector<std::string> Filled(std::vector<RankAddress> rank_addresses) {
  FillInAddresses(rank_addresses);
  std::vector<std::string> addresses;
  for (const RankAddress& rank_address : rank_addresses) addresses.push_back(rank_address.address);
  return addresses;
}

RankAddress At(const std::string& address, const std::string& rank_0) {
  return {.address = address, .rank_0 = rank_0};
}

TEST(Places, OfRanksThatKnowTheirAddress_AreThese) {
  EXPECT_EQ(Filled({At("10.0.0.1", "10.0.0.1"), At("fe80::2%eth0", "10.0.0.1")}),
            (std::vector<std::string>{"10.0.0.1", "fe80::2%eth0"}));
}

TEST(Places, OfRanksOnTheHostOfRankZero_AreWhereOthersReachIt) {
  EXPECT_EQ(Filled({At("", "127.0.0.1"), At("", "127.0.1.1"), At("10.0.0.2", "10.0.0.1"),
                    At("10.0.0.3", "192.168.0.1")}),
            (std::vector<std::string>{"10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"}));
}

TEST(Places, OfRanksThatAreAllOnOneHost_AreOnItsLoopbackInterface) {
  EXPECT_EQ(Filled({At("", "127.0.0.1"), At("", "::1"), At("127.0.0.2", "127.0.0.1")}),
            (std::vector<std::string>{"127.0.0.1", "::1", "127.0.0.2"}));
}

TEST(Places, Decoded_AreAsTheyWere) {
  const std::vector<RankAddress> rank_addresses = {
      {.address = "::1", .port = 65535, .rank_0 = "fe80::1%eth0", .machine = "host 3 of rack 4"},
      {.address = "", .port = 1, .rank_0 = "10.0.0.1", .machine = ""}};
  EXPECT_EQ(DecodeRankAddresses(EncodeRankAddresses(rank_addresses)), rank_addresses);
}

TEST(Places, OfAnotherForm_AreNone) {
  for (const char* text : {"", "10.0.0.1", "10.0.0.1 1 10.0.0.1", "10.0.0.1 65536 10.0.0.1 m",
                           "10.0.0.1 -1 10.0.0.1 m", "a 1 b m\n"}) {
    EXPECT_FALSE(DecodeRankAddresses(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace geminid::collectives
