// The handshake with a daemon that gives wrong answers.
#include "client/src/attach.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "client/src/segments.h"
#include "tests/base/few_descriptors.h"
#include "tests/base/temporary_folder.h"
#include "tests/client/memory_files.h"

namespace geminid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Listens, accepts one connection, reads one message, and lets the test answer.
class FakeListener {
 public:
  using Answer = std::function<void(int connection)>;

  explicit FakeListener(Answer answer) {
    std::string name = "/tmp/geminid-attach-XXXXXX";
    folder_ = mkdtemp(name.data());
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    const std::string path = socket() + shm::kAttachSuffix;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    listener_ = base::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_.get(), 1), 0);
    thread_ = std::thread([this, answer = std::move(answer)] {
      const base::UniqueFd connection(accept(listener_.get(), nullptr, nullptr));
      if (!connection.valid()) return;
      shm::Hello hello;
      EXPECT_EQ(recv(connection.get(), &hello, sizeof hello, 0), ssize_t{sizeof hello});
      answer(connection.get());
    });
  }
  ~FakeListener() {
    thread_.join();
    std::filesystem::remove_all(folder_);
  }
  std::string socket() const { return folder_ + "/s"; }

 private:
  std::string folder_;
  base::UniqueFd listener_;
  std::thread thread_;
};

// Forks another user's listener at the attach socket of `socket`. It ends when `leash` is closed.
pid_t ListenAsAnother(const std::string& socket, uid_t user, const std::array<int, 2>& ready,
                      const std::array<int, 2>& leash) {
  const pid_t other = fork();
  if (other != 0) return other;
  close(leash[1]);
  if (setresuid(user, user, user) != 0) _exit(1);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  (socket + shm::kAttachSuffix).copy(address.sun_path, sizeof(address.sun_path) - 1);
  const base::UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener.get(), 1) != 0 || write(ready[1], "r", 1) != 1) {
    _exit(2);
  }
  char byte;
  _exit(read(leash[0], &byte, 1) == 0 ? 0 : 3);
}

// Connects to another user's listener, in a folder of that user with this mode.
absl::Status ConnectToAnotherUsers(mode_t mode) {
  constexpr uid_t kAnother = 64002;
  const base::TemporaryFolder folder;
  std::array<int, 2> ready{};
  std::array<int, 2> leash{};
  if (chown(folder.path().c_str(), kAnother, kAnother) != 0 ||
      chmod(folder.path().c_str(), mode) != 0 || pipe2(ready.data(), O_CLOEXEC) != 0 ||
      pipe2(leash.data(), O_CLOEXEC) != 0) {
    return absl::InternalError("the scene cannot be set");
  }
  const pid_t other = ListenAsAnother(folder / "s", kAnother, ready, leash);
  char byte;
  EXPECT_EQ(read(ready[0], &byte, 1), 1);
  absl::Status status = AttachSocket::Connect(folder / "s", absl::Seconds(20)).status();
  for (const int end : {ready[0], ready[1], leash[0], leash[1]}) close(end);
  waitpid(other, nullptr, 0);
  return status;
}

TEST(AttachSocket, OfAnotherUser_IsTrustedWhereNobodyElseCouldHavePutIt) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to have another user's process";
  EXPECT_TRUE(ConnectToAnotherUsers(0755).ok());
  const absl::Status shared = ConnectToAnotherUsers(01777);
  EXPECT_TRUE(absl::IsPermissionDenied(shared)) << shared;
  EXPECT_THAT(shared.message(), AllOf(HasSubstr("user 64002's"), HasSubstr("mode 1777"),
                                      HasSubstr("to read this process's memory")));
}

void Send(int connection, const void* message, size_t bytes, const std::vector<int>& fds) {
  iovec part = {const_cast<void*>(message), bytes};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * fds.size()));
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    std::memcpy(CMSG_DATA(rights), fds.data(), sizeof(int) * fds.size());
  }
  EXPECT_GT(sendmsg(connection, &header, MSG_NOSIGNAL), 0);
}

shm::Welcome GoodWelcome() {
  shm::Welcome welcome = {};
  welcome.magic = shm::kWelcomeMagic;
  welcome.protocol_version = shm::kProtocolVersion;
  welcome.session_id = 9;
  return welcome;
}

absl::StatusOr<ReceivedWelcome> Attach(const std::string& socket,
                                       absl::Duration timeout = absl::Seconds(10)) {
  absl::StatusOr<AttachSocket> connection = AttachSocket::Connect(socket, timeout);
  if (!connection.ok()) return connection.status();
  return connection->SayHello(shm::Hello{});
}

TEST(Attach, ToAPlainFile_SaysThatItIsNoSocket) {
  const base::TemporaryFolder folder;
  folder.Write("text", "words");
  const absl::Status status = Attach(folder / "text").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("that file or folder is not a socket; set GEMINID_SOCKET to"),
                    ::testing::Not(HasSubstr("No such file"))));
}

TEST(Attach, FiveDescriptors_Arrive) {
  FakeListener listener([](int connection) {
    const shm::Welcome welcome = GoodWelcome();
    const base::UniqueFd fd = testing::MakeMemoryFile(4096);
    Send(connection, &welcome, sizeof welcome, std::vector<int>(5, fd.get()));
  });
  absl::StatusOr<ReceivedWelcome> welcomed = Attach(listener.socket());
  ASSERT_TRUE(welcomed.ok()) << welcomed.status();
  EXPECT_EQ(welcomed->message.session_id, 9u);
  for (const base::UniqueFd& fd : welcomed->fds) EXPECT_TRUE(fd.valid());
}

