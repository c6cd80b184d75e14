// The attach socket from a client's point of view.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/config/settings.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/daemon.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::Bytes;
using ::geminid::testing::DaemonEnv;
using ::geminid::testing::DaemonEnvOptions;
using ::geminid::testing::GoodHello;
using ::geminid::testing::RawClient;
using ::geminid::testing::RawMessage;
using ::geminid::testing::Receive;
using ::testing::HasSubstr;

class Attach : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(env_.Start().ok()); }

  base::UniqueFd Connect() {
    absl::StatusOr<base::UniqueFd> fd =
        os::ConnectSeqpacket(absl::StrCat(env_.socket(), shm::kAttachSuffix));
    EXPECT_TRUE(fd.ok()) << fd.status();
    return *std::move(fd);
  }

  // The daemon's answer to `bytes`, which must be a refusal followed by the end.
  shm::Welcome Refusal(std::span<const std::byte> bytes) {
    const base::UniqueFd fd = Connect();
    EXPECT_TRUE(os::SendMessage(fd, bytes, {}).ok());
    const RawMessage answer = Receive(fd);
    shm::Welcome welcome = {};
    EXPECT_EQ(answer.bytes.size(), sizeof(welcome));
    EXPECT_TRUE(answer.fds.empty());
    if (answer.bytes.size() == sizeof(welcome)) {
      std::memcpy(&welcome, answer.bytes.data(), sizeof(welcome));
    }
    EXPECT_EQ(welcome.magic, shm::kWelcomeMagic);
    EXPECT_NE(welcome.status, 0u);
    EXPECT_TRUE(Receive(fd).end);
    return welcome;
  }

  DaemonEnv env_;
};

TEST_F(Attach, GoodHello_IsWelcomed) {
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->welcome().magic, shm::kWelcomeMagic);
  EXPECT_EQ((*client)->welcome().protocol_version, shm::kProtocolVersion);
  EXPECT_NE((*client)->welcome().session_id, 0u);
  EXPECT_EQ((*client)->welcome().daemon_epoch, 1u);
  EXPECT_EQ((*client)->state()->header.magic, shm::kStateMagic);
  EXPECT_EQ((*client)->state()->header.session_id, (*client)->welcome().session_id);
  EXPECT_EQ((*client)->client()->header.magic, shm::kClientMagic);
}

TEST_F(Attach, StateSegment_IsReadOnlyForTheClient) {
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, (*client)->fds()[0].get(), 0),
            MAP_FAILED);
}

TEST_F(Attach, Sessions_GetDifferentTokensAndIds) {
  absl::StatusOr<std::unique_ptr<RawClient>> a = RawClient::Attach(env_.socket());
  absl::StatusOr<std::unique_ptr<RawClient>> b = RawClient::Attach(env_.socket());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)->welcome().session_id, (*b)->welcome().session_id);
  EXPECT_NE(std::memcmp((*a)->welcome().token, (*b)->welcome().token, shm::kTokenBytes), 0);
}

TEST_F(Attach, OtherVersion_IsToldBothVersions) {
  shm::Hello hello = GoodHello();
  hello.protocol_version = 77;
  const shm::Welcome welcome = Refusal(Bytes(hello));
  EXPECT_EQ(welcome.status, static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition));
  EXPECT_EQ(welcome.protocol_version, shm::kProtocolVersion);
  EXPECT_THAT(welcome.error, HasSubstr("version 3, the client version 77"));
}

TEST_F(Attach, OtherVersionWithALongerHello_IsToldBothVersions) {
  std::array<std::byte, 512> long_hello = {};
  shm::Hello hello = GoodHello();
  hello.protocol_version = 77;
  std::memcpy(long_hello.data(), &hello, sizeof(hello));
  EXPECT_THAT(Refusal(long_hello).error, HasSubstr("version 3, the client version 77"));
}

TEST_F(Attach, ClientOfTheNextRelease_IsWelcomedInThisVersion) {
  std::array<std::byte, 512> long_hello = {};
  shm::Hello hello = GoodHello();
  hello.protocol_version = shm::kProtocolVersion + 1;
  hello.oldest_protocol_version = shm::kProtocolVersion;
  std::memcpy(long_hello.data(), &hello, sizeof(hello));
  const base::UniqueFd fd = Connect();
  EXPECT_TRUE(os::SendMessage(fd, long_hello, {}).ok());
  const RawMessage answer = Receive(fd);
  shm::Welcome welcome = {};
  ASSERT_EQ(answer.bytes.size(), sizeof(welcome));
  std::memcpy(&welcome, answer.bytes.data(), sizeof(welcome));
  EXPECT_EQ(welcome.status, 0u) << welcome.error;
  EXPECT_EQ(welcome.protocol_version, shm::kProtocolVersion);
}

