#include "daemon/os/unix_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <fstream>

#include "base/unique_fd.h"
#include "daemon/os/event.h"
#include "tests/base/temporary_folder.h"

namespace geminid::os {
namespace {

using ::testing::HasSubstr;

class UnixSocket : public ::testing::Test {
 protected:
  std::string Path() const { return folder_.path() + "/s"; }

  struct Pair {
    base::UniqueFd client;
    base::UniqueFd server;
  };
  Pair Connected() {
    absl::StatusOr<base::UniqueFd> listener = ListenSeqpacket(Path(), 0600, 4);
    EXPECT_TRUE(listener.ok()) << listener.status();
    absl::StatusOr<base::UniqueFd> client = ConnectSeqpacket(Path());
    EXPECT_TRUE(client.ok()) << client.status();
    absl::StatusOr<base::UniqueFd> server = Accept(*listener);
    EXPECT_TRUE(server.ok() && server->valid());
    return {*std::move(client), *std::move(server)};
  }

  base::TemporaryFolder folder_;
};

TEST_F(UnixSocket, Listen_SetsTheMode) {
  absl::StatusOr<base::UniqueFd> listener = ListenSeqpacket(Path(), 0640, 4);
  ASSERT_TRUE(listener.ok()) << listener.status();
  struct stat facts;
  ASSERT_EQ(::lstat(Path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777u, 0640u);
}

TEST_F(UnixSocket, Listen_PathOf108_IsRefusedWithNumbers) {
  const std::string path(kMaxSocketPath + 1, 'x');
  const absl::Status status = ListenSeqpacket(path, 0600, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has 108 characters; the kernel allows 107"));
}

TEST_F(UnixSocket, RemoveStale_NothingThere_IsOk) { EXPECT_TRUE(RemoveStaleSocket(Path()).ok()); }

TEST_F(UnixSocket, RemoveStale_NobodyListens_RemovesIt) {
  ASSERT_TRUE(ListenSeqpacket(Path(), 0600, 4).ok());  // closed at once
  ASSERT_EQ(::access(Path().c_str(), F_OK), 0);
  EXPECT_TRUE(RemoveStaleSocket(Path()).ok());
  EXPECT_NE(::access(Path().c_str(), F_OK), 0);
}

TEST_F(UnixSocket, RemoveStale_SomebodyListens_IsRefused) {
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    base::UniqueFd listener(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, Path().c_str());
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(RemoveStaleSocket(Path()).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(::access(Path().c_str(), F_OK), 0);
    ::unlink(Path().c_str());
  }
}

TEST_F(UnixSocket, RemoveStale_OrdinaryFile_IsLeftAlone) {
  std::ofstream(Path()) << "precious";
  const absl::Status status = RemoveStaleSocket(Path());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not a socket"));
  EXPECT_EQ(::access(Path().c_str(), F_OK), 0);
}

TEST_F(UnixSocket, Accept_NobodyConnects_IsInvalid) {
  absl::StatusOr<base::UniqueFd> listener = ListenSeqpacket(Path(), 0600, 4);
  ASSERT_TRUE(listener.ok());
  absl::StatusOr<base::UniqueFd> connection = Accept(*listener);
  ASSERT_TRUE(connection.ok());
  EXPECT_FALSE(connection->valid());
}

TEST_F(UnixSocket, PeerOf_IsTheKernelsView) {
  Pair pair = Connected();
  absl::StatusOr<Peer> peer = PeerOf(pair.server);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->pid, ::getpid());
  EXPECT_EQ(peer->uid, ::getuid());
  EXPECT_EQ(peer->gid, ::getgid());
  EXPECT_TRUE(peer->pidfd.valid());
}

TEST_F(UnixSocket, Message_KeepsItsBoundaries) {
  Pair pair = Connected();
  const std::array<std::byte, 3> three = {std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(SendMessage(pair.client, three, {}).ok());
  ASSERT_TRUE(SendMessage(pair.client, std::span(three).first(1), {}).ok());
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(ReceiveMessage(pair.server, buffer).bytes, 3u);
  EXPECT_EQ(ReceiveMessage(pair.server, buffer).bytes, 1u);
  EXPECT_EQ(ReceiveMessage(pair.server, buffer).result, Received::Result::kNothing);
  pair.client.Reset();
  EXPECT_EQ(ReceiveMessage(pair.server, buffer).result, Received::Result::kEnd);
}

TEST_F(UnixSocket, Receive_LongerThanTheBuffer_SaysSo) {
  Pair pair = Connected();
  const std::array<std::byte, 16> sixteen = {};
  ASSERT_TRUE(SendMessage(pair.client, sixteen, {}).ok());
  std::array<std::byte, 8> buffer;
  const Received received = ReceiveMessage(pair.server, buffer);
  EXPECT_TRUE(received.truncated);
  EXPECT_EQ(received.bytes, 16u);
}

TEST_F(UnixSocket, ConnectionOfAListener_TakesNoDescriptorsWhereTheKernelCanRefuseThem) {
  Pair pair = Connected();
  const std::array<std::byte, 1> one = {};
  const std::array<int, 1> sent = {0};
  EXPECT_EQ(SendMessage(pair.client, one, sent).ok(), !RefusesDescriptors());
}

TEST_F(UnixSocket, Receive_Descriptors_ClosesThem) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
  Pair pair = {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
  std::array<int, 2> pipe_fds;
  ASSERT_EQ(::pipe2(pipe_fds.data(), O_CLOEXEC | O_NONBLOCK), 0);
  base::UniqueFd read_end(pipe_fds[0]);
  base::UniqueFd write_end(pipe_fds[1]);
  const std::array<std::byte, 1> one = {};
  const std::array<int, 1> sent = {write_end.get()};
  ASSERT_TRUE(SendMessage(pair.client, one, sent).ok());
  write_end.Reset();
  std::array<std::byte, 8> buffer;
  EXPECT_TRUE(ReceiveMessage(pair.server, buffer).had_fds);
  char c;
  EXPECT_EQ(::read(read_end.get(), &c, 1), 0) << "the receiver kept the pipe's other end";
}

TEST_F(UnixSocket, Receive_DescriptorsThatAreWanted_OwnsThem) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  Pair pair = {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
  const std::array<std::byte, 1> one = {};
  const std::array<int, 2> sent = {pair.client.get(), pair.server.get()};
  ASSERT_TRUE(SendMessage(pair.client, one, sent).ok());
  std::array<std::byte, 8> buffer;
  std::vector<base::UniqueFd> fds;
  EXPECT_TRUE(ReceiveMessage(pair.server, buffer, &fds).had_fds);
  ASSERT_EQ(fds.size(), 2u);
  EXPECT_EQ(::fcntl(fds[1].get(), F_GETFD), FD_CLOEXEC);
}

TEST_F(UnixSocket, Send_ToAPeerThatDoesNotRead_DoesNotBlock) {
  Pair pair = Connected();
  const std::array<std::byte, 1024> message = {};
  absl::Status status;
  for (int i = 0; i < 100000 && status.ok(); ++i) status = SendMessage(pair.server, message, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(UnixSocket, Send_ToAPeerThatHasGone_IsAnErrorAndNoSignal) {
  Pair pair = Connected();
  pair.client.Reset();
  const std::array<std::byte, 1> one = {};
  EXPECT_EQ(SendMessage(pair.server, one, {}).code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace geminid::os
