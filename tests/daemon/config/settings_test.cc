#include "daemon/config/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/base/temporary_folder.h"

namespace geminid::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest() {
    sources_.environment = [this](const std::string& name) -> std::optional<std::string> {
      const auto found = environment_.find(name);
      if (found == environment_.end()) return std::nullopt;
      return found->second;
    };
  }

  std::string WriteFile(const std::string& text) {
    const std::string path = folder_.path() + "/g.textproto";
    std::ofstream(path) << text;
    sources_.config_path = path;
    return path;
  }

  std::string Error() { return std::string(ResolveSettings(sources_).status().message()); }

  static Origin OriginOf(const Settings& settings, const std::string& key) {
    for (const Origin& origin : settings.origins) {
      if (origin.key == key) return origin;
    }
    return {};
  }

  base::TemporaryFolder folder_;
  std::map<std::string, std::string> environment_;
  SettingsSources sources_;
};

TEST_F(SettingsTest, Nothing_GivesTheBuiltIn) {
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->socket, "/run/geminid/geminid.sock");
  EXPECT_EQ(settings->socket_mode, 0660u);
  EXPECT_EQ(settings->keep_time, absl::Minutes(10));
  EXPECT_FALSE(settings->host_bytes.has_value());
  EXPECT_EQ(settings->metrics_host, "127.0.0.1");
  EXPECT_EQ(settings->metrics_port, 9464);
  EXPECT_TRUE(settings->metrics_built_in);
  EXPECT_EQ(settings->bytes_in_flight, uint64_t{64} << 20);
  EXPECT_EQ(settings->sessions, 512u);
  EXPECT_EQ(settings->chunks, 262144u);
  EXPECT_EQ(OriginOf(*settings, "socket").origin, "built-in");
}

TEST_F(SettingsTest, Precedence_FlagEnvironmentFileBuiltIn) {
  const std::string path = WriteFile(
      "config_version: 1\nsocket: \"/f\"\nlog_level: \"debug\"\nhost_memory: \"1GiB\"\n"
      "huge_pages: false\n");
  environment_ = {{"GEMINID_SOCKET", "/e"}, {"GEMINID_LOG_LEVEL", "error"}};
  sources_.flags = {{"socket", "/g"}};
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->socket, "/g");
  EXPECT_EQ(settings->log_level, os::LogLevel::kError);
  EXPECT_EQ(settings->host_bytes, uint64_t{1} << 30);
  EXPECT_FALSE(settings->huge_pages);
  EXPECT_EQ(OriginOf(*settings, "socket").origin, "flag --socket");
  EXPECT_EQ(OriginOf(*settings, "log_level").origin, "environment GEMINID_LOG_LEVEL");
  EXPECT_EQ(OriginOf(*settings, "host_memory").origin, "file " + path + ":4");
  EXPECT_EQ(OriginOf(*settings, "huge_pages").value, "false");
  EXPECT_EQ(OriginOf(*settings, "huge_pages").origin, "file " + path + ":5");
  EXPECT_EQ(OriginOf(*settings, "keep_time").origin, "built-in");
  EXPECT_EQ(settings->effective.socket(), "/g");
}

TEST_F(SettingsTest, FileOfTheEnvironment_IsReadUnlessAFlagNamesOne) {
  const std::string path = WriteFile("config_version: 1 socket: \"/f\"");
  sources_.config_path = "";
  environment_ = {{"GEMINID_CONFIG", path}};
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->socket, "/f");
}

