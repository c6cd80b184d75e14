#include "daemon/service/entry/reloader.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "daemon/config/memory_defaults.h"
#include "daemon/os/event_loop.h"

namespace geminid::service {
namespace {

config::Settings With(std::map<std::string, std::string> flags) {
  config::SettingsSources sources;
  sources.flags = std::move(flags);
  sources.environment = [](const std::string&) { return std::nullopt; };
  config::Settings settings = *config::ResolveSettings(sources);
  EXPECT_TRUE(config::FillInMemory({.total_bytes = uint64_t{8} << 30}, &settings).ok());
  return settings;
}

class ReloaderTest : public ::testing::Test {
 protected:
  ReloaderTest() {
    SessionHubOptions options;
    options.limits = &limits_;
    options.machine = os::ReadMachine(os::SystemNuma());
    options.engine.host_capacity_bytes = 1 << 20;
    options.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, 1 << 20)};
    hub_ = *SessionHub::Create(options);
    reloader_.Begin(hub_.get(), &gpus_);
  }

  absl::StatusOr<config::Settings> next_ = With({});
  Limits limits_{config::TenantShares{}};
  Vitals vitals_;
  const std::unique_ptr<os::EventLoop> loop_ = *os::EventLoop::Create();
  gpus::Gpus gpus_{{}, {}, {}, loop_.get()};
  std::unique_ptr<SessionHub> hub_;
  Reloader reloader_{With({}), [this] { return next_; }, &limits_, &vitals_};
};

TEST_F(ReloaderTest, Settings_OfTheStartAreInForce) {
  EXPECT_EQ(reloader_.in_force().Get().keep_time, absl::Minutes(10));
  EXPECT_TRUE(vitals_.last_reload_good.load());
  EXPECT_GT(vitals_.last_good_reload_seconds.load(), 0);
}

TEST_F(ReloaderTest, SettingsThatMayChange_AreInForceEverywhere) {
  next_ = With({{"keep_time", "1h"}});
  next_->shares.calls = 7;
  reloader_.Reload();
  EXPECT_EQ(reloader_.in_force().Get().keep_time, absl::Hours(1));
  EXPECT_EQ(limits_.Get().calls, 7u);
  EXPECT_TRUE(vitals_.last_reload_good.load());
}

TEST_F(ReloaderTest, SettingsThatNeedARestart_StayAsTheyWere) {
  next_ = With({{"socket", "/elsewhere"}});
  const std::string socket = reloader_.in_force().Get().socket;
  reloader_.Reload();
  EXPECT_EQ(reloader_.in_force().Get().socket, socket);
  EXPECT_TRUE(vitals_.last_reload_good.load());
}

TEST_F(ReloaderTest, SettingsThatCannotBeRead_ChangeNothingUntilTheyCan) {
  next_ = absl::InvalidArgumentError("line 3: no such key");
  const double before = vitals_.last_good_reload_seconds.load();
  reloader_.Reload();
  EXPECT_FALSE(vitals_.last_reload_good.load());
  EXPECT_EQ(vitals_.last_good_reload_seconds.load(), before);
  EXPECT_EQ(reloader_.in_force().Get().keep_time, absl::Minutes(10));
  next_ = With({});
  reloader_.Reload();
  EXPECT_TRUE(vitals_.last_reload_good.load());
}

TEST_F(ReloaderTest, GuaranteesBeyondTheMachine_ChangeNothing) {
  next_ = With({{"keep_time", "1h"}});
  next_->quotas = {{.tenant = "uid:1", .guaranteed_host_bytes = uint64_t{1} << 40}};
  reloader_.Reload();
  EXPECT_FALSE(vitals_.last_reload_good.load());
  EXPECT_EQ(reloader_.in_force().Get().keep_time, absl::Minutes(10));
}

TEST_F(ReloaderTest, DaemonWithNothingToRead_StaysAsItIs) {
  Reloader reloader(With({}), nullptr, &limits_, &vitals_);
  reloader.Begin(hub_.get(), &gpus_);
  reloader.Reload();
  EXPECT_TRUE(vitals_.last_reload_good.load());
}

}  // namespace
}  // namespace geminid::service
