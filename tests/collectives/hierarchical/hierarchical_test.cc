// Properties that the conformance suite cannot check: the traffic between hosts.
#include <gtest/gtest.h>

#include <functional>

#include "collectives/partition.h"
#include "tests/collectives/elements.h"
#include "tests/collectives/hierarchical/hierarchical_world.h"
#include "tests/collectives/tcp_backend.h"

namespace geminid::collectives {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr size_t kCount = 36'000;  // divisible by all numbers of ranks here; 144,000 bytes of fp32
constexpr uint64_t kBytes = kCount * sizeof(float);

struct Shape {
  int hosts;
  int each;
};
constexpr Shape kShapes[] = {{2, 2}, {3, 2}, {2, 3}};
// Hosts of different sizes.
const std::vector<std::vector<int>> kUneven = {{1, 3}, {2, 1}, {3, 2, 1}, {1, 3, 2}};

// The network traffic of one collective, by rank.
using Network = std::vector<CommunicatorStats>;
Network After(const std::vector<int>& sizes,
              const std::function<absl::Status(Communicator&)>& collective) {
  Communicators group = ConnectHosts(HostNames(sizes), kLong);
  Network network(group.size());
  ForEachRank(group, [&](Communicator& c) {
    EXPECT_STREQ(c.BackendName(), "hierarchical");
    EXPECT_EQ(collective(c), absl::OkStatus());
    network[static_cast<size_t>(c.Rank())] = c.Stats();
  });
  return network;
}

Network After(const Shape& shape, const std::function<absl::Status(Communicator&)>& collective) {
  return After(std::vector<int>(static_cast<size_t>(shape.hosts), shape.each), collective);
}

uint64_t ReceivedByHost(const Network& network, const Shape& shape, int host) {
  uint64_t bytes = 0;
  for (int local = 0; local < shape.each; ++local) {
    const int rank = host * shape.each + local;
    bytes += ReceivedFromAll(network[static_cast<size_t>(rank)].network);
  }
  return bytes;
}

uint64_t SentByHost(const Network& network, const Shape& shape, int host) {
  uint64_t bytes = 0;
  for (int local = 0; local < shape.each; ++local) {
    const int rank = host * shape.each + local;
    for (const PeerTraffic& peer : network[static_cast<size_t>(rank)].network)
      bytes += peer.bytes_sent;
  }
  return bytes;
}

// Every rank has network traffic only with the ranks of its number on other hosts, if at all.
void ExpectTwinsOnly(const Network& network, const Shape& shape) {
  for (int rank = 0; rank < shape.hosts * shape.each; ++rank) {
    for (int peer = 0; peer < shape.hosts * shape.each; ++peer) {
      const bool twins = peer % shape.each == rank % shape.each && peer != rank;
      if (twins) continue;
      EXPECT_EQ(network[static_cast<size_t>(rank)].network[static_cast<size_t>(peer)],
                PeerTraffic())
          << rank << " and " << peer;
    }
  }
}

TEST(Hierarchical, AllGather_BringsEachByteToEachHostOnce) {
  for (const Shape& shape : kShapes) {
    const size_t ranks = HostNames(shape.hosts, shape.each).size();
    const Network network = After(shape, [&](Communicator& c) {
      std::vector<float> own(kCount / ranks), all(kCount);
      return c.AllGather(own, all);
    });
    const uint64_t of_one = kBytes / static_cast<uint64_t>(shape.hosts);
    for (int host = 0; host < shape.hosts; ++host) {
      EXPECT_EQ(ReceivedByHost(network, shape, host), kBytes - of_one);
      EXPECT_EQ(SentByHost(network, shape, host), kBytes - of_one);
    }
    ExpectTwinsOnly(network, shape);
  }
}

// Partial sums go up the chain and sums come down: S bytes each over every link between two hosts.
TEST(Hierarchical, AllReduce_MovesTheBufferOnceEachWayAlongTheChain) {
  for (const Shape& shape : kShapes) {
    const Network network = After(shape, [&](Communicator& c) {
      std::vector<float> values(kCount, 1.0f);
      const absl::Status status = c.AllReduce(values, values);
      EXPECT_EQ(values, std::vector<float>(kCount, static_cast<float>(c.WorldSize())));
      return status;
    });
    for (int host = 0; host < shape.hosts; ++host) {
      const uint64_t neighbours = (host > 0) + (host < shape.hosts - 1);
      EXPECT_EQ(ReceivedByHost(network, shape, host), neighbours * kBytes);
      EXPECT_EQ(SentByHost(network, shape, host), neighbours * kBytes);
    }
    ExpectTwinsOnly(network, shape);
  }
}

// Partial sums go up the chain; the last host sends each other host its slices.
TEST(Hierarchical, ReduceScatter_MovesTheBufferUpTheChainAndSlicesBack) {
  for (const Shape& shape : kShapes) {
    const size_t ranks = HostNames(shape.hosts, shape.each).size();
    const Network network = After(shape, [&](Communicator& c) {
      std::vector<float> all(kCount, 1.0f), own(kCount / ranks);
      return c.ReduceScatter(all, own);
    });
    const uint64_t of_one = kBytes / static_cast<uint64_t>(shape.hosts);
    const int last = shape.hosts - 1;
    for (int host = 0; host <= last; ++host) {
      const uint64_t partial_in = host > 0 ? kBytes : 0, partial_out = host < last ? kBytes : 0;
      const uint64_t slices_in = host < last ? of_one : 0;
      const uint64_t slices_out = host == last ? kBytes - of_one : 0;
      EXPECT_EQ(ReceivedByHost(network, shape, host), partial_in + slices_in);
      EXPECT_EQ(SentByHost(network, shape, host), partial_out + slices_out);
    }
    ExpectTwinsOnly(network, shape);
  }
}

// Sums travel as fp32, so that they are rounded only once.
TEST(Hierarchical, SumsOfBFloat16_TravelAsFp32UntilTheyAreRounded) {
  const Shape shape = {2, 3};
  const Network network = After(shape, [&](Communicator& c) {
    std::vector<BFloat16> values(kCount, BFloat16{0x3f80});
    return c.AllReduce(values, values);
  });
  EXPECT_EQ(ReceivedByHost(network, shape, 1), kCount * sizeof(float));
  EXPECT_EQ(ReceivedByHost(network, shape, 0), kCount * sizeof(BFloat16));
}

TEST(Hierarchical, Reduce_MovesTheBufferUpTheChainAndToTheRootsHost) {
  for (const Shape& shape : kShapes) {
    for (int root_host = 0; root_host < shape.hosts; ++root_host) {
      const Network network = After(shape, [&](Communicator& c) {
        std::vector<float> values(kCount, 1.0f);
        return c.Reduce(values, values, root_host * shape.each + 1);
      });
      const int last = shape.hosts - 1;
      for (int host = 0; host <= last; ++host) {
        const bool sum_moves = root_host != last;
        EXPECT_EQ(ReceivedByHost(network, shape, host),
                  (host > 0 ? kBytes : 0) + (sum_moves && host == root_host ? kBytes : 0));
      }
      ExpectTwinsOnly(network, shape);
    }
  }
}

TEST(Hierarchical, Broadcast_BringsTheBufferToEachOtherHostOnce) {
  for (const Shape& shape : kShapes) {
    const int root = shape.each + 1;  // on host 1
    const Network network = After(shape, [&](Communicator& c) {
      std::vector<float> values(kCount);
      return c.Broadcast(values, root);
    });
    for (int host = 0; host < shape.hosts; ++host) {
      EXPECT_EQ(ReceivedByHost(network, shape, host), host == 1 ? 0 : kBytes);
    }
    ExpectTwinsOnly(network, shape);
  }
}

TEST(Hierarchical, AllToAll_MovesWhatOtherHostsGetInOneMessagePerHost) {
  for (const Shape& shape : kShapes) {
    const Network network = After(shape, [&](Communicator& c) {
      std::vector<float> in(kCount), out(kCount);
      return c.AllToAll(in, out);
    });
    const auto hosts = static_cast<uint64_t>(shape.hosts), each = static_cast<uint64_t>(shape.each);
    for (int host = 0; host < shape.hosts; ++host) {
      EXPECT_EQ(ReceivedByHost(network, shape, host), each * kBytes * (hosts - 1) / hosts);
    }
    ExpectTwinsOnly(network, shape);
  }
}

TEST(Hierarchical, MessagesWithinAHost_NeverCrossTheNetwork) {
  const Shape shape = {2, 2};
  const Network network = After(shape, [&](Communicator& c) {
    std::vector<float> out(kCount), in(kCount);
    return c.SendReceive(out, c.Rank() ^ 1, in, c.Rank() ^ 1);
  });
  for (int host = 0; host < shape.hosts; ++host) {
    EXPECT_EQ(ReceivedByHost(network, shape, host) + SentByHost(network, shape, host), 0u);
  }
}

TEST(Hierarchical, Ring_CrossesTheNetworkBetweenHostsOnly) {
  const Shape shape = {2, 3};
  const Network network = After(shape, [&](Communicator& c) {
    std::vector<float> out(kCount), in(kCount);
    return c.SendReceive(out, (c.Rank() + 1) % 6, in, (c.Rank() + 5) % 6);
  });
  for (int host = 0; host < shape.hosts; ++host) {
    EXPECT_EQ(ReceivedByHost(network, shape, host), kBytes);
    EXPECT_EQ(SentByHost(network, shape, host), kBytes);
  }
}

// Each rank sends to each. Half of the slices come from the other host. A third of the network's
// bytes stays within a host.
TEST(NetworkTraffic, OfAnOperation_IsWhatOtherHostsSent) {
  HierarchyOptions flat = FinelyCut();
  flat.costs = LinkCosts{};
  Communicators group = ConnectHosts(HostNames(2, 2), kLong, flat);
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> all(kCount), own(kCount / 4);
    EXPECT_EQ(c.ReduceScatter(all, own), absl::OkStatus());
    EXPECT_EQ(c.AllGather(own, all), absl::OkStatus());
    const CommunicatorStats stats = c.Stats();
    const auto of = [&](OpKind kind) {
      return stats.traffic[static_cast<size_t>(kind)].network_bytes_received;
    };
    EXPECT_EQ(of(OpKind::kReduceScatter), kBytes / 2);
    EXPECT_EQ(of(OpKind::kAllGather), kBytes / 4);
    EXPECT_EQ(of(OpKind::kAllReduce), 0u);
  });
}