TEST_F(SettingsTest, BadValuesInAFile_AreAllReportedWithTheirPlaces) {
  const std::string path = WriteFile(
      "config_version: 2\nhost_memory: \"64GB/s\"\n  keep_time: \"-1s\"\nlog_level: \"inof\"\n"
      "socket_mode: 660\nmetrics_listen: \"localhost\"\ntickets_in_flight: 33\n"
      "quotas {\n  tenant: \"bob\"\n}\n");
  const std::string error = Error();
  EXPECT_THAT(error, HasSubstr(path + ":1:1: config_version: 2 is not known"));
  EXPECT_THAT(error, HasSubstr(path + ":2:1: host_memory: '64GB/s' is not a size"));
  EXPECT_THAT(error, HasSubstr(path + ":3:3: keep_time: '-1s' is not a time"));
  EXPECT_THAT(error, HasSubstr(path + ":4:1: log_level: 'inof' is not debug"));
  EXPECT_THAT(error, HasSubstr("did you mean 'info'?"));
  EXPECT_THAT(error, HasSubstr(path + ":5:1: socket_mode: '660' is not a permission"));
  EXPECT_THAT(error, HasSubstr(path + ":6:1: metrics_listen: 'localhost' is not ADDRESS:PORT"));
  EXPECT_THAT(error, HasSubstr(path + ":7:1: tickets_in_flight: 33 is not from 1 to 32"));
  EXPECT_THAT(error, HasSubstr(path + ":9:3: quotas[0].tenant: tenant 'bob' is not uid:NUMBER"));
}

TEST_F(SettingsTest, LimitsOfAllTenants_HaveBounds) {
  const std::string path = WriteFile("config_version: 1\nsessions: 1\nchunks: 20000000\n");
  const std::string error = Error();
  EXPECT_THAT(error, HasSubstr(path + ":2:1: sessions: 1 is not from 2 to 4096"));
  EXPECT_THAT(error, HasSubstr(path + ":3:1: chunks: 20000000 is not from 2 to 16777216"));
}

TEST_F(SettingsTest, EveryShareOfATenant_CanBeSetAndHasBounds) {
  for (const ShareKey& key : kShareKeys) {
    const std::string name = key.key;
    const std::string path = WriteFile("config_version: 1\n" + name + ": 7\n");
    const absl::StatusOr<Settings> settings = ResolveSettings(sources_);
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_EQ(settings->shares.*key.value, 7u) << name;
    EXPECT_EQ(OriginOf(*settings, name).origin, "file " + path + ":2");
    WriteFile("config_version: 1\n" + name + ": 1000001\n");
    EXPECT_THAT(Error(), HasSubstr(path + ":2:1: " + name + ": 1000001 is not from "));
  }
}

TEST_F(SettingsTest, MoreDeviceMemoryThanAnArenaCanHave_IsRefused) {
  sources_.flags = {{"device_memory", "16TiB"}};
  EXPECT_TRUE(ResolveSettings(sources_).ok());
  sources_.flags = {{"device_memory", "17TiB"}};
  EXPECT_THAT(Error(), HasSubstr("flag --device-memory: it is more than an arena can have"));
}

TEST_F(SettingsTest, BadFlag_IsNamed) {
  sources_.flags = {{"host_memory", "-1"}};
  EXPECT_THAT(Error(), StartsWith("flag --host-memory: '-1' is not a size: a sign is not allowed"));
}

TEST_F(SettingsTest, BadEnvironment_IsNamed) {
  environment_ = {{"GEMINID_HOST_MEMORY", "lots"}};
  EXPECT_THAT(Error(), StartsWith("environment GEMINID_HOST_MEMORY: 'lots' is not a size"));
}

TEST_F(SettingsTest, SocketPath_LeavesRoomForTheAttachSocket) {
  sources_.flags = {{"socket", "/" + std::string(99, 'x')}};
  EXPECT_TRUE(ResolveSettings(sources_).ok());
  sources_.flags = {{"socket", "/" + std::string(100, 'x')}};
  EXPECT_THAT(Error(), HasSubstr("the path has 101 characters; at most 100"));
}

TEST_F(SettingsTest, SocketPathThatNamesNoSocket_IsRefused) {
  for (const std::string& path : {std::string("/run/\n"), std::string("/run/a\0b", 8)}) {
    sources_.flags = {{"socket", path}};
    EXPECT_THAT(Error(), HasSubstr("has a control character"));
  }
  sources_.flags = {{"socket", "/run/geminid/"}};
  EXPECT_THAT(Error(), HasSubstr("'/run/geminid/' names a folder"));
}

TEST_F(SettingsTest, DeviceWithoutMemory_IsRefused) {
  sources_.flags = {{"device_memory", "0"}};
  EXPECT_THAT(Error(), HasSubstr("flag --device-memory: a device of 0 bytes serves no rank"));
  sources_.flags = {{"device", "host:0=0"}};
  EXPECT_THAT(Error(), HasSubstr("a device of 0 bytes serves no rank"));
}

