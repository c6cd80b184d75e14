#include "daemon/service/tenants/flood_guard.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

namespace geminid::service {
namespace {

// A connection whose peer is this process.
base::UniqueFd Connection() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  ::close(ends[1]);
  return base::UniqueFd(ends[0]);
}

TEST(FloodGuard, ProcessThatConnectsTwiceAsOftenAsATenantMay_Passes_MoreFloods) {
  config::TenantShares shares;
  shares.connections_per_second = 5;
  const Limits limits(shares);
  FloodGuard guard(&limits);
  const base::UniqueFd connection = Connection();
  const core::Time start = core::Time::FromNanoseconds(1'000'000'000);
  // The burst is twice ten seconds' worth.
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(guard.Floods(connection, start)) << i;
  EXPECT_TRUE(guard.Floods(connection, start));
  const core::Time later = start + core::Duration::Seconds(1);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(guard.Floods(connection, later)) << i;
  EXPECT_TRUE(guard.Floods(connection, later));
}

TEST(FloodGuard, ConfigurationReadAgain_CountsFromThenOn) {
  config::TenantShares shares;
  shares.connections_per_second = 1;
  Limits limits(shares);
  FloodGuard guard(&limits);
  const base::UniqueFd connection = Connection();
  const core::Time start = core::Time::FromNanoseconds(1'000'000'000);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(guard.Floods(connection, start)) << i;
  EXPECT_TRUE(guard.Floods(connection, start));
  shares.connections_per_second = 1000;
  limits.Set(shares);
  EXPECT_FALSE(guard.Floods(connection, start + core::Duration::Milliseconds(10)));
}

TEST(FloodGuard, WhatIsNoSocket_IsClosed) {
  const Limits limits((config::TenantShares()));
  FloodGuard guard(&limits);
  EXPECT_TRUE(guard.Floods(base::UniqueFd(), core::Time::FromNanoseconds(1)));
}

}  // namespace
}  // namespace geminid::service
