// The program itself: exit codes, signals, the private daemon, and its work when idle.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "daemon/os/unix_socket.h"
#include "geminid/v1/admin.grpc.pb.h"
#include "geminid/v1/chunk.grpc.pb.h"
#include "proto/shm/ring.h"
#include "tests/base/temporary_folder.h"
#include "tests/daemon_env/daemon_env.h"
#include "tests/daemon_env/raw_client.h"

namespace geminid::service {
namespace {

using ::geminid::testing::RawClient;
using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::seconds(30);

class Program : public ::testing::Test {
 protected:
  void TearDown() override {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

  std::string Socket() const { return folder_.path() + "/s"; }
  std::string LogPath() const { return log_path_; }

  std::string Output() const {
    std::ifstream file(LogPath());
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }

  // Starts the program with both output streams in LogPath(). `prepare` runs in the child.
  void Start(std::vector<std::string> arguments, const std::function<void()>& prepare = {}) {
    arguments.insert(arguments.begin(), GEMINID_PROGRAM);
    pid_ = ::fork();
    ASSERT_GE(pid_, 0);
    if (pid_ != 0) return;
    const int log = ::open(LogPath().c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    if (prepare) prepare();
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(GEMINID_PROGRAM, argv.data());
    ::_exit(127);
  }

  // The exit code once the program has ended, or -1.
  int Wait() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int Run(std::vector<std::string> arguments) {
    Start(std::move(arguments));
    return Wait();
  }

  // Waits until the program serves or has ended. The exit code; -1: it did neither; nullopt: it
  // serves.
  std::optional<int> WaitUntilReadyOrEnded() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (Output().find("geminid ready: socket") != std::string::npos) return std::nullopt;
      if (std::chrono::steady_clock::now() > deadline) return -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void WaitUntilReady() { WaitUntilItSays("geminid ready: socket"); }

  void WaitUntilItSays(const std::string& words) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (Output().find(words) == std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << Output();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  grpc::Status GetStatus() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::Status status;
    return v1::AdminService::NewStub(geminid::testing::NewChannel(Socket()))
        ->GetStatus(&context, v1::GetStatusRequest(), &status);
  }

  // Invalid if the daemon has no room to accept the connection.
  base::UniqueFd Connect(int type, const std::string& suffix) const {
    base::UniqueFd connection(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = Socket() + suffix;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) !=
        0) {
      return base::UniqueFd();
    }
    return connection;
  }

  // The answer of the metrics port, whose address is in the log.
  std::string Fetch(const std::string& path) {
    const std::string log = Output();
    const std::string mark = "metrics http://127.0.0.1:";
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(log.substr(log.find(mark) + mark.size()))));
    const base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience = {10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      return "";
    }
    const std::string request = absl::StrCat("GET ", path, " HTTP/1.1\r\n\r\n");
    (void)!::write(fd.get(), request.data(), request.size());
    std::string answer;
    char buffer[4096];
    for (ssize_t got; (got = ::read(fd.get(), buffer, sizeof(buffer))) > 0;) {
      answer.append(buffer, static_cast<size_t>(got));
    }
    return answer;
  }