TEST(NetworkTraffic, WithoutHosts_IsNothingOrAll) {
  for (const Backend& backend : {LocalBackend(), ShmBackend(), TcpBackend()}) {
    Communicators group = backend.connect(3, kLong);
    ForEachRank(group, [&](Communicator& c) {
      std::vector<float> values(kCount);
      EXPECT_EQ(c.AllReduce(values, values), absl::OkStatus());
      const CommunicatorStats stats = c.Stats();
      const std::vector<PeerTraffic> nothing(3);
      EXPECT_NE(stats.peers, nothing);
      EXPECT_EQ(stats.network, backend.name == "tcp" ? stats.peers : nothing) << backend.name;
    });
  }
}

// By host, the bytes that its ranks received from other hosts. If the ranks share no memory, also
// the bytes that they received from each other.
std::vector<uint64_t> ReceivedByHosts(const Network& network, const std::vector<int>& sizes) {
  std::vector<uint64_t> received;
  size_t rank = 0;
  for (const int size : sizes) {
    received.push_back(0);
    for (int local = 0; local < size; ++local, ++rank) {
      received.back() += ReceivedFromAll(network[rank].network);
    }
  }
  return received;
}

TEST(UnevenHosts, AllGatherAndBroadcast_BringEachByteToEachHostOnce) {
  for (const std::vector<int>& sizes : kUneven) {
    const auto ranks = static_cast<uint64_t>(HostNames(sizes).size());
    const int root = static_cast<int>(ranks) - 1;
    const Network gathered = After(sizes, [&](Communicator& c) {
      std::vector<float> own(kCount / ranks), all(kCount);
      return c.AllGather(own, all);
    });
    const Network broadcast = After(sizes, [&](Communicator& c) {
      std::vector<float> values(kCount);
      return c.Broadcast(values, root);
    });
    for (size_t host = 0; host < sizes.size(); ++host) {
      const uint64_t own = kBytes / ranks * static_cast<uint64_t>(sizes[host]);
      EXPECT_EQ(ReceivedByHosts(gathered, sizes)[host], kBytes - own);
      EXPECT_EQ(ReceivedByHosts(broadcast, sizes)[host], host + 1 == sizes.size() ? 0 : kBytes);
    }
  }
}

