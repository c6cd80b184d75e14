// The daemon that the library starts if there is none.
#include "geminid/private_daemon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "geminid/session.h"
#include "tests/base/temporary_folder.h"

namespace geminid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Small options for the daemon that was built with this test.
PrivateDaemonOptions Small() {
  PrivateDaemonOptions options;
  options.arguments = {"--host-memory", "64MiB", "--device-memory", "64MiB"};
  options.timeout = absl::Seconds(60);
  return options;
}

bool IsAlive(pid_t pid) { return kill(pid, 0) == 0; }

std::string FolderOf(const PrivateDaemon& daemon) {
  return std::filesystem::path(daemon.socket()).parent_path().string();
}

std::string WriteScript(const std::string& text) {
  std::string path = "/tmp/geminid-script-XXXXXX";
  close(mkstemp(path.data()));
  std::ofstream(path) << "#!/bin/sh\n" << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(PrivateDaemon, Started_ServesAndLeavesNothingBehind) {
  std::string folder;
  pid_t pid = 0;
  {
    absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(Small());
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    folder = FolderOf(**daemon);
    pid = (*daemon)->pid();
    ConnectOptions options;
    options.socket = (*daemon)->socket();
    options.device_memory_bytes = 1 << 20;
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(options);
    ASSERT_TRUE(session.ok()) << session.status();
    EXPECT_TRUE((*session)->Allocate({{"a", ChunkKind::kGeneric, 1000, true}}).ok());
    // The daemon has the limits of its options.
    EXPECT_EQ((*session)->Allocate({{"b", ChunkKind::kGeneric, 65 << 20, true}}).status().code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_FALSE(IsAlive(pid));
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(PrivateDaemon, OfAKilledParent_EndsAndRemovesItsFolder) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(Small());
    const std::string said =
        daemon.ok() ? std::to_string((*daemon)->pid()) + " " + FolderOf(**daemon) : "failed";
    (void)!write(ends[1], said.data(), said.size());
    pause();
    _exit(0);
  }
  char said[200] = {};
  ASSERT_GT(read(ends[0], said, sizeof said - 1), 0);
  ASSERT_NE(std::string(said), "failed");
  const pid_t pid = static_cast<pid_t>(std::atoi(said));
  const std::string folder = std::string(said).substr(std::string(said).find(' ') + 1);
  EXPECT_TRUE(IsAlive(pid));
  EXPECT_TRUE(std::filesystem::exists(folder));
  kill(parent, SIGKILL);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  // The daemon's new parent reaps it at any time. The daemon removes the folder last.
  const absl::Time give_up = absl::Now() + absl::Seconds(30);
  while (std::filesystem::exists(folder) && absl::Now() < give_up) std::this_thread::yield();
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(PrivateDaemon, Fork_LeavesItToTheParent) {
  absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(Small());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  const pid_t child = fork();
  if (child == 0) {
    daemon->reset();
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(IsAlive((*daemon)->pid()));
  EXPECT_TRUE(std::filesystem::exists((*daemon)->socket()));
}

TEST(PrivateDaemon, ThatFails_ShowsItsLastWords) {
  PrivateDaemonOptions options;
  options.binary = WriteScript("echo the disk is on fire >&2; exit 3\n");
  const absl::Status status = PrivateDaemon::Start(options).status();
  std::filesystem::remove(options.binary);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("ended while starting"), HasSubstr("the disk is on fire")));
}

// As geminid does where it cannot serve.
TEST(PrivateDaemon, ThatRemovesItsFolderAndFails_ShowsItsLastWords) {
  PrivateDaemonOptions options;
  options.binary = WriteScript("echo no room >&2\nrm -r \"$(dirname \"$5\")\"\nexit 71\n");
  const absl::Status failed = PrivateDaemon::Start(options).status();
  std::filesystem::remove(options.binary);
  EXPECT_TRUE(absl::IsResourceExhausted(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("its last output:\nno room"));
}

TEST(PrivateDaemon, ThatIsNeverReady_IsGivenUp) {
  PrivateDaemonOptions options;
  options.binary = WriteScript("exec sleep 1000\n");
  options.timeout = absl::Milliseconds(50);
  const absl::Status status = PrivateDaemon::Start(options).status();
  std::filesystem::remove(options.binary);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

// A later daemon takes over the sessions. Here the first next daemon has less memory than is in
// use.
TEST(PrivateDaemon, WhoseFollowerCannotStart_HasAnotherThatKeepsTheSessions) {
  const std::string once = WriteScript("");
  std::filesystem::remove(once);
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  PrivateDaemonOptions options = Small();
  options.arguments = {"--host-memory", "64MiB"};
  options.binary = WriteScript(
      "memory=64MiB\nif [ -e " + once + " ]; then rm " + once + "; memory=2MiB; fi\nexec " +
      (self.parent_path() / "geminid").string() + " \"$@\" --device-memory $memory\n");
  absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(options);
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  ConnectOptions connect;
  connect.socket = (*daemon)->socket();
  connect.device_memory_bytes = 4 << 20;
  connect.timeout = absl::Seconds(60);
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
  ASSERT_TRUE(session.ok()) << session.status();
  const absl::StatusOr<std::vector<ChunkHandle>> chunk =
      (*session)->Allocate({{"a", ChunkKind::kGeneric, 1000, true}});
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  std::ofstream(once) << "less";
  ASSERT_EQ(kill((*daemon)->pid(), SIGKILL), 0);
  // The third daemon serves this.
  const absl::Status served =
      (*session)->Allocate({{"b", ChunkKind::kGeneric, 1000, true}}).status();
  EXPECT_TRUE(served.ok()) << served << "; the daemon's log:\n" << (*daemon)->LogTail();
  EXPECT_FALSE(std::filesystem::exists(once)) << "no start failed";
  EXPECT_THAT((*daemon)->LogTail(), HasSubstr("gives less than job"));
  EXPECT_TRUE((*session)->Use(chunk->front().id, absl::Seconds(60)).ok());
  std::filesystem::remove(options.binary);
}

// Sets a variable of the environment, and the folder of this process, until its end.
class Place {
 public:
  Place(const std::string& folder, const char* temporary)
      : before_(std::filesystem::current_path()) {
    for (const char* const name : {"XDG_RUNTIME_DIR", "TMPDIR"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) variables_.emplace_back(name, value);
      unsetenv(name);
    }
    setenv("TMPDIR", temporary, 1);
    std::filesystem::current_path(folder);
  }
  ~Place() {
    std::filesystem::current_path(before_);
    unsetenv("TMPDIR");
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  const std::filesystem::path before_;
  std::vector<std::pair<std::string, std::string>> variables_;
};

TEST(PrivateDaemon, WithRelativePaths_HasAFollowerThoughTheHostChangedItsFolder) {
  const base::TemporaryFolder folder;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  std::filesystem::create_symlink(self.parent_path() / "geminid", folder / "daemon");
  const Place place(folder.path(), ".");
  PrivateDaemonOptions options = Small();
  options.binary = "./daemon";
  std::string of_daemon;
  {
    absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(options);
    ASSERT_TRUE(daemon.ok()) << daemon.status();
    of_daemon = FolderOf(**daemon);
    EXPECT_TRUE(std::filesystem::path(of_daemon).is_absolute()) << of_daemon;
    ConnectOptions connect;
    connect.socket = (*daemon)->socket();
    connect.timeout = absl::Seconds(60);
    absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(connect);
    ASSERT_TRUE(session.ok()) << session.status();
    std::filesystem::current_path("/");
    ASSERT_EQ(kill((*daemon)->pid(), SIGKILL), 0);
    const absl::Status served =
        (*session)->Allocate({{"a", ChunkKind::kGeneric, 1000, true}}).status();
    EXPECT_TRUE(served.ok()) << served;
  }
  EXPECT_FALSE(std::filesystem::exists(of_daemon));
}

TEST(PrivateDaemon, MissingBinary_SaysWhatToSet) {
  PrivateDaemonOptions options;
  options.binary = "/nowhere/geminid";
  const absl::Status status = PrivateDaemon::Start(options).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("GEMINID_DAEMON"));
}

TEST(PrivateDaemon, SessionsWithoutASocket_ShareOne) {
  if (std::filesystem::exists("/run/geminid/geminid.sock")) GTEST_SKIP() << "one is installed";
  unsetenv("GEMINID_SOCKET");
  setenv("GEMINID_HOST_MEMORY", "64MiB", 1);
  ConnectOptions options;
  options.timeout = absl::Seconds(60);
  std::string folder;
  {
    absl::StatusOr<std::unique_ptr<Session>> first = Session::Connect(options);
    ASSERT_TRUE(first.ok()) << first.status();
    absl::StatusOr<std::unique_ptr<Session>> second = Session::Connect(options);
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ((*first)->socket(), (*second)->socket());
    EXPECT_NE((*first)->id(), (*second)->id());
    folder = std::filesystem::path((*first)->socket()).parent_path().string();
    first->reset();
    EXPECT_TRUE((*second)->Allocate({{"a", ChunkKind::kGeneric, 10, true}}).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(PrivateDaemon, MetricsPortOfTheEnvironment_IsLeftToTheDaemonThatHasIt) {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  ASSERT_GE(taken, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(taken, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string listen_at = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  setenv("GEMINID_METRICS_LISTEN", listen_at.c_str(), 1);
  const absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(Small());
  unsetenv("GEMINID_METRICS_LISTEN");
  close(taken);
  EXPECT_TRUE(daemon.ok()) << daemon.status();
}

TEST(PrivateDaemon, Environment_NamesTheSocketToUse) {
  absl::StatusOr<std::unique_ptr<PrivateDaemon>> daemon = PrivateDaemon::Start(Small());
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  setenv("GEMINID_SOCKET", (*daemon)->socket().c_str(), 1);
  absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect({});
  unsetenv("GEMINID_SOCKET");
  ASSERT_TRUE(session.ok()) << session.status();
  EXPECT_EQ((*session)->socket(), (*daemon)->socket());
}

}  // namespace
}  // namespace geminid