  base::TemporaryFolder folder_;
  std::string log_path_ = folder_.path() + "/stderr";
  pid_t pid_ = 0;
};

TEST_F(Program, HelpAndVersion_Exit0) {
  EXPECT_EQ(Run({"--help"}), 0);
  EXPECT_THAT(Output(), HasSubstr("--metrics-listen"));
  EXPECT_EQ(Run({"--version"}), 0);
  EXPECT_THAT(Output(), HasSubstr("geminid "));
}

TEST_F(Program, UsageErrors_Exit64) {
  EXPECT_EQ(Run({"--bogus"}), 64);
  EXPECT_EQ(Run({"--socket"}), 64);
  EXPECT_EQ(Run({"unexpected"}), 64);
  EXPECT_EQ(Run({"--socket", Socket(), "--ready-fd", "977"}), 64);
  EXPECT_EQ(Run({"--socket", Socket(), "--parent-pid", "1"}), 64);
  EXPECT_EQ(Run({"--socket", Socket(), "--private", "--parent-pid", "-1"}), 64);
}

TEST_F(Program, ConfigErrors_Exit78) {
  EXPECT_EQ(Run({"--host-memory", "-1"}), 78);
  EXPECT_THAT(Output(), HasSubstr("flag --host-memory: '-1' is not a size"));
  const std::string config = folder_.path() + "/g.json";
  std::ofstream(config) << "{\n  \"config_version\": 1,\n  \"sokcet\": \"/x\"\n}";
  EXPECT_EQ(Run({"--config", config, "--check-config"}), 78);
  EXPECT_THAT(Output(), HasSubstr(config + ":3:3: sokcet: unknown key"));
  std::ofstream(config) << "{\"config_version\": 1, \"socket\": \"" << Socket() << "\"}";
  EXPECT_EQ(Run({"--config", config, "--check-config"}), 0);
  EXPECT_NE(::access(Socket().c_str(), F_OK), 0) << "checking must not start anything";
}

TEST_F(Program, DeviceFlags_AddUpAndAreChecked) {
  EXPECT_EQ(Run({"--check-config", "--device", "host:1=1MiB", "--device", "host:0=1MiB"}), 0);
  EXPECT_EQ(Run({"--check-config", "--device", "host:0=1MiB,hots:1=1MiB"}), 78);
  EXPECT_THAT(Output(), HasSubstr("flag --device: character 13: 'hots' is not a kind of device"));
  EXPECT_THAT(Output(), HasSubstr("did you mean 'host'?"));
  EXPECT_EQ(Run({"--check-config", "--device", "host:0=1MiB", "--device-memory", "1MiB"}), 78);
  EXPECT_THAT(Output(), HasSubstr("device and device_memory are both given"));
}

TEST_F(Program, FileAtTheSocketsPath_Exits78) {
  std::ofstream(Socket()) << "precious";
  EXPECT_EQ(Run({"--socket", Socket()}), 78);
}

TEST_F(Program, BusySocket_Exits69AndNamesThePid) {
  geminid::testing::DaemonEnv env;
  ASSERT_TRUE(env.Start().ok());
  EXPECT_EQ(Run({"--socket", env.socket()}), 69);
  EXPECT_THAT(Output(), HasSubstr(absl::StrCat("pid ", ::getpid())));
}

TEST_F(Program, Sigterm_RemovesTheSocketsAndExits0Quickly) {
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--metrics-listen", "127.0.0.1:0"});
  WaitUntilReady();
  EXPECT_THAT(Output(), HasSubstr("metrics http://127.0.0.1:"));
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(Socket());
  ASSERT_TRUE(client.ok()) << client.status();
  const auto begin = std::chrono::steady_clock::now();
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  EXPECT_NE(::access(Socket().c_str(), F_OK), 0);
  EXPECT_NE(::access((Socket() + ".attach").c_str(), F_OK), 0);
  EXPECT_EQ((*client)->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kGone));
}

TEST_F(Program, Sighup_ReadsTheConfigurationAgainAndSaysWhatChanged) {
  const std::string config = folder_.path() + "/g.textproto";
  std::ofstream(config) << "config_version: 1 keep_time: \"10m\" host_memory: \"64MiB\"";
  Start({"--socket", Socket(), "--device-memory", "64MiB", "--config", config});
  WaitUntilReady();
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(Socket());
  ASSERT_TRUE(client.ok()) << client.status();
  std::ofstream(config) << "config_version: 1 keep_time: \"1h\" host_memory: \"32MiB\" log_level: "
                           "\"warning\"\nquotas { tenant: \"*\" host_memory: \"1MiB\" }";
  ::kill(pid_, SIGHUP);
  WaitUntilItSays("configuration read again");
  EXPECT_THAT(Output(), HasSubstr("keep_time: 10m -> 1h; log_level: info -> warning; quotas[0]"));
  EXPECT_THAT(Output(), HasSubstr("needs_restart=\"host_memory: 64MiB -> 32MiB\""));
  std::ofstream(config) << "config_version: 1 keep_tme: \"1h\"";
  ::kill(pid_, SIGHUP);
  WaitUntilItSays("the old one stays in force");
  EXPECT_THAT(Output(), HasSubstr("did you mean 'keep_time'?"));
  EXPECT_EQ((*client)->state()->header.phase.load(), static_cast<uint32_t>(shm::Phase::kServing));
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
}