// The hello of the first release, 160 bytes, and the refusal that it reads: 448 bytes with the text
// at 64.
TEST_F(Attach, ClientOfVersionOne_CanReadWhyItIsRefused) {
  std::array<std::byte, 160> old = {};
  const std::array<uint32_t, 3> prefix = {shm::kHelloMagic, 1, 1};
  std::memcpy(old.data(), prefix.data(), sizeof(prefix));
  const shm::Welcome welcome = Refusal(old);
  static_assert(sizeof(welcome) == 448 && offsetof(shm::Welcome, error) == 64);
  EXPECT_THAT(welcome.error,
              HasSubstr("version 3, the client version 1; install the same release"));
}

TEST_F(Attach, ShortLongAndGarbage_AreRefused) {
  const shm::Hello hello = GoodHello();
  Refusal(Bytes(hello).first(1));
  Refusal(Bytes(hello).first(sizeof(hello) - 1));
  std::array<std::byte, sizeof(hello) + 1> longer = {};
  std::memcpy(longer.data(), &hello, sizeof(hello));
  EXPECT_THAT(Refusal(longer).error, HasSubstr("a hello of 233 bytes; expected 232"));
  std::array<std::byte, 100000> garbage;
  garbage.fill(std::byte{0xa5});
  Refusal(garbage);
  // The daemon still serves.
  EXPECT_TRUE(RawClient::Attach(env_.socket()).ok());
}

TEST_F(Attach, HelloWithDescriptors_IsRefused) {
  const base::UniqueFd fd = Connect();
  const shm::Hello hello = GoodHello();
  const std::array<int, 2> fds = {0, 1};
  const absl::Status sent = os::SendMessage(fd, Bytes(hello), fds);
  EXPECT_EQ(sent.ok(), !os::RefusesDescriptors()) << sent;
  if (!sent.ok()) return;  // the kernel refuses it
  const RawMessage answer = Receive(fd);
  ASSERT_EQ(answer.bytes.size(), sizeof(shm::Welcome));
  EXPECT_TRUE(answer.fds.empty());
}

// Closing a socket that lingers takes as long as its owner has set.
TEST_F(Attach, DescriptorThatTakesLongToClose_HangsNobody) {
  if (!os::RefusesDescriptors())
    GTEST_SKIP() << "needs Linux 6.16: docs/security.md says what else";
  const base::UniqueFd slow = geminid::testing::SocketThatLingers(1);
  for (const char* suffix : {shm::kAttachSuffix, ""}) {
    const int type = *suffix == '\0' ? SOCK_STREAM : SOCK_SEQPACKET;
    absl::StatusOr<base::UniqueFd> fd = os::ConnectUnix(type, absl::StrCat(env_.socket(), suffix));
    ASSERT_TRUE(fd.ok()) << fd.status();
    const std::array<int, 1> fds = {slow.get()};
    EXPECT_FALSE(os::SendMessage(*fd, Bytes(GoodHello()), fds).ok());
  }
  EXPECT_TRUE(RawClient::Attach(env_.socket()).ok());
}

TEST_F(Attach, ManySilentConnections_DoNotKeepOthersOut) {
  std::vector<base::UniqueFd> silent;
  for (size_t i = 0; i < 3 * config::TenantShares().handshakes; ++i) silent.push_back(Connect());
  EXPECT_TRUE(RawClient::Attach(env_.socket()).ok());
  const RawMessage answer = Receive(silent.front());
  ASSERT_EQ(answer.bytes.size(), sizeof(shm::Welcome));
  shm::Welcome welcome;
  std::memcpy(&welcome, answer.bytes.data(), sizeof(welcome));
  EXPECT_THAT(welcome.error, HasSubstr(absl::StrCat("uid:", ::getuid())));
  EXPECT_THAT(welcome.error, HasSubstr("send the hello at once"));
}