TEST_F(SettingsTest, MetricsListen_Forms) {
  sources_.flags = {{"metrics_listen", "127.0.0.1:9464"}};
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->metrics_host, "127.0.0.1");
  EXPECT_EQ(settings->metrics_port, 9464);
  EXPECT_FALSE(settings->metrics_built_in) << "somebody asked for it";
  for (const char* none : {"off", ""}) {
    sources_.flags = {{"metrics_listen", none}};
    settings = ResolveSettings(sources_);
    ASSERT_TRUE(settings.ok()) << settings.status();
    EXPECT_EQ(settings->metrics_host, "") << none;
  }
  sources_.flags = {{"metrics_listen", "[::1]:0"}};
  settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->metrics_host, "::1");
  for (const char* bad : {"9464", ":9464", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1"}) {
    sources_.flags = {{"metrics_listen", bad}};
    EXPECT_FALSE(ResolveSettings(sources_).ok()) << bad;
  }
  for (const char* name : {"localhost:9464", "*:9464", "127.0.0.1.:9464"}) {
    sources_.flags = {{"metrics_listen", name}};
    EXPECT_THAT(Error(), HasSubstr("is not a numeric address; write 127.0.0.1")) << name;
  }
}

TEST_F(SettingsTest, Quotas_AreParsedAndUnique) {
  WriteFile(
      "config_version: 1 quotas { tenant: \"*\" host_memory: \"4GiB\" } "
      "quotas { tenant: \"uid:7\" device_memory: \"1GiB\" disk: \"2TiB\" }");
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->quotas.size(), 2u);
  EXPECT_EQ(settings->quotas[0].host_bytes, uint64_t{4} << 30);
  EXPECT_FALSE(settings->quotas[0].device_bytes.has_value());
  EXPECT_FALSE(settings->quotas[0].disk_bytes.has_value());
  EXPECT_EQ(settings->quotas[1].disk_bytes, uint64_t{2} << 40);
  WriteFile("config_version: 1 quotas { tenant: \"*\" } quotas { tenant: \"*\" }");
  EXPECT_THAT(Error(), HasSubstr("'*' is given twice"));
}

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST_F(SettingsTest, DeviceMemory_IsShortForOneHostDevice) {
  sources_.flags = {{"device_memory", "2GiB"}};
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->devices.size(), 1u);
  EXPECT_EQ(settings->devices[0].bytes, 2 * kGiB);
  EXPECT_EQ(settings->devices[0].kind, shm::DeviceKind::kHost);
  EXPECT_EQ(settings->devices[0].numa_node, shm::kNoNumaNode);
}

TEST_F(SettingsTest, Devices_AreTheSameFromFlagEnvironmentAndFile) {
  const auto expect_two = [this](const std::string& origin) {
    const absl::StatusOr<Settings> settings = ResolveSettings(sources_);
    ASSERT_TRUE(settings.ok()) << settings.status();
    ASSERT_EQ(settings->devices.size(), 2u);
    EXPECT_EQ(settings->devices[0].bytes, 8 * kGiB);
    EXPECT_EQ(settings->devices[1].bytes, 4 * kGiB);
    EXPECT_EQ(settings->devices[1].numa_node, 1);
    EXPECT_EQ(OriginOf(*settings, "device[1]").value, "host:1=4GiB@1");
    EXPECT_EQ(OriginOf(*settings, "device[1]").origin, origin);
    EXPECT_EQ(settings->effective.device_size(), 2);
  };
  const std::string path = WriteFile(
      "config_version: 1\ndevice { index: 0 kind: \"host\" memory: \"8GiB\" }\n"
      "device { index: 1 kind: \"host\" memory: \"4GiB\" numa_node: 1 }\n");
  expect_two("file " + path + ":3");
  environment_ = {{"GEMINID_DEVICES", "host:0=8GiB,host:1=4GiB@1"}};
  expect_two("environment GEMINID_DEVICES");
  sources_.flags = {{"device", "host:0=8GiB,host:1=4GiB@1"}};
  expect_two("flag --device");
}