TEST_F(Program, Sighup_DoesNotEndAPrivateDaemon) {
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--private", "--parent-pid",
         absl::StrCat(::getpid())});
  WaitUntilReady();
  ::kill(pid_, SIGHUP);
  WaitUntilItSays("no configuration to read again");
  EXPECT_TRUE(RawClient::Attach(Socket()).ok());
}

// The program in a terminal of its own, as a person starts it. `terminal` is the person's end.
class InTerminal : public Program {
 protected:
  void StartInTerminal(std::vector<std::string> arguments,
                       const std::function<void()>& prepare = {}) {
    int slave = -1;
    int master = -1;
    ASSERT_EQ(::openpty(&master, &slave, nullptr, nullptr, nullptr), 0);
    terminal_ = base::UniqueFd(master);
    ::fcntl(master, F_SETFD, FD_CLOEXEC);
    Start(std::move(arguments), [slave, prepare] {
      ::setsid();
      ::ioctl(slave, TIOCSCTTY, 0);
      ::close(slave);
      if (prepare) prepare();
    });
    ::close(slave);
    WaitUntilReady();
  }
  void CloseTerminal() { terminal_ = base::UniqueFd(); }

  base::UniqueFd terminal_;
};

TEST_F(InTerminal, Closed_EndsTheDaemonInOrder) {
  StartInTerminal({"--socket", Socket(), "--host-memory", "64MiB"});
  CloseTerminal();
  EXPECT_EQ(Wait(), 0);
  EXPECT_THAT(Output(), HasSubstr("its terminal was closed"));
  EXPECT_THAT(Output(), HasSubstr("--outlive-terminal"));
  EXPECT_NE(::access(Socket().c_str(), F_OK), 0);
}

TEST_F(InTerminal, Sighup_IsAReloadWhileTheTerminalIsOpen) {
  StartInTerminal({"--socket", Socket(), "--host-memory", "64MiB"});
  ::kill(pid_, SIGHUP);
  WaitUntilItSays("configuration read again");
  EXPECT_TRUE(RawClient::Attach(Socket()).ok());
}

TEST_F(InTerminal, Closed_DoesNotEndADaemonThatWasAskedToGoOn) {
  StartInTerminal({"--socket", Socket(), "--host-memory", "64MiB", "--outlive-terminal"});
  CloseTerminal();
  WaitUntilItSays("configuration read again");  // for SIGHUP
  EXPECT_TRUE(RawClient::Attach(Socket()).ok());
}

TEST_F(InTerminal, Closed_DoesNotEndADaemonUnderNohup) {
  StartInTerminal({"--socket", Socket(), "--host-memory", "64MiB"},
                  [] { ::signal(SIGHUP, SIG_IGN); });
  CloseTerminal();
  WaitUntilItSays("configuration read again");
  EXPECT_TRUE(RawClient::Attach(Socket()).ok());
}

void Limit(int resource, rlim_t bytes) {
  const rlimit limit = {bytes, bytes};
  ::setrlimit(static_cast<__rlimit_resource>(resource), &limit);
}

TEST_F(Program, LimitsOfTheShell_AreNamedWithNumbers) {
  Start({"--socket", Socket()}, [] { Limit(RLIMIT_FSIZE, 10240); });
  EXPECT_EQ(Wait(), 71);
  EXPECT_THAT(Output(), HasSubstr("the limit on the size of a file is 10.0 KiB"));
  Start({"--socket", Socket()}, [] { Limit(RLIMIT_AS, rlim_t{500000} * 1024); });
  EXPECT_EQ(Wait(), 71);
  EXPECT_THAT(Output(), HasSubstr("the limit on address space is 488 MiB"));
}

// No limit of processes holds for root, so another user starts the program.
TEST_F(Program, LimitOfProcesses_IsNamedInsteadOfEndingInASignal) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be a user without other processes";
  constexpr uid_t kUser = 64009;
  ASSERT_EQ(::chown(folder_.path().c_str(), kUser, kUser), 0);
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--device-memory", "1MiB"}, [] {
    (void)!::setgid(kUser);
    (void)!::setuid(kUser);
    Limit(RLIMIT_NPROC, 1);
  });
  EXPECT_GT(Wait(), 0) << "it ended with a signal, or not at all";
  EXPECT_THAT(Output(), HasSubstr("no process can be started for"));
  EXPECT_THAT(Output(), HasSubstr("ulimit -u"));
}

