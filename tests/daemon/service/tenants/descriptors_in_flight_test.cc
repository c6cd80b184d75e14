#include "daemon/service/tenants/descriptors_in_flight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "daemon/os/unix_socket.h"

namespace geminid::service {
namespace {

using ::testing::HasSubstr;

config::TenantShares SharesWith(uint32_t descriptors) {
  config::TenantShares shares;
  shares.descriptors_in_flight = descriptors;
  return shares;
}

struct Ends {
  DescriptorsInFlight::Socket daemon;
  base::UniqueFd client;
};

Ends Connect() {
  int fds[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
  return {std::make_shared<const base::UniqueFd>(fds[0]), base::UniqueFd(fds[1])};
}

absl::Status Send(DescriptorsInFlight* in_flight, const std::string& tenant, const Ends& ends) {
  const std::array<std::byte, 1> message = {};
  const std::array<int, 1> fds = {0};
  return in_flight->Send(tenant, ends.daemon, message, fds);
}

void ReadOne(const Ends& ends) {
  char byte;
  ASSERT_EQ(::recv(ends.client.get(), &byte, 1, 0), 1);
}

TEST(DescriptorsInFlight, UnreadDescriptors_AreCountedUpToTheTenantsShare) {
  Limits limits(SharesWith(3));
  DescriptorsInFlight in_flight(&limits);
  const Ends a = Connect();
  const Ends b = Connect();
  ASSERT_TRUE(Send(&in_flight, "uid:1", a).ok());
  ASSERT_TRUE(Send(&in_flight, "uid:1", a).ok());
  ASSERT_TRUE(Send(&in_flight, "uid:1", b).ok());
  const absl::Status status = Send(&in_flight, "uid:1", b);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("uid:1 has 3 descriptors to take from its attach sockets"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("LimitNOFILE="));
  EXPECT_TRUE(Send(&in_flight, "uid:2", Connect()).ok()) << "another tenant has its own share";
}

TEST(DescriptorsInFlight, ReadDescriptors_AreNotCounted) {
  Limits limits(SharesWith(2));
  DescriptorsInFlight in_flight(&limits);
  const Ends a = Connect();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(Send(&in_flight, "uid:1", a).ok());
    ReadOne(a);
  }
  EXPECT_EQ(in_flight.Count("uid:1"), 0u);
}

TEST(DescriptorsInFlight, SocketThatTheDaemonGaveUp_IsCountedUntilItsReaderIsGone) {
  Limits limits(SharesWith(2));
  DescriptorsInFlight in_flight(&limits);
  Ends a = Connect();
  ASSERT_TRUE(Send(&in_flight, "uid:1", a).ok());
  ::shutdown(a.daemon->get(), SHUT_RDWR);
  a.daemon.reset();
  EXPECT_EQ(in_flight.Count("uid:1"), 1u);
  a.client.Reset();
  EXPECT_EQ(in_flight.Count("uid:1"), 0u);
}

}  // namespace
}  // namespace geminid::service
