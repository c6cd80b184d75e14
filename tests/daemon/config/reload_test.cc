#include "daemon/config/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/memory_defaults.h"

namespace geminid::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Settings With(std::map<std::string, std::string> flags) {
  SettingsSources sources;
  sources.flags = std::move(flags);
  sources.environment = [](const std::string&) { return std::nullopt; };
  const absl::StatusOr<Settings> settings = ResolveSettings(sources);
  EXPECT_TRUE(settings.ok()) << settings.status();
  return *settings;
}

std::string ValueOf(const Settings& settings, const std::string& key) {
  for (const Origin& origin : settings.origins) {
    if (origin.key == key) return origin.value;
  }
  return "no such key";
}

TEST(MergeReload, TheSameAgain_ChangesNothing) {
  Settings now = With({});
  ASSERT_TRUE(FillInMemory({.total_bytes = uint64_t{8} << 30}, &now).ok());
  const Reload reload = MergeReload(now, With({}));
  EXPECT_THAT(reload.changed, IsEmpty());
  EXPECT_THAT(reload.needs_restart, IsEmpty());
  EXPECT_EQ(reload.settings.host_bytes, now.host_bytes);
}

TEST(MergeReload, WhatCanChange_IsInForce) {
  const Reload reload = MergeReload(
      With({}), With({{"log_level", "debug"}, {"log_format", "json"}, {"keep_time", "1h"}}));
  EXPECT_THAT(reload.changed, ElementsAre("keep_time: 10m -> 1h", "log_format: text -> json",
                                          "log_level: info -> debug"));
  EXPECT_THAT(reload.needs_restart, IsEmpty());
  EXPECT_EQ(reload.settings.log_level, os::LogLevel::kDebug);
  EXPECT_EQ(reload.settings.keep_time, absl::Hours(1));
  EXPECT_EQ(ValueOf(reload.settings, "log_level"), "debug");
  EXPECT_EQ(reload.settings.effective.log_level(), "debug");
}

TEST(MergeReload, WhatJobsWaitBy_IsInForce) {
  const Reload reload = MergeReload(With({}), With({{"gather_time", "5s"},
                                                    {"queue_ageing", "1m"},
                                                    {"link_bytes_in_flight", "1MiB"},
                                                    {"yield_time", "2m"}}));
  EXPECT_THAT(reload.changed,
              ElementsAre("gather_time: 60s -> 5s", "link_bytes_in_flight: 64MiB -> 1MiB",
                          "queue_ageing: 30m -> 1m", "yield_time: 60s -> 2m"));
  EXPECT_THAT(reload.needs_restart, IsEmpty());
  EXPECT_EQ(reload.settings.gather_time, absl::Seconds(5));
  EXPECT_EQ(reload.settings.queue_ageing, absl::Minutes(1));
  EXPECT_EQ(reload.settings.yield_time, absl::Minutes(2));
  EXPECT_EQ(reload.settings.link_bytes_in_flight, uint64_t{1} << 20);
}

TEST(MergeReload, SharesOfATenant_AreInForce) {
  Settings read = With({});
  read.shares.calls = 7;
  SetShares(read.shares, &read.effective);
  for (Origin& origin : read.origins) {
    if (origin.key == kCalls.key) origin.value = "7";
  }
  const Reload reload = MergeReload(With({}), read);
  EXPECT_THAT(reload.changed, ElementsAre("calls_per_tenant: 256 -> 7"));
  EXPECT_THAT(reload.needs_restart, IsEmpty());
  EXPECT_EQ(reload.settings.shares.calls, 7u);
  EXPECT_EQ(reload.settings.effective.calls_per_tenant(), 7u);
}

TEST(MergeReload, Quotas_AreReplaced) {
  Settings read = With({});
  read.quotas.emplace_back().tenant = "uid:7";
  read.origins.push_back({"quotas[0]", "tenant: \"uid:7\"", "file g:2"});
  const Reload reload = MergeReload(With({}), read);
  ASSERT_EQ(reload.settings.quotas.size(), 1u);
  EXPECT_THAT(reload.changed, ElementsAre("quotas[0]: none -> tenant: \"uid:7\""));
  EXPECT_THAT(MergeReload(reload.settings, With({})).settings.quotas, IsEmpty());
}

TEST(MergeReload, WhatNeedsARestart_StaysAsItWas) {
  const Reload reload = MergeReload(With({{"socket", "/a"}, {"host_memory", "1GiB"}}),
                                    With({{"socket", "/b"}, {"host_memory", "2GiB"}}));
  EXPECT_THAT(reload.changed, IsEmpty());
  EXPECT_THAT(reload.needs_restart, ElementsAre("host_memory: 1GiB -> 2GiB", "socket: /a -> /b"));
  EXPECT_EQ(reload.settings.socket, "/a");
  EXPECT_EQ(ValueOf(reload.settings, "host_memory"), "1GiB");
}

}  // namespace
}  // namespace geminid::config