// gRPC waits for ever for threads that it has counted and the system has refused.
TEST_F(Program, EveryLimitOfProcessesThatIsTooLow_EndsTheStartInsteadOfHangingIt) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be a user without other processes";
  constexpr uid_t kUser = 64010;
  ASSERT_EQ(::chown(folder_.path().c_str(), kUser, kUser), 0);
  std::optional<int> code = 0;
  for (rlim_t most = 2; code.has_value(); ++most) {
    Start({"--socket", Socket(), "--host-memory", "16MiB", "--device-memory", "8MiB",
           "--metrics-listen", "off"},
          [most] {
            (void)!::setgid(kUser);
            (void)!::setuid(kUser);
            Limit(RLIMIT_NPROC, most);
          });
    code = WaitUntilReadyOrEnded();
    if (!code.has_value()) break;
    ASSERT_EQ(*code, 71) << "with " << most << " processes: " << Output();
    EXPECT_THAT(Output(), HasSubstr("limit of processes")) << most;
  }
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
}

TEST_F(Program, InAFolderWhereOthersMayCreateFiles_SaysSo) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--device-memory", "1MiB"});
  WaitUntilReady();
  EXPECT_THAT(Output(), HasSubstr("has mode 1777, so others may create files in it"));
  EXPECT_THAT(Output(), HasSubstr("$XDG_RUNTIME_DIR/geminid"));
}

TEST_F(Program, FolderOfTheSocketThatANewDaemonMakes_IsItsUsersAlone) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  constexpr uid_t kUser = 64009;
  ASSERT_EQ(::chown(folder_.path().c_str(), kUser, kUser), 0);
  const std::string inner = folder_.path() + "/new";
  Start({"--socket", inner + "/s", "--host-memory", "64MiB", "--device-memory", "1MiB"}, [] {
    (void)!::setgid(kUser);
    (void)!::setuid(kUser);
    ::umask(0);
  });
  WaitUntilReady();
  struct stat facts = {};
  ASSERT_EQ(::stat(inner.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777u, 0700u);
  EXPECT_THAT(Output(), ::testing::Not(HasSubstr("others may")));
}

// The check must refuse every configuration with which the start fails.
TEST_F(Program, CheckOfTheConfiguration_RefusesWhatTheStartRefuses) {
  for (const auto& [flag, value] :
       {std::pair("--metrics-listen", "localhost:9464"), std::pair("--device", "host:0=1MiB@900"),
        std::pair("--device", "host:0=0B"), std::pair("--socket", "/proc/no/such/g.sock")}) {
    std::vector<std::string> arguments = {"--host-memory", "1MiB", flag, value};
    if (std::string(flag) != "--socket") {
      arguments.insert(arguments.end(), {"--socket", Socket()});
    }
    EXPECT_EQ(Run(arguments), 78) << value;
    arguments.emplace_back("--check-config");
    EXPECT_EQ(Run(arguments), 78) << value;
  }
}

TEST_F(Program, MetricsAddressOfAnotherMachine_Exits78WithAdvice) {
  EXPECT_EQ(Run({"--socket", Socket(), "--host-memory", "1MiB", "--device-memory", "1MiB",
                 "--metrics-listen", "192.0.2.1:1"}),
            78);
  EXPECT_THAT(Output(),
              HasSubstr("192.0.2.1:1 is not an address of this machine; give one that is"));
}

TEST_F(Program, MoreMemoryThanTheMachineHas_Exits78WithNumbers) {
  EXPECT_EQ(Run({"--socket", Socket(), "--host-memory", "100TiB", "--device-memory", "1MiB"}), 78);
  EXPECT_THAT(Output(), HasSubstr("host_memory (100 TiB)"));
  EXPECT_EQ(Run({"--check-config", "--host-memory", "100TiB", "--device-memory", "1MiB"}), 78);
}

