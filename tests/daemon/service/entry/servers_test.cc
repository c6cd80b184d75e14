#include "daemon/service/entry/servers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "tests/base/temporary_folder.h"

namespace geminid::service {
namespace {

class ServersTest : public ::testing::Test {
 protected:
  ServersTest() {
    SessionHubOptions options;
    options.limits = &limits_;
    options.machine = os::ReadMachine(os::SystemNuma());
    options.engine.host_capacity_bytes = 1 << 20;
    options.engine.devices = {core::HostDevice(shm::DeviceIndex{0}, 1 << 20)};
    hub_ = *SessionHub::Create(options);
    settings_.metrics_host = "127.0.0.1";
    settings_.socket_mode = 0600;
    servers_ = std::make_unique<Servers>(Servers::Of{.hub = hub_.get(), .vitals = &vitals_});
  }

  const base::TemporaryFolder folder_;
  const DaemonOptions options_;
  SocketFiles files_ = *SocketFiles::Acquire(folder_ / "socket", options_);
  config::Settings settings_;
  Limits limits_{config::TenantShares{}};
  Vitals vitals_;
  std::unique_ptr<SessionHub> hub_;
  std::unique_ptr<Servers> servers_;
};

TEST_F(ServersTest, ThatNeverOpened_StopAtOnce) {
  EXPECT_FALSE(servers_->has_control());
  EXPECT_EQ(servers_->metrics_address(), "");
  EXPECT_TRUE(servers_->Stop());
}

TEST_F(ServersTest, Metrics_HaveAPortAndASocket) {
  ASSERT_TRUE(servers_->OpenMetrics(settings_, /*is_private=*/false, &files_).ok());
  EXPECT_TRUE(servers_->metrics_address().starts_with("127.0.0.1:"));
  EXPECT_TRUE(std::filesystem::exists(files_.metrics_socket()));
  EXPECT_TRUE(servers_->Stop());
  EXPECT_EQ(servers_->metrics_address(), "");
}

TEST_F(ServersTest, PrivateDaemon_HasNoMetricsThatNobodyAskedFor) {
  settings_.metrics_built_in = true;
  ASSERT_TRUE(servers_->OpenMetrics(settings_, /*is_private=*/true, &files_).ok());
  EXPECT_EQ(files_.metrics_socket(), "");
  settings_.metrics_built_in = false;
  ASSERT_TRUE(servers_->OpenMetrics(settings_, /*is_private=*/true, &files_).ok());
  EXPECT_NE(servers_->metrics_address(), "");
}

}  // namespace
}  // namespace geminid::service
