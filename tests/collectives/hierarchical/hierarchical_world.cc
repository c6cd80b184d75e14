#include "tests/collectives/hierarchical/hierarchical_world.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "collectives/tcp/socket.h"

namespace geminid::collectives {

HierarchyOptions FinelyCut() {
  return {.shm = {.piece_bytes = 16 * 1024, .slots = 2},
          .costs = LinkCosts{.flat_exchange_seconds = 1e9},
          .longest_lane_bytes = 64 * 1024,
          .shortest_lane_bytes = 256};
}

Communicators ConnectHosts(const std::vector<std::string>& host_by_rank, absl::Duration timeout,
                           const HierarchyOptions& hierarchy) {
  auto listener = ListenTcp("127.0.0.1", 0);
  EXPECT_TRUE(listener.ok()) << listener.status();
  auto port = PortOf(listener->get());
  EXPECT_TRUE(port.ok()) << port.status();
  const int world_size = static_cast<int>(host_by_rank.size());
  const std::string job = UniqueName();
  return ConnectInThreads(world_size, [&](int rank) {
    HierarchicalOptions options{.network = {.port = *port, .job = job, .timeout = timeout},
                                .hierarchy = hierarchy,
                                .host = host_by_rank[static_cast<size_t>(rank)]};
    if (rank == 0) options.network.listener = *std::move(listener);
    return ConnectHierarchical(rank, world_size, std::move(options));
  });
}

std::vector<std::string> HostNames(int hosts, int ranks_each) {
  std::vector<std::string> names;
  for (int rank = 0; rank < hosts * ranks_each; ++rank) {
    names.push_back(absl::StrCat("host ", rank / ranks_each));
  }
  return names;
}

std::vector<std::string> HostNames(const std::vector<int>& sizes) {
  std::vector<std::string> names;
  for (const int size : sizes) {
    names.insert(names.end(), static_cast<size_t>(size), absl::StrCat("host ", names.size()));
  }
  return names;
}

Backend GrowingHostsBackend() {
  return {"growing_hosts", [](int world_size, absl::Duration timeout) {
            return ConnectHosts(
                HostNames(world_size == 4 ? std::vector{1, 3} : std::vector{1, 2, 3}), timeout);
          }};
}

Backend ShrinkingHostsBackend() {
  return {"shrinking_hosts", [](int world_size, absl::Duration timeout) {
            return ConnectHosts(
                HostNames(world_size == 4 ? std::vector{2, 1, 1} : std::vector{3, 2, 1}), timeout);
          }};
}

Backend HostsBackend() {
  return {"hosts", [](int world_size, absl::Duration timeout) {
            return ConnectHosts(HostNames(2, world_size / 2), timeout);
          }};
}

}  // namespace geminid::collectives