// By default each of these signals ends a process, and would leave the socket behind.
TEST_F(Program, SignalsThatNobodyHasAReasonToSend_AreIgnored) {
  Start({"--socket", Socket(), "--host-memory", "64MiB"});
  WaitUntilReady();
  for (const int signal : {SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGVTALRM, SIGPROF, SIGIO}) {
    ASSERT_EQ(::kill(pid_, signal), 0);
    EXPECT_TRUE(RawClient::Attach(Socket()).ok()) << signal;
  }
  ::kill(pid_, SIGTERM);
  EXPECT_EQ(Wait(), 0);
  EXPECT_NE(::access(Socket().c_str(), F_OK), 0);
}

TEST_F(Program, Sigkill_LeavesNothingThatStopsTheNextOne) {
  Start({"--socket", Socket(), "--host-memory", "64MiB"});
  WaitUntilReady();
  ::kill(pid_, SIGKILL);
  EXPECT_EQ(Wait(), -1);
  EXPECT_EQ(::access(Socket().c_str(), F_OK), 0);
  ::unlink(LogPath().c_str());
  Start({"--socket", Socket(), "--host-memory", "64MiB"});
  WaitUntilReady();
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(Socket());
  ASSERT_TRUE(client.ok());
  EXPECT_EQ((*client)->welcome().daemon_epoch, 2u);
}

TEST_F(Program, ReadyFd_SaysReadyAndCloses) {
  std::array<int, 2> ready;
  ASSERT_EQ(::pipe(ready.data()), 0);
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--ready-fd", absl::StrCat(ready[1])});
  ::close(ready[1]);
  std::string text;
  char buffer[16];
  ssize_t got;
  while ((got = ::read(ready[0], buffer, sizeof(buffer))) > 0) {
    text.append(buffer, static_cast<size_t>(got));
  }
  ::close(ready[0]);
  EXPECT_EQ(text, "ready\n");
  EXPECT_TRUE(RawClient::Attach(Socket()).ok());
}

TEST_F(Program, Private_EndsAfterItsParentAndItsLastSession) {
  // A process plays the parent. It waits until its end of a pipe is closed.
  std::array<int, 2> leash;
  ASSERT_EQ(::pipe2(leash.data(), O_CLOEXEC), 0);
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) {
    ::close(leash[1]);
    char byte;
    (void)!::read(leash[0], &byte, 1);
    ::_exit(0);
  }
  ::close(leash[0]);
  const std::string inner = folder_.path() + "/private";
  ASSERT_EQ(::mkdir(inner.c_str(), 0700), 0);
  const std::string socket = inner + "/s";
  log_path_ = inner + "/geminid.log";  // the path that the client library uses
  Start({"--socket", socket, "--host-memory", "64MiB", "--private", "--parent-pid",
         absl::StrCat(parent)});
  WaitUntilReady();
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(socket);
  ASSERT_TRUE(client.ok()) << client.status();
  ::close(leash[1]);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  // The parent is gone but the session is not: another rank can still attach.
  absl::StatusOr<std::unique_ptr<RawClient>> second = RawClient::Attach(socket);
  EXPECT_TRUE(second.ok()) << second.status();
  client->reset();
  second->reset();
  EXPECT_EQ(Wait(), 0);
  EXPECT_NE(::access(inner.c_str(), F_OK), 0) << "the private folder is left";
}

TEST_F(Program, PrivateInAFolderOfSomebodyElse_RemovesNothingOfIt) {
  const pid_t parent = ::fork();
  ASSERT_GE(parent, 0);
  if (parent == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(parent, nullptr, 0), parent);
  const std::string inner = folder_.path() + "/precious";
  ASSERT_EQ(::mkdir(inner.c_str(), 0700), 0);
  for (const char* name : {"/results.log", "/geminid.log"}) std::ofstream(inner + name) << "words";
  EXPECT_EQ(Run({"--socket", inner + "/x", "--host-memory", "64MiB", "--private", "--parent-pid",
                 absl::StrCat(parent)}),
            0);
  EXPECT_EQ(::access((inner + "/results.log").c_str(), F_OK), 0);
  EXPECT_EQ(::access((inner + "/geminid.log").c_str(), F_OK), 0);
}