TEST(UnevenHosts, Reductions_MoveAlongTheChainAsOnEvenHosts) {
  for (const std::vector<int>& sizes : kUneven) {
    const auto ranks = static_cast<uint64_t>(HostNames(sizes).size());
    const Network reduced = After(sizes, [&](Communicator& c) {
      std::vector<float> values(kCount, 1.0f);
      return c.AllReduce(values, values);
    });
    const Network scattered = After(sizes, [&](Communicator& c) {
      std::vector<float> all(kCount, 1.0f), own(kCount / ranks);
      return c.ReduceScatter(all, own);
    });
    const Network to_root = After(sizes, [&](Communicator& c) {
      std::vector<float> values(kCount, 1.0f);
      return c.Reduce(values, values, 0);
    });
    const size_t last = sizes.size() - 1;
    for (size_t host = 0; host <= last; ++host) {
      const uint64_t partial = host > 0 ? kBytes : 0;
      const uint64_t own = kBytes / ranks * static_cast<uint64_t>(sizes[host]);
      EXPECT_EQ(ReceivedByHosts(reduced, sizes)[host], partial + (host < last ? kBytes : 0));
      EXPECT_EQ(ReceivedByHosts(scattered, sizes)[host], partial + (host < last ? own : 0));
      EXPECT_EQ(ReceivedByHosts(to_root, sizes)[host], partial + (host == 0 ? kBytes : 0));
    }
  }
}

