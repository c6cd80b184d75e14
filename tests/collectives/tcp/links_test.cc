// Connections between ranks: their addresses, and the errors when they cannot be made.
#include "collectives/tcp/links.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/tcp/socket.h"
#include "collectives/tcp/tcp_communicator.h"
#include "tests/collectives/forked_ranks.h"
#include "tests/collectives/operations.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

// Sockets of this process by the address of the other end, if that end reads only when its program
// does.
std::map<std::string, int> DataSockets() {
  std::map<std::string, int> sockets;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  while (const dirent* entry = ::readdir(folder.get())) {
    const int socket = std::atoi(entry->d_name);
    unsigned user_timeout = 1;
    socklen_t length = sizeof(user_timeout);
    if (::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, &length) != 0) continue;
    const std::string peer = PeerAddress(socket);
    if (!peer.empty() && user_timeout == 0) ++sockets[peer];
  }
  return sockets;
}

Communicators ConnectAt(const std::vector<std::string>& interfaces) {
  auto listener = ListenTcp("127.0.0.1", 0);
  const uint16_t port = *PortOf(listener->get());
  const int world_size = static_cast<int>(interfaces.size());
  return ConnectInThreads(world_size, [&](int rank) {
    TcpOptions options{.port = port,
                       .job = "links",
                       .timeout = kLong,
                       .interface_address = interfaces[static_cast<size_t>(rank)]};
    if (rank == 0) options.listener = *std::move(listener);
    return ConnectTcp(rank, world_size, std::move(options));
  });
}

// A rank may compute for minutes without reading. A sender must not lose the rank meanwhile.
TEST(Links, ForData_AllowReadersThatTakeTheirTime) {
  const Communicators ranks = ConnectAt({"", "", ""});
  EXPECT_EQ(DataSockets(), (std::map<std::string, int>{{"127.0.0.1", 6}}));
}

TEST(Links, OfRanksWithInterfaces_AreBetweenThose) {
  Communicators ranks = ConnectAt({"127.0.0.2", "127.0.0.3"});
  // Each rank connects to the ranks before it, from any address.
  EXPECT_EQ(DataSockets()["127.0.0.2"], 1);
  ForEachRank(ranks, [](Communicator& c) { EXPECT_EQ(c.Barrier(), absl::OkStatus()); });
}

TEST(Links, AtAnAddressOfAnotherHost_AreRefused) {
  const auto status = ConnectTcp(0, 1, {.interface_address = "192.0.2.1"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("interface_address=192.0.2.1"));
}

TEST(Links, AtAnInterfaceByName_AreRefused) {
  const auto status = ConnectTcp(0, 1, {.interface_address = "eth0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("interface_address=\"eth0\""));
}

// No rank waits for a rank that has reported why it cannot come.
TEST(Links, WithoutDescriptors_FailOnAllRanksAndNameTheLimit) {
  constexpr int kRanks = 4;
  constexpr int kPoor = 2;
  auto listener = ListenTcp("127.0.0.1", 0);
  const uint16_t port = *PortOf(listener->get());
  ForkedRanks ranks(kRanks, [&](int rank, const ForkedRanks::Ready&) -> std::string {
    TcpOptions options{.port = port, .timeout = kLong, .connect_timeout = kLong};
    if (rank == 0) options.listener = std::move(*listener);
    listener->Reset();
    if (rank == kPoor) {
      // The limit has room for all but the last of the rank's connections.
      const base::UniqueFd next(::dup(0));
      const rlimit limit = {static_cast<rlim_t>(next.get()) + 5,
                            static_cast<rlim_t>(next.get()) + 5};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return "no limit";
    }
    auto c = ConnectTcp(rank, kRanks, std::move(options));
    // Rank 3 has connected to all ranks before rank 2 has.
    return Text(c.ok() ? (*c)->Barrier() : c.status());
  });
  for (int r = 0; r < kRanks; ++r) {
    EXPECT_THAT(ranks.Result(r),
                AllOf(HasSubstr("RESOURCE_EXHAUSTED: rank 2: "), HasSubstr("ulimit -n")))
        << r;
  }
}

}  // namespace
}  // namespace geminid::collectives
