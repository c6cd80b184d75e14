// The program geminid-holder in a process of its own.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <thread>

#include "base/memfd.h"
#include "daemon/holder/holder_store.h"
#include "daemon/holder/protocol.h"
#include "daemon/os/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_folder.h"

namespace geminid::holder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kMilliseconds = 20'000;  // generous: every wait has an end

ino_t InodeOf(int fd) {
  struct stat file = {};
  return ::fstat(fd, &file) == 0 ? file.st_ino : 0;
}

// The process whose command line names the socket; 0: there is none.
pid_t PidOf(const std::string& socket) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    const std::string words{std::istreambuf_iterator<char>(file), {}};
    const std::string name = entry.path().filename().string();
    if (words.find(socket) != std::string::npos) return std::atoi(name.c_str());  // NOLINT
  }
  return 0;
}

class HolderTest : public ::testing::Test {
 protected:
  HolderOptions Options() const {
    return {.binary = GEMINID_HOLDER_BINARY,
            .socket = socket_,
            .patience = patience_,
            .until = until_,
            .signals = signals_,
            .is_to_end = is_to_end_};
  }
  std::unique_ptr<HolderStore> Open() const {
    absl::StatusOr<std::unique_ptr<HolderStore>> store = HolderStore::Open(Options());
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  static std::map<std::string, ino_t> Listed(HolderStore* store) {
    const absl::StatusOr<std::vector<StoredDescriptor>> kept = store->List();
    EXPECT_TRUE(kept.ok()) << kept.status();
    std::map<std::string, ino_t> inodes;
    if (kept.ok()) {
      for (const StoredDescriptor& each : *kept) inodes[each.name] = InodeOf(each.fd.get());
    }
    return inodes;
  }
  // Puts one end of a pair. The other end hangs up once no process has the first.
  base::UniqueFd PutPair(HolderStore* store, const std::string& name) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_TRUE(store->Put(name, ends[1]).ok());
    ::close(ends[1]);
    return base::UniqueFd(ends[0]);
  }
  static bool HungUp(const base::UniqueFd& end, int milliseconds) {
    pollfd waiting = {end.get(), POLLRDHUP, 0};
    return ::poll(&waiting, 1, milliseconds) == 1;
  }

  base::TemporaryFolder folder_;
  const std::string socket_ = folder_.path() + "/geminid.sock.holder";
  absl::Duration patience_ = absl::Seconds(60);
  pid_t until_ = 0;
  int signals_ = -1;
  std::function<bool()> is_to_end_;
};

TEST_F(HolderTest, WhatADaemonPut_IsThereForTheNextOne) {
  const base::UniqueFd memory = *base::CreateSealedMemfd("a", 4096);
  base::UniqueFd socket;
  {
    const std::unique_ptr<HolderStore> first = Open();
    EXPECT_TRUE(Listed(first.get()).empty());
    EXPECT_TRUE(first->Put("memory", memory.get()).ok());
    EXPECT_TRUE(first->Put("gone", memory.get()).ok());
    EXPECT_TRUE(first->Remove("gone").ok());
    socket = PutPair(first.get(), "socket");
  }
  const std::unique_ptr<HolderStore> second = Open();
  const std::map<std::string, ino_t> listed = Listed(second.get());
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed.at("memory"), InodeOf(memory.get()));
  EXPECT_TRUE(listed.contains("socket"));
  // Listing removes nothing.
  EXPECT_EQ(Listed(second.get()).size(), 2u);
  EXPECT_FALSE(HungUp(socket, 0));
  second->Finish();
  EXPECT_TRUE(HungUp(socket, kMilliseconds));
}

// The second daemon met the holder at its listener; the first had started it.
TEST_F(HolderTest, WhatALaterDaemonPut_IsThereForTheNextOne) {
  const base::UniqueFd memory = *base::CreateSealedMemfd("a", 4096);
  ASSERT_TRUE(Open()->Put("of-the-first", memory.get()).ok());
  for (const char* const name : {"of-the-second", "of-the-third"}) {
    const std::unique_ptr<HolderStore> later = Open();
    const absl::Status put = later->Put(name, memory.get());
    EXPECT_TRUE(put.ok()) << put;
  }
  const std::unique_ptr<HolderStore> last = Open();
  const std::map<std::string, ino_t> listed = Listed(last.get());
  EXPECT_EQ(listed.size(), 3u);
  EXPECT_TRUE(listed.contains("of-the-second") && listed.contains("of-the-third"));
  last->Finish();
}

