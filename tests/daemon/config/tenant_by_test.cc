#include "daemon/config/tenant_by.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::config {
namespace {

using ::testing::HasSubstr;

TEST(TenantBy, Names_AreThoseOfTheConfiguration) {
  EXPECT_EQ(*ParseTenantBy("container"), TenantBy::kContainer);
  EXPECT_EQ(*ParseTenantBy("uid"), TenantBy::kUid);
  EXPECT_EQ(*ParseTenantBy("uid_gid"), TenantBy::kUidGid);
  EXPECT_EQ(*ParseTenantBy("cgroup"), TenantBy::kCgroup);
  EXPECT_THAT(std::string(ParseTenantBy("uid-gid").status().message()),
              HasSubstr("did you mean 'uid_gid'?"));
}

TEST(CheckTenant, EachKindOfTenant_HasItsForm) {
  for (const char* good :
       {"*", "uid:0", "uid:4294967295", "uid:1000,gid:100", "subuid:1000", "uid:1000,subgid:1000",
        "subuid:alice,gid:7", "cgroup:/", "cgroup:/kubepods.slice/pod 1"}) {
    EXPECT_TRUE(CheckTenant(good).ok()) << good;
  }
  for (const char* bad :
       {"", "bob", "uid:", "uid:-1", "uid:x", "uid:1,", "uid:1,gid:", "uid:1,gid:2,gid:3", "gid:1",
        "subuid:", "subuid:a/b", "subgid:1", "cgroup:", "cgroup:docker", "**"}) {
    EXPECT_FALSE(CheckTenant(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace geminid::config