// How often the daemon's own thread has slept.
long Sleeps(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  long sleeps = -1;
  while (file >> word && word != "voluntary_ctxt_switches:") {
  }
  file >> sleeps;
  return sleeps;
}

// The growth of `count` in the quietest of several seconds. Stops at the first second with a growth
// of at most `most`. On a busy machine the daemon's earlier work comes late.
long GrowthInAQuietSecond(long most, const std::function<long()>& count) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  long least = std::numeric_limits<long>::max();
  while (least > most && std::chrono::steady_clock::now() < deadline) {
    const long before = count();
    std::this_thread::sleep_for(std::chrono::seconds(1));  // measures a second without work
    least = std::min(least, count() - before);
  }
  return least;
}

TEST_F(Program, ClientThatReadsNoResponses_DoesNotKeepTheDaemonAwake) {
  Start({"--socket", Socket(), "--host-memory", "64MiB"});
  WaitUntilReady();
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(Socket());
  ASSERT_TRUE(client.ok());
  shm::ClientSegment* segment = (*client)->client();
  shm::RingWriter<shm::Request, shm::kRingEntries> requests(
      segment->requests, &segment->cursor.requests_written,
      &(*client)->state()->cursor.requests_read);
  shm::Request request = {};
  request.op = shm::RequestOp::kDrop;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (uint32_t sent = 0; sent < 3 * shm::kRingEntries / 2;) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    sent += requests.TryPush(request) ? 1 : 0;
    (*client)->Wake();
  }
  constexpr long kRareLooks = 20;  // in a second, once polls have become rare
  EXPECT_LE(GrowthInAQuietSecond(kRareLooks, [&] { return Sleeps(pid_); }), kRareLooks);
}

size_t OpenDescriptors(pid_t pid) {
  std::error_code ignored;
  return static_cast<size_t>(std::distance(
      std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/fd"), ignored), {}));
}

TEST_F(Program, DescriptorsThatRanOut_AreServedAgainOnceTheyAreBack) {
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--metrics-listen", "127.0.0.1:0"}, [] {
    const rlimit limit = {40, 40};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  });
  WaitUntilReady();
  {
    std::vector<base::UniqueFd> held;
    for (int i = 0; i < 100; ++i) {
      for (const auto& [type, suffix] :
           {std::pair(SOCK_STREAM, ""), std::pair(SOCK_SEQPACKET, shm::kAttachSuffix)}) {
        held.push_back(Connect(type, suffix));
      }
    }
    // The page is still served, because descriptors are reserved for it.
    EXPECT_THAT(Fetch("/healthz"), HasSubstr("200 OK"));
    const auto soon = std::chrono::steady_clock::now() + kPatience;
    while (Fetch("/metrics").find("geminid_limit_refused_total{limit=\"open_files\"") ==
           std::string::npos) {
      ASSERT_LT(std::chrono::steady_clock::now(), soon) << Output();
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (!RawClient::Attach(Socket()).ok() || !GetStatus().ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << Output();
  }
  EXPECT_THAT(Fetch("/metrics"), HasSubstr("200 OK"));
}

// The test's user is the daemon's, for whom there is always room.
TEST_F(Program, OperatorsFirstCallAfterDescriptorsRanOut_IsServed) {
  constexpr size_t kDescriptors = 40;
  constexpr size_t kKeptBack = 5;  // an eighth, reserved for messages to clients
  Start({"--socket", Socket(), "--host-memory", "64MiB"}, [] {
    const rlimit limit = {kDescriptors, kDescriptors};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  });
  WaitUntilReady();
  std::vector<base::UniqueFd> held;
  for (int i = 0; i < 100; ++i) held.push_back(Connect(SOCK_SEQPACKET, shm::kAttachSuffix));
  // Connections are accepted in order. When the last one is refused, no other refusal is in
  // progress.
  pollfd last = {.fd = held.back().get(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&last, 1, static_cast<int>(std::chrono::milliseconds(kPatience).count())), 1);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (OpenDescriptors(pid_) < kDescriptors - kKeptBack) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << Output();
    std::this_thread::yield();
  }
  const grpc::Status served = GetStatus();
  EXPECT_TRUE(served.ok()) << served.error_message() << Output();
}

int Count(const std::string& words, const std::string& what) {
  int count = 0;
  for (size_t at = 0; (at = words.find(what, at)) != std::string::npos; ++at) ++count;
  return count;
}

// The sum of the series of a metrics page whose names begin with `begin`; 0 if there are none.
double SumOf(const std::string& page, const std::string& begin) {
  std::istringstream lines(page);
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(begin, 0) == 0) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

TEST_F(Program, RefusedHellos_AreCountedInTheLogInsteadOfFillingIt) {
  const std::string config = folder_.path() + "/g.textproto";
  std::ofstream(config) << "config_version: 1 log_lines_per_second: 1";
  constexpr double kBurst = 50;  // fifty seconds' worth, then one a second
  const auto begin = std::chrono::steady_clock::now();
  Start({"--socket", Socket(), "--host-memory", "64MiB", "--metrics-listen", "127.0.0.1:0",
         "--config", config});
  WaitUntilReady();
  shm::Hello bad = geminid::testing::GoodHello();
  bad.rank = -1;
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    const absl::StatusOr<base::UniqueFd> fd = os::ConnectSeqpacket(Socket() + shm::kAttachSuffix);
    ASSERT_TRUE(fd.ok());
    (void)os::SendMessage(*fd, geminid::testing::Bytes(bad), {});
    refused += geminid::testing::Receive(*fd).end ? 0 : 1;
  }
  EXPECT_EQ(refused, 300);
  // A client gets its refusal before the log does.
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  double written = 0;
  double counted = 0;
  do {
    counted =
        SumOf(Fetch("/metrics"), "geminid_limit_refused_total{limit=\"log_lines_per_second\"");
    written = Count(Output(), "attach refused");
  } while (written + counted < refused && std::chrono::steady_clock::now() < deadline);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(written + counted, refused);
  EXPECT_LE(written, kBurst + seconds.count() + 1);
}