TEST_F(HolderTest, WhatWasSentBeforeADeath_IsKept) {
  const base::UniqueFd memory = *base::CreateSealedMemfd("a", 4096);
  const pid_t daemon = ::fork();
  if (daemon == 0) {
    absl::StatusOr<std::unique_ptr<HolderStore>> store = HolderStore::Open(Options());
    for (int i = 0; store.ok() && i < 300; ++i) {
      if (!(*store)->Put("m" + std::to_string(i), memory.get()).ok()) ::_exit(1);
    }
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(daemon, &status, 0), daemon);
  ASSERT_TRUE(WIFSIGNALED(status));
  const std::unique_ptr<HolderStore> store = Open();
  EXPECT_EQ(Listed(store.get()).size(), 300u);
  store->Finish();
}

TEST_F(HolderTest, SignalsThatNobodyHasAReasonToSend_AreIgnored) {
  const std::unique_ptr<HolderStore> store = Open();
  const base::UniqueFd socket = PutPair(store.get(), "socket");
  ASSERT_EQ(Listed(store.get()).size(), 1u);  // it has started
  const pid_t holder = PidOf(socket_);
  ASSERT_GT(holder, 0);
  for (const int signal : {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO}) {
    ASSERT_EQ(::kill(holder, signal), 0);
  }
  EXPECT_EQ(Listed(store.get()).size(), 1u);
  store->Finish();
}

TEST_F(HolderTest, WithoutADaemonForTooLong_ItEnds) {
  patience_ = absl::Milliseconds(1);
  const base::UniqueFd socket = PutPair(Open().get(), "socket");
  EXPECT_TRUE(HungUp(socket, kMilliseconds));
  // The next daemon finds nothing, and continues with a holder of its own.
  patience_ = absl::Seconds(60);
  const std::unique_ptr<HolderStore> next = Open();
  EXPECT_TRUE(Listed(next.get()).empty());
  EXPECT_TRUE(next->Put("socket", socket.get()).ok());
  next->Finish();
}

// The daemon connects while the listener is still open, and too late to be served.
TEST_F(HolderTest, ThatEndsWhileItIsMet_IsSucceededByOneOfTheDaemonsOwn) {
  absl::StatusOr<base::UniqueFd> listener = os::ListenSeqpacket(socket_, 0600, 1);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::unique_ptr<HolderStore> store = Open();
  listener->Reset();
  std::filesystem::remove(socket_);
  EXPECT_TRUE(Listed(store.get()).empty());
  const base::UniqueFd socket = PutPair(store.get(), "socket");
  EXPECT_EQ(Listed(store.get()).size(), 1u);
  store->Finish();
}

// Listens at the holder's socket as another user, until it is told to end or a daemon connects.
// Exits with 1 if it received any message.
pid_t StartStranger(const std::string& path, const std::array<int, 2>& ready) {
  const pid_t stranger = ::fork();
  if (stranger != 0) return stranger;
  constexpr uid_t kStranger = 64001;
  if (::setresuid(kStranger, kStranger, kStranger) != 0) ::_exit(2);
  const absl::StatusOr<base::UniqueFd> listener = os::ListenSeqpacket(path, 0666, 1);
  if (!listener.ok() || ::write(ready[1], "r", 1) != 1) ::_exit(3);
  pollfd waiting = {listener->get(), POLLIN, 0};
  if (::poll(&waiting, 1, kMilliseconds) != 1) ::_exit(4);
  const absl::StatusOr<base::UniqueFd> connection = os::Accept(*listener);
  if (!connection.ok() || !connection->valid()) ::_exit(5);
  waiting = {connection->get(), POLLIN, 0};
  char byte;
  const bool told = ::poll(&waiting, 1, kMilliseconds) == 1 &&
                    ::recv(connection->get(), &byte, 1, MSG_DONTWAIT) > 0;
  ::_exit(told ? 1 : 0);
}