TEST(UnevenHosts, AllToAll_CrossesTheNetworkBetweenHostsOnly) {
  for (const std::vector<int>& sizes : kUneven) {
    const auto ranks = static_cast<uint64_t>(HostNames(sizes).size());
    const Network network = After(sizes, [&](Communicator& c) {
      std::vector<float> in(kCount), out(kCount);
      return c.AllToAll(in, out);
    });
    for (size_t host = 0; host < sizes.size(); ++host) {
      const auto here = static_cast<uint64_t>(sizes[host]);
      EXPECT_EQ(ReceivedByHosts(network, sizes)[host], here * (ranks - here) * (kBytes / ranks));
    }
  }
}

// Of three hosts the middle one passes on both partial sums and sums.
TEST(Hierarchical, RandomSums_HaveTheBitsOfRankOrder) {
  std::vector<std::vector<int>> shapes = kUneven;
  shapes.insert(shapes.end(), {{2, 2, 2}, {2, 2, 2, 2}});
  for (const std::vector<int>& sizes : shapes) {
    const int ranks = static_cast<int>(HostNames(sizes).size());
    for (const DType dtype :
         {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64}) {
      constexpr size_t kElements = 20'001;
      std::vector<std::vector<std::byte>> inputs;
      for (int r = 0; r < ranks; ++r) {
        inputs.push_back(RandomElements(dtype, kElements, static_cast<uint64_t>(r)));
      }
      const auto expected = ReduceOneByOne(inputs, dtype, ReduceOp::kSum, 1.0 / 3);
      Communicators group = ConnectHosts(HostNames(sizes), kLong);
      ForEachRank(group, [&](Communicator& c) {
        auto values = inputs[static_cast<size_t>(c.Rank())];
        Buffer buffer(values.data(), kElements, dtype);
        EXPECT_EQ(c.AllReduce(buffer, buffer, ReduceOp::kSum, {.scale = 1.0 / 3}),
                  absl::OkStatus());
        EXPECT_TRUE(values == expected) << Name(dtype);
      });
    }
  }
}

TEST(Hierarchical, Subsets_UseWhatTheirRanksShare) {
  Communicators group = ConnectHosts(HostNames(3, 2), kLong);
  ForEachRank(group, [&](Communicator& c) {
    const int rank = c.Rank();
    const auto name = [&](const char* which, const std::vector<int>& ranks) -> std::string {
      auto subset = c.Subset(which, ranks);
      EXPECT_TRUE(subset.ok()) << subset.status();
      if (!subset.ok()) return "none";
      std::vector<int32_t> own = {rank}, all(ranks.size());
      EXPECT_EQ((*subset)->AllGather(own, all), absl::OkStatus());
      EXPECT_EQ(all, std::vector<int32_t>(ranks.begin(), ranks.end()));
      return (*subset)->BackendName();
    };
    EXPECT_EQ(name("host", {rank / 2 * 2 + 1, rank / 2 * 2}), "shm");
    EXPECT_EQ(name("twins", {rank % 2, 2 + rank % 2, 4 + rank % 2}), "tcp");
    EXPECT_EQ(name("other order", {4, 5, 0, 1, 2, 3}), "hierarchical");
    EXPECT_EQ(name("in turns", {0, 2, 4, 1, 3, 5}), "tcp");
    if (rank < 4) {
      EXPECT_EQ(name("two hosts", {2, 3, 0, 1}), "hierarchical");
    }
    if (rank < 3) {
      EXPECT_EQ(name("unequal", {0, 1, 2}), "hierarchical");
    }
  });
}

