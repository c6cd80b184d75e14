#include <gtest/gtest.h>

#include "daemon/gpus/gpus.h"

namespace geminid::gpus {
namespace {

TEST(ScrubRule, OneTenantsMemory_IsNotScrubbedForIt) {
  ScrubRule rule(/*had_other_daemons=*/false);
  EXPECT_FALSE(rule.MustScrubFor("uid:1"));
  EXPECT_FALSE(rule.MustScrubFor("uid:1"));
}

TEST(ScrubRule, SecondTenant_HasAllMemoryScrubbedFromThenOn) {
  ScrubRule rule(/*had_other_daemons=*/false);
  EXPECT_FALSE(rule.MustScrubFor("uid:1"));
  EXPECT_TRUE(rule.MustScrubFor("uid:2"));
  EXPECT_TRUE(rule.MustScrubFor("uid:2"));
  EXPECT_TRUE(rule.MustScrubFor("uid:1"));
}

TEST(ScrubRule, AfterAnotherDaemon_AllMemoryIsScrubbedFromTheFirstTenantOn) {
  ScrubRule rule(/*had_other_daemons=*/true);
  EXPECT_TRUE(rule.MustScrubFor("uid:1"));
  EXPECT_TRUE(rule.MustScrubFor("uid:1"));
}

}  // namespace
}  // namespace geminid::gpus
