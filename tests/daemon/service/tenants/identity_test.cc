#include "daemon/service/tenants/identity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "tests/base/temporary_folder.h"

namespace geminid::service {
namespace {

using config::TenantBy;

constexpr uid_t kDaemonsUser = 990;

os::Peer PeerWith(uid_t uid, gid_t gid, pid_t pid = 7) {
  os::Peer peer;
  peer.uid = uid;
  peer.gid = gid;
  peer.pid = pid;
  return peer;
}

os::ProcessPlace InContainer(const std::string& cgroup) {
  return {.in_container = true, .cgroup = cgroup};
}

TEST(IdentityOf, ByUid_GroupAndCgroupMakeNoDifference) {
  const Identity identity =
      IdentityOf(PeerWith(1000, 100), TenantBy::kUid, InContainer("/a"), kDaemonsUser);
  EXPECT_EQ(identity.tenant, "uid:1000");
  EXPECT_FALSE(identity.is_operator);
  EXPECT_TRUE(IdentityOf(PeerWith(0, 0), TenantBy::kUid, {}, kDaemonsUser).is_operator);
  EXPECT_TRUE(IdentityOf(PeerWith(kDaemonsUser, 1), TenantBy::kUid, {}, kDaemonsUser).is_operator);
}

TEST(IdentityOf, ByUidAndGid_EachGroupOfAUserIsATenant) {
  EXPECT_EQ(IdentityOf(PeerWith(1000, 100), TenantBy::kUidGid, {}, kDaemonsUser).tenant,
            "uid:1000,gid:100");
  EXPECT_EQ(IdentityOf(PeerWith(1000, 101), TenantBy::kUidGid, {}, kDaemonsUser).tenant,
            "uid:1000,gid:101");
}

// The owner of a range of ids can be 65,536 users at once.
TEST(IdentityOf, IdsOfOneOwnersRanges_AreOneTenantWhateverTellsTenantsApart) {
  const IdOwners owners = {.of_user = "1000", .of_group = "1000"};
  const os::ProcessPlace outside = {.in_container = false, .cgroup = "/user.slice"};
  for (const uid_t uid : {100000, 100001, 165535}) {
    const os::Peer peer = PeerWith(uid, uid + 7);
    EXPECT_EQ(IdentityOf(peer, TenantBy::kUid, {}, kDaemonsUser, owners).tenant, "subuid:1000");
    EXPECT_EQ(IdentityOf(peer, TenantBy::kUidGid, {}, kDaemonsUser, owners).tenant,
              "subuid:1000,subgid:1000");
    EXPECT_EQ(IdentityOf(peer, TenantBy::kContainer, outside, kDaemonsUser, owners).tenant,
              "subuid:1000");
  }
  EXPECT_EQ(IdentityOf(PeerWith(1000, 100001), TenantBy::kUidGid, {}, kDaemonsUser,
                       {.of_user = {}, .of_group = "1000"})
                .tenant,
            "uid:1000,subgid:1000");
}

// A range that was granted by mistake does not change the operator.
TEST(IdentityOf, DaemonsUserWithinARange_StaysTheOperator) {
  const Identity self = IdentityOf(PeerWith(kDaemonsUser, 1), TenantBy::kUid, {}, kDaemonsUser,
                                   {.of_user = "1000", .of_group = {}});
  EXPECT_EQ(self.tenant, "uid:990");
  EXPECT_TRUE(self.is_operator);
}

TEST(IdentityOf, ByContainer_RootOfEachContainerIsATenantAndNoOperator) {
  const Identity a =
      IdentityOf(PeerWith(0, 0), TenantBy::kContainer, InContainer("/docker/a"), kDaemonsUser);
  const Identity b =
      IdentityOf(PeerWith(0, 0), TenantBy::kContainer, InContainer("/docker/b"), kDaemonsUser);
  EXPECT_EQ(a.tenant, "cgroup:/docker/a");
  EXPECT_EQ(b.tenant, "cgroup:/docker/b");
  EXPECT_FALSE(a.is_operator);
  // A process that changes its user there stays the same tenant.
  EXPECT_EQ(IdentityOf(PeerWith(5, 5), TenantBy::kContainer, InContainer("/docker/a"), kDaemonsUser)
                .tenant,
            a.tenant);
}

TEST(IdentityOf, ByContainer_OutsideOfThemTheUserCounts) {
  const os::ProcessPlace place = {.in_container = false, .cgroup = "/system.slice/x"};
  const Identity root = IdentityOf(PeerWith(0, 0), TenantBy::kContainer, place, kDaemonsUser);
  EXPECT_EQ(root.tenant, "uid:0");
  EXPECT_TRUE(root.is_operator);
  EXPECT_FALSE(
      IdentityOf(PeerWith(1000, 1), TenantBy::kContainer, place, kDaemonsUser).is_operator);
}

TEST(IdentityOf, ByCgroup_TwoCgroupsOfOneUserAreTwoTenants) {
  const os::ProcessPlace a = {.in_container = false, .cgroup = "/a"};
  const os::ProcessPlace b = {.in_container = false, .cgroup = "/b"};
  EXPECT_EQ(IdentityOf(PeerWith(0, 0), TenantBy::kCgroup, a, kDaemonsUser).tenant, "cgroup:/a");
  EXPECT_EQ(IdentityOf(PeerWith(0, 0), TenantBy::kCgroup, b, kDaemonsUser).tenant, "cgroup:/b");
  EXPECT_TRUE(IdentityOf(PeerWith(0, 0), TenantBy::kCgroup, a, kDaemonsUser).is_operator);
}

// Otherwise a process could end at the right moment, and count as another tenant.
TEST(IdentityOf, ProcessThatHasEnded_IsNobodyElsesTenantAndNoOperator) {
  for (const TenantBy by : {TenantBy::kContainer, TenantBy::kCgroup}) {
    const Identity identity = IdentityOf(PeerWith(0, 0), by, std::nullopt, kDaemonsUser);
    EXPECT_EQ(identity.tenant, kUnresolvedTenant);
    EXPECT_FALSE(identity.is_operator);
  }
}

TEST(IdentityOf, ProcessOutsideOfTheDaemonsNamespace_IsItsUserAndNoOperator) {
  const Identity identity =
      IdentityOf(PeerWith(0, 0, 0), TenantBy::kContainer, std::nullopt, kDaemonsUser);
  EXPECT_EQ(identity.tenant, "uid:0");
  EXPECT_FALSE(identity.is_operator);
}

// A child process that connects, with `gid` if the test runs as root, and waits until it may end.
class Connected : public ::testing::Test {
 protected:
  void Connect(gid_t gid) {
    const std::string path = folder_.path() + "/s";
    absl::StatusOr<base::UniqueFd> listener = os::ListenSeqpacket(path, 0600, 1);
    ASSERT_TRUE(listener.ok());
    ASSERT_EQ(::pipe2(leash_.data(), O_CLOEXEC), 0);
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ == 0) {
      ::close(leash_[1]);
      if (::getuid() == 0 && ::setgid(gid) != 0) ::_exit(1);
      const absl::StatusOr<base::UniqueFd> fd = os::ConnectSeqpacket(path);
      char byte;
      (void)!::read(leash_[0], &byte, 1);
      ::_exit(fd.ok() ? 0 : 2);
    }
    absl::StatusOr<base::UniqueFd> connection;
    do {
      connection = os::Accept(*listener);
      ASSERT_TRUE(connection.ok());
    } while (!connection->valid());
    connection_ = *std::move(connection);
  }
  void End() {
    if (pid_ <= 0) return;
    ::close(leash_[0]);
    ::close(leash_[1]);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  void TearDown() override { End(); }

  base::TemporaryFolder folder_;
  std::array<int, 2> leash_{};
  pid_t pid_ = 0;
  base::UniqueFd connection_;
};

TEST_F(Connected, WithAnotherGroup_IsATenantOfItsOwnByGid) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to have another group";
  Connect(64003);
  const absl::StatusOr<Client> client = Clients(TenantBy::kUidGid, {}).OfCall(connection_);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(client->identity.tenant, "uid:0,gid:64003");
  EXPECT_EQ(Clients(TenantBy::kUid, {}).OfCall(connection_)->identity.tenant, "uid:0");
}

TEST_F(Connected, FromThisMachine_IsItsUserUntilItHasEnded) {
  Connect(::getgid());
  const Clients clients(TenantBy::kContainer, {});
  const std::string user = "uid:" + std::to_string(::getuid());
  EXPECT_EQ(clients.OfSession(connection_)->identity.tenant, user);
  EXPECT_EQ(clients.OfCall(connection_)->identity.tenant, user) << "remembered";
  End();
  EXPECT_EQ(Clients(TenantBy::kContainer, {}).OfCall(connection_)->identity.tenant,
            kUnresolvedTenant);
}

}  // namespace
}  // namespace geminid::service