TEST(Hierarchical, HostsThatDoNotFit_AreReachedOverTcpAlone) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"a", "b", "a"}, "tcp"}, {{"a", "b"}, "tcp"}, {{"a", "a"}, "shm"}, {{"a"}, "tcp"}};
  for (const auto& [hosts, backend] : cases) {
    Communicators group = ConnectHosts(hosts, kLong);
    ForEachRank(group, [&](Communicator& c) {
      EXPECT_EQ(c.BackendName(), backend);
      std::vector<float> values(kCount, 1.0f);
      EXPECT_EQ(c.AllReduce(values, values), absl::OkStatus());
      EXPECT_EQ(values.back(), static_cast<float>(hosts.size()));
    });
  }
}

// The timeout may be short, but a machine under load needs time to measure links.
TEST(Hierarchical, TimeoutOfOperations_IsNoneOfConnecting) {
  for (const std::vector<std::string>& hosts :
       {HostNames(2, 2), HostNames(1, 2), HostNames(1, 1)}) {
    Communicators group = ConnectHosts(hosts, absl::ZeroDuration(), HierarchyOptions{});
    ForEachRank(group, [&](Communicator& c) {
      EXPECT_EQ(c.health(), absl::OkStatus());
      EXPECT_EQ(c.timeout(), absl::ZeroDuration());
      c.SetTimeout(kLong);
      std::vector<float> values(kCount, 1.0f);
      EXPECT_EQ(c.AllReduce(values, values), absl::OkStatus());
      EXPECT_EQ(values.back(), static_cast<float>(hosts.size()));
    });
  }
}

// A failure on one host reaches all hosts with the same words, though it happened in memory.
TEST(Hierarchical, FailureWithinOneHost_IsToldToAllHosts) {
  Communicators group = ConnectHosts(HostNames(2, 2), kLong);
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> values(c.Rank() == 3 ? 7 : 5);
    const absl::Status status = c.AllReduce(values, values);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("rank 3 called AllReduce of 7"), absl::string_view::npos)
        << status;
    EXPECT_EQ(c.health(), status);
  });
}

// Rank 0 both sends and receives, one of them within its host. Its peer there waits for rank 2.
// Rank 2 waits for the other part of rank 0's call, which has more bytes than connections hold.
TEST(SendReceive, OfTwoHosts_GoesOnOnOneWhileTheOtherIsAwaited) {
  constexpr size_t kMuch = 4'000'000;
  Communicators group = ConnectHosts(HostNames({2, 1}), kLong);
  ForEachRank(group, [](Communicator& c) {
    std::vector<float> out(kMuch, static_cast<float>(c.Rank())), in(kMuch);
    const auto receive = [&](int peer) {
      EXPECT_EQ(c.Receive(in, peer), absl::OkStatus());
      EXPECT_EQ(in, std::vector<float>(kMuch, static_cast<float>(peer)));
    };
    // Sends to the other host, receives from its own.
    if (c.Rank() == 0) {
      EXPECT_EQ(c.SendReceive(out, 2, in, 1), absl::OkStatus());
    }
    if (c.Rank() == 1) {
      receive(2);
      EXPECT_EQ(c.Send(out, 0), absl::OkStatus());
    }
    if (c.Rank() == 2) {
      receive(0);
      EXPECT_EQ(c.Send(out, 1), absl::OkStatus());
    }
    // Sends to its own host, receives from the other.
    if (c.Rank() == 0) {
      EXPECT_EQ(c.SendReceive(out, 1, in, 2), absl::OkStatus());
    }
    if (c.Rank() == 1) {
      receive(2);
      receive(0);
    }
    if (c.Rank() == 2) {
      EXPECT_EQ(c.Send(out, 0), absl::OkStatus());
      EXPECT_EQ(c.Send(out, 1), absl::OkStatus());
    }
  });
}

}  // namespace
}  // namespace geminid::collectives