TEST_F(SettingsTest, DeviceAndDeviceMemoryOfOneSource_AreRefused) {
  sources_.flags = {{"device_memory", "2GiB"}, {"device", "host:0=8GiB"}};
  EXPECT_THAT(Error(), StartsWith("flag --device: device and device_memory are both given"));
  sources_.flags.clear();
  const std::string path = WriteFile(
      "config_version: 1\ndevice_memory: \"1GiB\"\n"
      "device { index: 0 kind: \"host\" memory: \"8GiB\" }\n");
  EXPECT_THAT(Error(), StartsWith(path + ":3:1: device and device_memory are both given"));
}

TEST_F(SettingsTest, DeviceOfAHigherSource_OverridesTheOthersDeviceMemory) {
  WriteFile("config_version: 1\ndevice_memory: \"1GiB\"\n");
  sources_.flags = {{"device", "host:0=8GiB"}};
  absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->devices.size(), 1u);
  EXPECT_EQ(settings->devices[0].bytes, 8 * kGiB);
  EXPECT_EQ(OriginOf(*settings, "device_memory").value, "");
  EXPECT_EQ(OriginOf(*settings, "device_memory").origin, "") << "it is in no force";
  environment_ = {{"GEMINID_DEVICES", "host:0=1GiB,host:1=1GiB"}};
  sources_.flags = {{"device_memory", "3GiB"}};
  settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  ASSERT_EQ(settings->devices.size(), 1u);
  EXPECT_EQ(settings->devices[0].bytes, 3 * kGiB);
}

TEST_F(SettingsTest, BadDevices_AreReportedWithTheirPlaces) {
  sources_.flags = {{"device", "host:0=8GiB,hots:1=8GiB"}};
  EXPECT_THAT(Error(), HasSubstr("flag --device: character 13: 'hots' is not a kind of device"));
  EXPECT_THAT(Error(), HasSubstr("did you mean 'host'?"));
  sources_.flags = {{"device", "host:0=8GiB,host:0=8GiB"}};
  EXPECT_THAT(Error(), HasSubstr("flag --device: device 0 is given twice"));
  sources_.flags = {{"device", "host:0=8GiB,host:2=8GiB"}};
  EXPECT_THAT(Error(), HasSubstr("device 2 leaves a gap: 2 devices are numbered from 0 to 1"));
  sources_.flags.clear();
  const std::string path =
      WriteFile("config_version: 1\ndevice {\n  index: 0\n  kind: \"gpu\"\n  memory: \"8Gi\"\n}\n");
  EXPECT_THAT(Error(), HasSubstr(path + ":4:3: device[0].kind: 'gpu' is not a kind of device"));
  EXPECT_THAT(Error(), HasSubstr(path + ":5:3: device[0].memory: '8Gi' is not a size"));
}

TEST_F(SettingsTest, QuotaOfADevice_NeedsThatDevice) {
  sources_.flags = {{"device", "host:0=8GiB,host:1=8GiB"}};
  WriteFile(
      "config_version: 1 quotas { tenant: \"*\" device_memory: \"4GiB\" "
      "device { index: 1 memory: \"2GiB\" } }");
  const absl::StatusOr<Settings> settings = ResolveSettings(sources_);
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->quotas[0].device_bytes, 4 * kGiB);
  EXPECT_EQ(settings->quotas[0].bytes_by_device.at(1), 2 * kGiB);
  WriteFile("config_version: 1 quotas { tenant: \"*\" device { index: 2 memory: \"2GiB\" } }");
  EXPECT_THAT(Error(), HasSubstr("quotas[0].device[0].index: there is no device 2; the last is 1"));
  WriteFile("config_version: 1 quotas { tenant: \"*\" device { index: 1 memory: \"16\" } }");
  EXPECT_THAT(Error(), HasSubstr("quotas[0].device[0].memory: '16' has no unit"));
}

TEST_F(SettingsTest, ConfigVersionOfZeroInAFile_IsRefused) {
  WriteFile("config_version: 0");
  EXPECT_THAT(Error(), HasSubstr("config_version: 0 is not known"));
}

}  // namespace
}  // namespace geminid::config