// The most memory that the daemon has used, in KiB.
long PeakKiB(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  long kib = -1;
  while (file >> word && word != "VmHWM:") {
  }
  file >> kib;
  return kib;
}

TEST_F(Program, RequestsWithoutAToken_TakeNoMemory) {
  Start({"--socket", Socket(), "--host-memory", "64MiB"});
  WaitUntilReady();
  ASSERT_TRUE(GetStatus().ok());
  const long before = PeakKiB(pid_);
  v1::AllocateChunksRequest request;  // 4 MiB of specs of two bytes
  for (int i = 0; i < 2 << 20; ++i) request.add_chunks();
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const auto stub = v1::ChunkService::NewStub(geminid::testing::NewChannel(Socket()));
      grpc::ClientContext context;
      v1::AllocateChunksResponse response;
      EXPECT_EQ(stub->Allocate(&context, request, &response).error_code(),
                grpc::StatusCode::UNAUTHENTICATED);
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_LT(PeakKiB(pid_) - before, 64 << 10);
}

TEST_F(Program, Idle_HoldsLessThan40MB) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer holds memory of its own";
#endif
  Start({"--socket", Socket(), "--host-memory", "1GiB", "--device-memory", "256MiB"});
  WaitUntilReady();
  EXPECT_LT(PeakKiB(pid_) * 1024, 40'000'000);
}

TEST_F(Program, Idle_UsesNoProcessor) {
  Start({"--socket", Socket(), "--host-memory", "64MiB"});
  WaitUntilReady();
  absl::StatusOr<std::unique_ptr<RawClient>> client = RawClient::Attach(Socket());
  ASSERT_TRUE(client.ok());
  const auto cpu_ticks = [&] {
    std::ifstream file(absl::StrCat("/proc/", pid_, "/stat"));
    std::string word;
    long ticks = 0;
    for (int field = 1; field <= 15 && file >> word; ++field) {
      if (field >= 14) ticks += std::stol(word);
    }
    return ticks;
  };
  const long two_percent = ::sysconf(_SC_CLK_TCK) / 50;
  EXPECT_LE(GrowthInAQuietSecond(two_percent, cpu_ticks), two_percent);
}

}  // namespace
}  // namespace geminid::service