TEST_F(HolderTest, OfAnotherUser_IsToldNothingAndItsUserIsNamed) {
  if (::getuid() != 0) GTEST_SKIP() << "needs root, to have another user's process";
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  const pid_t stranger = StartStranger(socket_, ready);
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const base::UniqueFd memory = *base::CreateSealedMemfd("a", 4096);
  {
    const absl::StatusOr<std::unique_ptr<HolderStore>> store = HolderStore::Open(Options());
    EXPECT_TRUE(absl::IsPermissionDenied(store.status())) << store.status();
    EXPECT_THAT(store.status().message(),
                AllOf(HasSubstr(socket_), HasSubstr("user 64001's"), HasSubstr("mode 0700")));
    if (store.ok()) (void)(*store)->Put("memory", memory.get());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(stranger, &status, 0), stranger);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "1: it was told something";
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(HolderTest, WithoutADaemonAndItsProcess_ItEnds) {
  const pid_t process = ::fork();
  if (process == 0) {
    ::pause();
    ::_exit(0);
  }
  until_ = process;
  const base::UniqueFd socket = PutPair(Open().get(), "socket");
  EXPECT_FALSE(HungUp(socket, 0));
  ::kill(process, SIGKILL);
  ASSERT_EQ(::waitpid(process, nullptr, 0), process);
  EXPECT_TRUE(HungUp(socket, kMilliseconds));
}

TEST_F(HolderTest, WhoseSocketWasRemoved_Ends) {
  const base::UniqueFd socket = PutPair(Open().get(), "socket");
  std::filesystem::remove(socket_);
  EXPECT_TRUE(HungUp(socket, kMilliseconds));
}

TEST_F(HolderTest, ThatWasKilled_IsRenewedEmpty) {
  const std::unique_ptr<HolderStore> store = Open();
  const base::UniqueFd socket = PutPair(store.get(), "socket");
  store->Finish();  // as sudden for the daemon as a death
  pollfd waiting = {store->watch_fd(), POLLRDHUP, 0};
  ASSERT_EQ(::poll(&waiting, 1, kMilliseconds), 1);
  EXPECT_FALSE(store->Put("late", socket.get()).ok());
  ASSERT_TRUE(store->Renew().ok());
  EXPECT_TRUE(Listed(store.get()).empty());
  EXPECT_TRUE(store->Put("again", socket.get()).ok());
  EXPECT_EQ(Listed(store.get()).size(), 1u);
  store->Finish();
}

TEST_F(HolderTest, ThatIsToldNonsense_HangsUpAndKeepsWhatItHas) {
  base::UniqueFd socket = PutPair(Open().get(), "socket");
  {
    const std::unique_ptr<HolderStore> store = Open();
    const char nonsense[] = "nonsense";
    ASSERT_GT(::send(store->watch_fd(), nonsense, sizeof(nonsense), MSG_NOSIGNAL), 0);
    pollfd waiting = {store->watch_fd(), POLLRDHUP, 0};
    EXPECT_EQ(::poll(&waiting, 1, kMilliseconds), 1);
  }
  const std::unique_ptr<HolderStore> store = Open();
  EXPECT_TRUE(Listed(store.get()).contains("socket"));
  store->Finish();
}

// To a daemon this is a stopped holder: it accepts no connection.
TEST_F(HolderTest, ThatIsStopped_IsNotWaitedForOnceTheDaemonIsToEnd) {
  const base::UniqueFd listener = *os::ListenSeqpacket(socket_, 0600, 4);
  const base::UniqueFd signals(::eventfd(1, EFD_CLOEXEC));
  signals_ = signals.get();
  int asked = 0;
  is_to_end_ = [&] { return ++asked == 2; };  // the first signal does not end the daemon
  const absl::Status told = Open()->List().status();
  EXPECT_TRUE(absl::IsCancelled(told)) << told;
  EXPECT_THAT(told.message(), HasSubstr(socket_));
  EXPECT_EQ(asked, 2);
  EXPECT_TRUE(std::filesystem::exists(socket_)) << "the next daemon finds the holder";
}

TEST_F(HolderTest, ThatIsStoppedWithAllConnectionsThatMayWait_IsNotWaitedForEither) {
  const base::UniqueFd listener = *os::ListenSeqpacket(socket_, 0600, 0);
  const absl::StatusOr<base::UniqueFd> earlier = os::ConnectSeqpacket(socket_);
  ASSERT_TRUE(earlier.ok()) << earlier.status();
  const base::UniqueFd signals(::eventfd(1, EFD_CLOEXEC));
  signals_ = signals.get();
  is_to_end_ = [] { return true; };
  const absl::Status told = HolderStore::Open(Options()).status();
  EXPECT_TRUE(absl::IsCancelled(told)) << told;
  EXPECT_TRUE(std::filesystem::exists(socket_));
}

// To a daemon of version 1 this is a holder of version 2. Its socket stays in place.
class HolderOfVersion2 {
 public:
  // `tells`: it reports its version; otherwise it only hangs up.
  HolderOfVersion2(const std::string& socket, bool tells)
      : listener_(BlockingListener(socket)), thread_([this, tells] {
          const base::UniqueFd daemon(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
          Wire wire;
          (void)!::recv(daemon.get(), &wire, sizeof(wire), 0);
          asked_version_ = wire.version;
          wire = Encode({.op = Op::kOtherVersion});
          wire.version = 2;
          if (tells) (void)!::send(daemon.get(), &wire, sizeof(wire), MSG_NOSIGNAL);
        }) {}
  ~HolderOfVersion2() {
    if (thread_.joinable()) thread_.join();
  }
  int AskedVersion() {
    thread_.join();
    return asked_version_;
  }

 private:
  static base::UniqueFd BlockingListener(const std::string& socket) {
    base::UniqueFd listener = *os::ListenSeqpacket(socket, 0600, 4);
    ::fcntl(listener.get(), F_SETFL, ::fcntl(listener.get(), F_GETFL) & ~O_NONBLOCK);
    return listener;
  }

  const base::UniqueFd listener_;
  int asked_version_ = 0;
  std::thread thread_;
};

TEST_F(HolderTest, OfAnotherVersion_IsNamedAndNotReplaced) {
  for (const bool tells : {true, false}) {
    HolderOfVersion2 holder(socket_, tells);
    struct stat before = {};
    ASSERT_EQ(::stat(socket_.c_str(), &before), 0);
    const std::unique_ptr<HolderStore> store = Open();
    ASSERT_NE(store, nullptr);
    const absl::Status refused = store->List().status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr(tells ? "speaks version 2, and this daemon version 1"
                                : "hangs up on this daemon, which speaks version 1"));
    EXPECT_EQ(holder.AskedVersion(), 1);
    struct stat after = {};
    ASSERT_EQ(::stat(socket_.c_str(), &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino);
    EXPECT_TRUE(os::ConnectSeqpacket(socket_).ok()) << "it listens still";
    std::filesystem::remove(socket_);
  }
}

// The holder reports its version. A daemon of that version finds all stored descriptors.
TEST_F(HolderTest, MetByADaemonOfAnotherVersion_SaysItsOwnAndKeepsWhatItHas) {
  const base::UniqueFd kept = PutPair(Open().get(), "socket");
  const absl::StatusOr<base::UniqueFd> later = os::ConnectSeqpacket(socket_);
  ASSERT_TRUE(later.ok()) << later.status();
  Wire wire = Encode({.op = Op::kList});
  wire.version = 2;
  ASSERT_GT(::send(later->get(), &wire, sizeof(wire), MSG_NOSIGNAL), 0);
  ::fcntl(later->get(), F_SETFL, ::fcntl(later->get(), F_GETFL) & ~O_NONBLOCK);
  ASSERT_EQ(::recv(later->get(), &wire, sizeof(wire), 0), static_cast<ssize_t>(sizeof(wire)));
  EXPECT_EQ(wire.version, kVersion);
  EXPECT_EQ(wire.op, static_cast<uint16_t>(Op::kOtherVersion));
  EXPECT_EQ(::recv(later->get(), &wire, sizeof(wire), 0), 0) << "it hangs up";
  const std::unique_ptr<HolderStore> store = Open();
  EXPECT_TRUE(Listed(store.get()).contains("socket"));
  EXPECT_FALSE(HungUp(kept, 0));
  store->Finish();
}

TEST(HolderProgram, Help_SaysItsFlagsAndExits0) {
  FILE* const pipe = ::popen("\"" GEMINID_HOLDER_BINARY "\" --help", "r");
  ASSERT_NE(pipe, nullptr);
  char said[4096] = {};
  (void)!::fread(said, 1, sizeof(said) - 1, pipe);
  EXPECT_EQ(::pclose(pipe), 0);
  for (const char* flag :
       {"--listener-fd", "--daemon-fd", "--socket", "--patience-ms", "--until"}) {
    EXPECT_NE(std::string(said).find(flag), std::string::npos) << flag;
  }
}

TEST(HolderProgram, WrongUsage_IsSaid) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    (void)!::freopen("/dev/null", "w", stderr);
    ::execl(GEMINID_HOLDER_BINARY, GEMINID_HOLDER_BINARY, "--listener-fd", "x", nullptr);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(WEXITSTATUS(status), 64);
}

}  // namespace
}  // namespace geminid::holder
