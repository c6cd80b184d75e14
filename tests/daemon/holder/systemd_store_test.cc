// A socket in systemd's place that receives the messages for systemd.
#include "daemon/holder/systemd_store.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "daemon/os/unix_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/temporary_folder.h"

namespace geminid::holder {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SystemdStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    notified_ = base::UniqueFd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path_.c_str(), sizeof(address.sun_path) - 1);
    ASSERT_EQ(::bind(notified_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
    ::setenv("FDSTORE", "100", 1);
    ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("SYSTEMD_EXEC_PID");
    ::unsetenv("NOTIFY_SOCKET");
    ::unsetenv("FDSTORE");
  }

  struct Notice {
    std::string text;
    base::UniqueFd fd;
  };
  Notice Next() {
    char text[1000] = {};
    iovec data = {text, sizeof(text) - 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
    msghdr header = {};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    Notice notice;
    if (::recvmsg(notified_.get(), &header, MSG_CMSG_CLOEXEC) <= 0) return notice;
    notice.text = text;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr;
         item = CMSG_NXTHDR(&header, item)) {
      int fd = -1;
      if (item->cmsg_type != SCM_RIGHTS) continue;
      std::memcpy(&fd, CMSG_DATA(item), sizeof(fd));
      notice.fd = base::UniqueFd(fd);
    }
    return notice;
  }

  base::TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/notify";
  base::UniqueFd notified_;
};

TEST_F(SystemdStoreTest, PutAndRemove_SayWhatTheManualAsksFor) {
  const std::unique_ptr<SystemdStore> store = SystemdStore::Open(TakeHandedOver());
  ASSERT_NE(store, nullptr);
  const base::UniqueFd event(::eventfd(7, EFD_CLOEXEC));
  ASSERT_TRUE(store->Put("s1-books", event.get()).ok());
  const Notice put = Next();
  EXPECT_THAT(put.text, HasSubstr("FDSTORE=1"));
  EXPECT_THAT(put.text, HasSubstr("FDPOLL=0"));
  EXPECT_THAT(put.text, HasSubstr("FDNAME=s1-books"));
  uint64_t count = 0;
  ASSERT_EQ(::read(put.fd.get(), &count, sizeof(count)), 8);
  EXPECT_EQ(count, 7u);
  ASSERT_TRUE(store->Remove("s1-books").ok());
  const Notice removed = Next();
  EXPECT_THAT(removed.text, HasSubstr("FDSTOREREMOVE=1"));
  EXPECT_THAT(removed.text, HasSubstr("FDNAME=s1-books"));
  EXPECT_FALSE(removed.fd.valid());
  EXPECT_TRUE(store->OutlivesStop());
}

TEST_F(SystemdStoreTest, ServiceWithoutAStore_HasNone) {
  ::unsetenv("FDSTORE");
  EXPECT_EQ(SystemdStore::Open(TakeHandedOver()), nullptr);
  ::setenv("FDSTORE", "0", 1);
  EXPECT_EQ(SystemdStore::Open(TakeHandedOver()), nullptr);
  ::setenv("FDSTORE", "100", 1);
  ::setenv("SYSTEMD_EXEC_PID", "1", 1);
  EXPECT_EQ(SystemdStore::Open(TakeHandedOver()), nullptr);
  ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(SystemdStore::Open(TakeHandedOver()), nullptr);
}

// In a process of its own, whose descriptors 3 and 4 are those that systemd passes.
TEST_F(SystemdStoreTest, WhatSystemdKept_IsListedByName) {
  const pid_t service = ::fork();
  if (service == 0) {
    const base::UniqueFd event(::eventfd(9, EFD_CLOEXEC));
    if (::dup2(event.get(), 3) != 3 || ::dup2(event.get(), 4) != 4) ::_exit(10);
    ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
    ::setenv("LISTEN_FDS", "2", 1);
    ::setenv("LISTEN_FDNAMES", "manifest:stored", 1);
    const std::unique_ptr<SystemdStore> store = SystemdStore::Open(TakeHandedOver());
    if (store == nullptr) ::_exit(11);
    const absl::StatusOr<std::vector<StoredDescriptor>> kept = store->List();
    if (!kept.ok() || kept->size() != 1 || kept->front().name != "manifest") ::_exit(12);
    uint64_t count = 0;
    if (::read(kept->front().fd.get(), &count, sizeof(count)) != 8 || count != 9) ::_exit(13);
    ::_exit(std::getenv("LISTEN_FDS") == nullptr ? 0 : 14);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(service, &status, 0), service);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CheckNoListener, ListenerOfAnUnknownName_IsRefusedWithAllNames) {
  const base::TemporaryFolder folder;
  std::vector<StoredDescriptor> handed_over;
  handed_over.push_back({"manifest", base::UniqueFd(::eventfd(0, EFD_CLOEXEC))});
  EXPECT_TRUE(CheckNoListener(handed_over).ok()) << "it is the store's";
  handed_over.push_back({"foo", *os::ListenStream(folder / "s", 0600, 1)});
  const absl::Status refused = CheckNoListener(handed_over);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("'manifest'"), HasSubstr("'foo'"),
                                       HasSubstr("FileDescriptorName=control-listener"),
                                       HasSubstr("FileDescriptorName=attach-listener")));
}

}  // namespace
}  // namespace geminid::holder