TEST(Attach, OtherVersion_IsNamedWithOurs) {
  FakeListener listener([](int connection) {
    shm::Welcome welcome = GoodWelcome();
    welcome.protocol_version = 77;
    welcome.status = static_cast<uint32_t>(absl::StatusCode::kFailedPrecondition);
    std::strcpy(welcome.error, "the client is old");
    Send(connection, &welcome, sizeof welcome, {});
  });
  const absl::Status status = Attach(listener.socket()).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("version 77"), HasSubstr(absl::StrCat("version ", shm::kProtocolVersion)),
            HasSubstr("same release"), HasSubstr("the client is old")));
}

// Otherwise the client would misread the daemon's shared memory.
TEST(Attach, OlderOrNewerDaemonThatWelcomesUs_IsRefused) {
  for (const uint32_t version : {shm::kProtocolVersion - 1, shm::kProtocolVersion + 1}) {
    FakeListener listener([version](int connection) {
      shm::Welcome welcome = GoodWelcome();
      welcome.protocol_version = version;
      const base::UniqueFd fd = testing::MakeMemoryFile(4096);
      Send(connection, &welcome, sizeof welcome, std::vector<int>(5, fd.get()));
    });
    const absl::Status status = Attach(listener.socket()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << version << ": " << status;
  }
}

TEST(Attach, Refusal_KeepsTheDaemonsCodeAndWords) {
  FakeListener listener([](int connection) {
    shm::Welcome welcome = GoodWelcome();
    welcome.status = static_cast<uint32_t>(absl::StatusCode::kResourceExhausted);
    std::memset(welcome.error, 'x', sizeof welcome.error);  // not terminated
    Send(connection, &welcome, sizeof welcome, {});
  });
  const absl::Status status = Attach(listener.socket()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message().size(), size_t{shm::kErrorTextBytes});
}

TEST(Attach, MissingDescriptors_AreAnError) {
  FakeListener listener([](int connection) {
    const shm::Welcome welcome = GoodWelcome();
    const base::UniqueFd fd = testing::MakeMemoryFile(4096);
    Send(connection, &welcome, sizeof welcome, std::vector<int>(3, fd.get()));
  });
  EXPECT_EQ(Attach(listener.socket()).status().code(), absl::StatusCode::kInternal);
}

TEST(Attach, DescriptorsThatThisProcessMayNotOpen_AreNamedWithTheLimit) {
  std::optional<FewDescriptors> few;
  FakeListener listener([&few](int connection) {
    const shm::Welcome welcome = GoodWelcome();
    const base::UniqueFd fd = testing::MakeMemoryFile(4096);
    // The listener closes two of its own soon.
    few.emplace(1);
    Send(connection, &welcome, sizeof welcome, std::vector<int>(5, fd.get()));
  });
  const absl::Status status = Attach(listener.socket()).status();
  few.reset();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("Too many open files"), HasSubstr("ulimit -n")));
}

TEST(Attach, MessagesOfTheWrongSizeOrMagic_AreErrors) {
  {
    FakeListener listener([](int connection) { Send(connection, "hello", 5, {}); });
    EXPECT_EQ(Attach(listener.socket()).status().code(), absl::StatusCode::kInternal);
  }
  {
    FakeListener listener([](int connection) {
      const std::vector<char> long_message(sizeof(shm::Welcome) + 1);
      Send(connection, long_message.data(), long_message.size(), {});
    });
    EXPECT_EQ(Attach(listener.socket()).status().code(), absl::StatusCode::kInternal);
  }
  FakeListener listener([](int connection) {
    const shm::Welcome nothing = {};
    Send(connection, &nothing, sizeof nothing, {});
  });
  const absl::Status status = Attach(listener.socket()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not a geminid daemon"));
}

TEST(Attach, DaemonThatHangsUpOrSaysNothing_IsUnavailable) {
  {
    FakeListener listener([](int) {});
    const absl::Status status = Attach(listener.socket()).status();
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("hung up"));
  }
  std::atomic<bool> over = false;
  FakeListener listener([&](int) {
    while (!over.load()) std::this_thread::yield();
  });
  const absl::Status status = Attach(listener.socket(), absl::Milliseconds(20)).status();
  over.store(true);
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("did not answer within 20ms"));
}

TEST(Attach, SegmentsOfAnotherLayout_AreRefused) {
  const auto file = [](size_t bytes) { return testing::MakeMemoryFile(bytes); };
  const absl::Status zeros =
      Segments::Map(file(sizeof(shm::StateSegment)), file(sizeof(shm::ClientSegment)),
                    file(sizeof(shm::CommitSegment)))
          .status();
  EXPECT_TRUE(absl::IsFailedPrecondition(zeros));
  EXPECT_THAT(std::string(zeros.message()), HasSubstr("layout version 0"));
  const absl::Status small =
      Segments::Map(file(4096), file(sizeof(shm::ClientSegment)), file(sizeof(shm::CommitSegment)))
          .status();
  EXPECT_TRUE(absl::IsInvalidArgument(small));
}

}  // namespace
}  // namespace geminid
