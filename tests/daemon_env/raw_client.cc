#include "tests/daemon_env/raw_client.h"

#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/mapping.h"
#include "base/system_error.h"
#include "daemon/os/event.h"
#include "daemon/os/unix_socket.h"
#include "daemon/service/entry/rpc_server.h"
#include "daemon/service/sessions/token.h"

namespace geminid::testing {
namespace {

constexpr int kPatienceMilliseconds = 20000;
constexpr size_t kMostFds = 16;
constexpr size_t kMostBytes = 1024;

}  // namespace

shm::Hello GoodHello() {
  shm::Hello hello = {};
  hello.magic = shm::kHelloMagic;
  hello.protocol_version = shm::kProtocolVersion;
  hello.layout_version = shm::kLayoutVersion;
  hello.world_size = 1;
  hello.local_world_size = 1;
  hello.device = shm::kAnyDevice;
  std::strcpy(hello.job, "demo");
  std::strcpy(hello.client, "raw client 1");
  return hello;
}

RawMessage Receive(const base::UniqueFd& connection) {
  RawMessage message;
  pollfd wait = {connection.get(), POLLIN, 0};
  if (base::RetryOnEintr([&] { return ::poll(&wait, 1, kPatienceMilliseconds); }) != 1) {
    message.end = true;
    return message;
  }
  message.bytes.resize(kMostBytes);
  iovec data = {message.bytes.data(), message.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostFds)] = {};
  msghdr header = {};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  const ssize_t got = ::recvmsg(connection.get(), &header, MSG_CMSG_CLOEXEC);
  message.end = got <= 0;
  if (message.end) return {.end = true, .bytes = {}, .fds = {}};
  message.bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr; item = CMSG_NXTHDR(&header, item)) {
    const size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof(fd));
      message.fds.emplace_back(fd);
    }
  }
  return message;
}

absl::StatusOr<std::unique_ptr<RawClient>> RawClient::Attach(const std::string& socket,
                                                             const shm::Hello& hello) {
  std::unique_ptr<RawClient> client(new RawClient);
  absl::StatusOr<base::UniqueFd> connection =
      os::ConnectSeqpacket(absl::StrCat(socket, shm::kAttachSuffix));
  if (!connection.ok()) return connection.status();
  client->connection_ = *std::move(connection);
  absl::Status sent = os::SendMessage(client->connection_, Bytes(hello), {});
  if (!sent.ok()) return sent;
  RawMessage answer = Receive(client->connection_);
  if (answer.end || answer.bytes.size() != sizeof(shm::Welcome)) {
    return absl::InternalError("no welcome came");
  }
  std::memcpy(&client->welcome_, answer.bytes.data(), sizeof(shm::Welcome));
  if (client->welcome_.status != 0) {
    return absl::Status(static_cast<absl::StatusCode>(client->welcome_.status),
                        client->welcome_.error);
  }
  client->fds_ = std::move(answer.fds);
  if (client->fds_.size() != shm::kWelcomeFds)
    return absl::InternalError("descriptors are missing");
  void* state = ::mmap(nullptr, sizeof(shm::StateSegment), PROT_READ, MAP_SHARED,
                       client->fds_[static_cast<int>(shm::WelcomeFd::kStateSegment)].get(), 0);
  if (state == MAP_FAILED) return base::SystemError(errno, "mmap", "the state segment");
  client->state_ = static_cast<const shm::StateSegment*>(state);
  absl::StatusOr<base::Mapping> mapped = base::Mapping::Map(
      client->fds_[static_cast<int>(shm::WelcomeFd::kClientSegment)], sizeof(shm::ClientSegment));
  if (!mapped.ok()) return mapped.status();
  client->client_map_ = *std::move(mapped);
  client->channel_ = NewChannel(socket);
  return client;
}

RawClient::~RawClient() {
  if (state_ != nullptr) {
    ::munmap(const_cast<shm::StateSegment*>(state_), sizeof(shm::StateSegment));
  }
}

void RawClient::Wake() const { os::Signal(fds_[static_cast<int>(shm::WelcomeFd::kDaemonEvent)]); }

void RawClient::Authenticate(grpc::ClientContext* context) const {
  service::Token token;
  std::memcpy(token.data(), welcome_.token, token.size());
  context->AddMetadata(
      shm::kTokenMetadataKey,
      absl::BytesToHexString({reinterpret_cast<const char*>(token.data()), token.size()}));
}

base::UniqueFd SocketThatLingers(int seconds) {
  const base::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), size);
  ::listen(listener.get(), 1);
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), size);
  // Neither read nor closed before the test's process ends.
  (void)::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
  const linger wait = {1, seconds};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof(wait));
  const std::vector<char> data(1 << 16);
  while (::send(fd.get(), data.data(), data.size(), MSG_DONTWAIT) > 0) {
  }
  return fd;
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(service::GrpcAddress(socket), grpc::InsecureChannelCredentials(),
                                   arguments);
}

}  // namespace geminid::testing