// A busy machine exceeds this rate.
TEST_F(Attach, TenantThatAttachesWithoutPause_IsToldItsRate) {
  env_.Stop();
  DaemonEnvOptions options;
  options.shares.attaches_per_second = 1;
  ASSERT_TRUE(env_.Start(options).ok());
  shm::Hello bad = GoodHello();
  bad.rank = -1;
  const auto begin = std::chrono::steady_clock::now();
  std::string error;
  int tried = 0;
  while (error.empty()) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    ASSERT_LE(tried, config::kAttachBurstSeconds + seconds.count() + 1);
    const absl::Status status = RawClient::Attach(env_.socket(), bad).status();
    if (absl::IsResourceExhausted(status)) error = std::string(status.message());
    ++tried;
  }
  EXPECT_GT(tried, config::kAttachBurstSeconds);
  EXPECT_THAT(error, HasSubstr(absl::StrCat("uid:", ::getuid(), " attaches more than 1 times")));
}

TEST_F(Attach, SecondMessage_EndsTheSession) {
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
  ASSERT_TRUE(client.ok());
  const shm::Hello hello = GoodHello();
  ASSERT_TRUE(os::SendMessage((*client)->connection(), Bytes(hello), {}).ok());
  EXPECT_TRUE(Receive((*client)->connection()).end);
  EXPECT_EQ((*client)->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kGone));
}

TEST_F(Attach, Restart_RaisesTheEpoch) {
  env_.Stop();
  ASSERT_TRUE(env_.Start().ok());
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->welcome().daemon_epoch, 2u);
}

TEST_F(Attach, Stop_TellsTheClients) {
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(env_.socket());
  ASSERT_TRUE(client.ok());
  env_.Stop();
  EXPECT_EQ((*client)->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kGone));
  EXPECT_TRUE(Receive((*client)->connection()).end);
  EXPECT_NE(::access(env_.socket().c_str(), F_OK), 0);
  EXPECT_NE(::access(absl::StrCat(env_.socket(), shm::kAttachSuffix).c_str(), F_OK), 0);
}

// --- the socket's path ---------------------------------------------------------------------------

config::Settings SettingsFor(const std::string& socket) {
  absl::StatusOr<config::Settings> settings =
      config::ResolveSettings({.config_path = "",
                               .flags = {{"socket", socket}, {"log_level", "error"}},
                               .environment = [](const std::string&) { return std::nullopt; }});
  EXPECT_TRUE(settings.ok()) << settings.status();
  return *settings;
}

TEST(SocketPath, StaleSockets_AreReplaced) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  ASSERT_TRUE(os::ListenSeqpacket(path, 0600, 1).ok());
  ASSERT_TRUE(os::ListenSeqpacket(path + ".attach", 0600, 1).ok());
  EXPECT_TRUE(Daemon::Start(SettingsFor(path), DaemonOptions()).ok());
}

TEST(SocketPath, OrdinaryFile_IsRefusedAndKept) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  std::ofstream(path) << "precious";
  EXPECT_EQ(Daemon::Start(SettingsFor(path), DaemonOptions()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  std::ifstream file(path);
  std::string word;
  file >> word;
  EXPECT_EQ(word, "precious");
}

TEST(SocketPath, SecondDaemon_IsRefusedAndTheFirstServesOn) {
  DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  const absl::Status status = Daemon::Start(SettingsFor(env.socket()), DaemonOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("pid ", ::getpid())));
  EXPECT_TRUE(RawClient::Attach(env.socket()).ok());
}

TEST(SocketPath, Mode_IsTheConfiguredOne) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/s";
  config::Settings settings = SettingsFor(path);
  settings.socket_mode = 0640;
  absl::StatusOr<std::unique_ptr<Daemon>> daemon = Daemon::Start(settings, DaemonOptions());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  for (const std::string& socket : {path, path + ".attach"}) {
    struct stat facts;
    ASSERT_EQ(::lstat(socket.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777u, 0640u) << socket;
  }
}

TEST(SocketPath, OddCharacters_Work) {
  base::TemporaryFolder folder;
  const std::string path = folder.path() + "/a b%20:c";
  absl::StatusOr<std::unique_ptr<Daemon>> daemon =
      Daemon::Start(SettingsFor(path), DaemonOptions());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  struct stat facts;
  EXPECT_EQ(::lstat(path.c_str(), &facts), 0);
}

}  // namespace
}  // namespace geminid::service
