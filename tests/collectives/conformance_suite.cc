// The contract of communicator.h, checked unchanged on every backend: on 1 to 4 ranks, or on 4 and
// 6 ranks for several hosts.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <future>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "collectives/partition.h"
#include "geminid/communicator.h"
#include "tests/base/long_tests.h"
#include "tests/collectives/elements.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using Bytes = std::vector<std::byte>;

constexpr DType kAllTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                               DType::kInt32,   DType::kInt64,    DType::kUint8};
// Elements per rank: nothing, one, odd, around a cache line, several small pieces.
constexpr size_t kCounts[] = {0, 1, 3, 63, 64, 65, 1000, 5003};
// More than the default piece_bytes of the shm backend in every type but the smallest.
constexpr size_t kLongCount = 300007;
constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(200);

struct Shape {
  DType dtype;
  size_t count;
};

// Long tests try all types with all counts. Other tests try each type with every second count, and
// each count with every second type.
std::vector<Shape> ShapesToTry() {
  std::vector<Shape> shapes;
  for (size_t type = 0; type < std::size(kAllTypes); ++type) {
    for (size_t count = 0; count < std::size(kCounts); ++count) {
      if (LongTests() || (type + count) % 2 == 0)
        shapes.push_back({kAllTypes[type], kCounts[count]});
    }
  }
  return shapes;
}

Bytes Concatenate(const std::vector<Bytes>& parts) {
  Bytes whole;
  for (const Bytes& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

Bytes Slice(const Bytes& whole, size_t begin, size_t count, DType dtype) {
  const auto first = whole.begin() + static_cast<std::ptrdiff_t>(begin * SizeOf(dtype));
  return Bytes(first, first + static_cast<std::ptrdiff_t>(count * SizeOf(dtype)));
}

ConstBuffer In(const Bytes& bytes, DType dtype) {
  return ConstBuffer(bytes.data(), bytes.size() / SizeOf(dtype), dtype);
}
Buffer Out(Bytes& bytes, DType dtype) {
  return Buffer(bytes.data(), bytes.size() / SizeOf(dtype), dtype);
}

class Conformance : public testing::TestWithParam<std::tuple<Backend, int>> {
 protected:
  int world_size() const { return std::get<1>(GetParam()); }
  size_t ranks() const { return static_cast<size_t>(world_size()); }
  Communicators Connect(absl::Duration timeout = kLong) const {
    return std::get<0>(GetParam()).connect(world_size(), timeout);
  }
  std::vector<Bytes> Inputs(DType dtype, size_t count) const {
    std::vector<Bytes> inputs;
    for (int r = 0; r < world_size(); ++r) {
      inputs.push_back(RandomElements(dtype, count, 1000 * count + static_cast<size_t>(r)));
    }
    return inputs;
  }
  static size_t At(const Communicator& c) { return static_cast<size_t>(c.Rank()); }
  // Counts to send from or to this root. Long ones use the last root, or in long tests each root.
  std::vector<size_t> CountsTo(int root) const {
    std::vector<size_t> counts = {0, 1, 5003};
    if (LongTests() || root == world_size() - 1) counts.push_back(kLongCount);
    return counts;
  }
};

class ConformanceWithPeers : public Conformance {};
class ConformanceOfFour : public Conformance {};

TEST_P(Conformance, Ranks_AreNumberedFromZero) {
  Communicators group = Connect();
  for (int r = 0; r < world_size(); ++r) {
    EXPECT_EQ(group[static_cast<size_t>(r)]->Rank(), r);
    EXPECT_EQ(group[static_cast<size_t>(r)]->WorldSize(), world_size());
  }
}

TEST_P(Conformance, AllGather_OrdersSlicesByRank) {
  Communicators group = Connect();
  for (const Shape& shape : ShapesToTry()) {
    const DType dtype = shape.dtype;
    const size_t count = shape.count;
    const auto inputs = Inputs(dtype, count);
    const Bytes expected = Concatenate(inputs);
    ForEachRank(group, [&](Communicator& c) {
      Bytes out(expected.size());
      EXPECT_EQ(c.AllGather(In(inputs[At(c)], dtype), Out(out, dtype)), absl::OkStatus());
      EXPECT_EQ(out, expected) << Name(dtype) << " " << count;
      // In place: the rank's own slice already lies where it belongs.
      Bytes whole(expected.size());
      const size_t begin = At(c) * inputs[0].size();
      std::copy(inputs[At(c)].begin(), inputs[At(c)].end(),
                whole.begin() + static_cast<std::ptrdiff_t>(begin));
      EXPECT_EQ(c.AllGather(ConstBuffer(whole.data() + begin, count, dtype), Out(whole, dtype)),
                absl::OkStatus());
      EXPECT_EQ(whole, expected) << Name(dtype) << " " << count << " in place";
    });
  }
}

TEST_P(Conformance, ReduceScatter_EqualsReductionInRankOrder) {
  Communicators group = Connect();
  for (const Shape& shape : ShapesToTry()) {
    const DType dtype = shape.dtype;
    const size_t count = shape.count;
    const auto inputs = Inputs(dtype, count * ranks());
    const double scale = IsFloating(dtype) ? 1.0 / world_size() : 1.0;
    const Bytes reduced = ReduceOneByOne(inputs, dtype, ReduceOp::kSum, scale);
    ForEachRank(group, [&](Communicator& c) {
      const Bytes expected = Slice(reduced, At(c) * count, count, dtype);
      Bytes out(expected.size());
      EXPECT_EQ(c.ReduceScatter(In(inputs[At(c)], dtype), Out(out, dtype), ReduceOp::kSum,
                                {.scale = scale}),
                absl::OkStatus());
      EXPECT_EQ(out, expected) << Name(dtype) << " " << count;
      Bytes whole = inputs[At(c)];
      Buffer own(whole.data() + At(c) * expected.size(), count, dtype);
      EXPECT_EQ(c.ReduceScatter(In(whole, dtype), own, ReduceOp::kSum, {.scale = scale}),
                absl::OkStatus());
      EXPECT_EQ(Slice(whole, At(c) * count, count, dtype), expected)
          << Name(dtype) << " " << count << " in place";
    });
  }
}

TEST_P(Conformance, AllReduce_EqualsReductionInRankOrder) {
  Communicators group = Connect();
  int turn = 0;
  for (const DType dtype : kAllTypes) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax}) {
      // 33001 elements and more are beyond kDirectAllReduceBytes for every type.
      for (const size_t count : {0u, 1u, 7u, 1000u, 33001u}) {
        // Each operation has each count with every second type, and each type with every second
        // count.
        if (!LongTests() && ++turn % 2 != 0) continue;
        const auto inputs = Inputs(dtype, count);
        const Bytes expected = ReduceOneByOne(inputs, dtype, op, 1.0);
        ForEachRank(group, [&](Communicator& c) {
          Bytes out(expected.size());
          EXPECT_EQ(c.AllReduce(In(inputs[At(c)], dtype), Out(out, dtype), op), absl::OkStatus());
          EXPECT_EQ(out, expected) << Name(dtype) << " " << Name(op) << " " << count;
          Bytes inout = inputs[At(c)];
          EXPECT_EQ(c.AllReduce(In(inout, dtype), Out(inout, dtype), op), absl::OkStatus());
          EXPECT_EQ(inout, expected)
              << Name(dtype) << " " << Name(op) << " " << count << " in place";
        });
      }
    }
  }
}

TEST_P(Conformance, LongBuffers_PassThroughManyPieces) {
  Communicators group = Connect();
  constexpr DType kType = DType::kFloat32;
  const auto inputs = Inputs(kType, kLongCount * ranks());
  const Bytes reduced = ReduceOneByOne(inputs, kType, ReduceOp::kSum, 0.5);
  ForEachRank(group, [&](Communicator& c) {
    Bytes slice(kLongCount * sizeof(float));
    EXPECT_EQ(c.ReduceScatter(In(inputs[At(c)], kType), Out(slice, kType), ReduceOp::kSum,
                              {.scale = 0.5}),
              absl::OkStatus());
    Bytes whole(reduced.size());
    EXPECT_EQ(c.AllGather(In(slice, kType), Out(whole, kType)), absl::OkStatus());
    EXPECT_TRUE(whole == reduced);
    Bytes all(reduced.size());
    EXPECT_EQ(
        c.AllReduce(In(inputs[At(c)], kType), Out(all, kType), ReduceOp::kSum, {.scale = 0.5}),
        absl::OkStatus());
    EXPECT_TRUE(all == reduced);
  });
}

TEST_P(Conformance, FloatSum_IsCloseToFloat64) {
  Communicators group = Connect();
  constexpr size_t kCount = 20000;
  const auto inputs = Inputs(DType::kFloat32, kCount);
  ForEachRank(group, [&](Communicator& c) {
    Bytes out(inputs[0].size());
    EXPECT_EQ(c.AllReduce(In(inputs[At(c)], DType::kFloat32), Out(out, DType::kFloat32)),
              absl::OkStatus());
    for (size_t i = 0; i < kCount; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (const Bytes& input : inputs) {
        sum += ValueOf(input, i, DType::kFloat32);
        magnitude += std::abs(ValueOf(input, i, DType::kFloat32));
      }
      // Each addition has an error of at most half a unit of 2^-23 of a partial sum.
      const int additions = std::max(1, world_size() - 1);
      ASSERT_NEAR(ValueOf(out, i, DType::kFloat32), sum, additions * 0x1p-24 * magnitude + 1e-300);
    }
  });
}

TEST_P(Conformance, MeanOf30000InFloat16_DoesNotOverflow) {
  Communicators group = Connect();
  const Float16 value{EncodeHalf(30000, kFloat16ExponentBits)};
  ForEachRank(group, [&](Communicator& c) {
    std::vector<Float16> in(100 * ranks(), value);
    std::vector<Float16> out(100);
    EXPECT_EQ(c.ReduceScatter(in, out, ReduceOp::kSum, {.scale = 1.0 / world_size()}),
              absl::OkStatus());
    EXPECT_EQ(out, std::vector<Float16>(100, value));
  });
}

TEST_P(Conformance, Broadcast_FromEveryRoot_ReachesAll) {
  Communicators group = Connect();
  for (int root = 0; root < world_size(); ++root) {
    for (const size_t count : CountsTo(root)) {
      const Bytes expected = Pattern(DType::kFloat32, count, root);
      ForEachRank(group, [&](Communicator& c) {
        Bytes inout = c.Rank() == root ? expected : Bytes(expected.size());
        EXPECT_EQ(c.Broadcast(Out(inout, DType::kFloat32), root), absl::OkStatus());
        EXPECT_TRUE(inout == expected) << count;
      });
    }
  }
}

TEST_P(Conformance, Reduce_ToEveryRoot_EqualsReductionInRankOrder) {
  Communicators group = Connect();
  int turn = 0;
  for (int root = 0; root < world_size(); ++root) {
    for (const DType dtype : kAllTypes) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5003}}) {
        // Each root has each count with some types, each type has each count with some roots.
        if (!LongTests() && ranks() > 3 && ++turn % 4 != 0) continue;
        const auto inputs = Inputs(dtype, count);
        const double scale = IsFloating(dtype) ? 0.5 : 1.0;
        const Bytes expected = ReduceOneByOne(inputs, dtype, ReduceOp::kSum, scale);
        ForEachRank(group, [&](Communicator& c) {
          Bytes out(c.Rank() == root ? expected.size() : 0);
          EXPECT_EQ(c.Reduce(In(inputs[At(c)], dtype), Out(out, dtype), root, ReduceOp::kSum,
                             {.scale = scale}),
                    absl::OkStatus());
          EXPECT_EQ(out, c.Rank() == root ? expected : Bytes()) << Name(dtype) << " " << count;
          Bytes inout = inputs[At(c)];
          EXPECT_EQ(
              c.Reduce(In(inout, dtype), Out(inout, dtype), root, ReduceOp::kSum, {.scale = scale}),
              absl::OkStatus());
          EXPECT_EQ(inout, c.Rank() == root ? expected : inputs[At(c)])
              << Name(dtype) << " " << count << " in place";
        });
      }
    }
  }
}

TEST_P(Conformance, Gather_ToEveryRoot_OrdersSlicesByRank) {
  Communicators group = Connect();
  for (int root = 0; root < world_size(); ++root) {
    for (const size_t count : CountsTo(root)) {
      const auto inputs = Inputs(DType::kInt32, count);
      const Bytes expected = Concatenate(inputs);
      ForEachRank(group, [&](Communicator& c) {
        Bytes out(c.Rank() == root ? expected.size() : 0);
        EXPECT_EQ(c.Gather(In(inputs[At(c)], DType::kInt32), Out(out, DType::kInt32), root),
                  absl::OkStatus());
        EXPECT_TRUE(out == (c.Rank() == root ? expected : Bytes())) << count;
      });
    }
  }
}

TEST_P(Conformance, StatsOfReduceAndGather_AreTheRootsAlone) {
  Communicators group = Connect();
  constexpr uint64_t kCount = 100;
  const int root = world_size() - 1;
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> own(kCount), all(kCount * ranks());
    EXPECT_EQ(c.Reduce(own, own, root), absl::OkStatus());
    EXPECT_EQ(c.Gather(own, all, root), absl::OkStatus());
    const CommunicatorStats stats = c.Stats();
    for (int r = 0; r < world_size(); ++r) {
      PeerTraffic expected;
      if (r != c.Rank() && r == root) expected.bytes_sent = 2 * kCount * sizeof(float);
      if (r != c.Rank() && c.Rank() == root) expected.bytes_received = 2 * kCount * sizeof(float);
      EXPECT_EQ(stats.peers[static_cast<size_t>(r)], expected) << r;
    }
    EXPECT_EQ(stats.operations[static_cast<size_t>(OpKind::kReduce)], 1u);
    EXPECT_EQ(stats.operations[static_cast<size_t>(OpKind::kGather)], 1u);
  });
}

TEST_P(Conformance, ReduceAndGather_RefuseWrongArgumentsAtOnce) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> own(4), other(5);
    const auto refused = absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(c.Reduce(own, own, world_size()).code(), refused);
    EXPECT_EQ(c.Gather(own, own, -1).code(), refused);
    EXPECT_EQ(c.Reduce(own, other, c.Rank()).code(), refused);
    EXPECT_EQ(c.Gather(own, other, c.Rank()).code(), refused);
    EXPECT_EQ(c.health(), absl::OkStatus());
  });
}

TEST_P(Conformance, AllToAll_TransposesSlices) {
  Communicators group = Connect();
  for (const Shape& shape : ShapesToTry()) {
    const DType dtype = shape.dtype;
    const size_t count = shape.count;
    const auto inputs = Inputs(dtype, count * ranks());
    ForEachRank(group, [&](Communicator& c) {
      std::vector<Bytes> slices;
      for (const Bytes& input : inputs) {
        slices.push_back(Slice(input, At(c) * count, count, dtype));
      }
      Bytes out(inputs[0].size());
      EXPECT_EQ(c.AllToAll(In(inputs[At(c)], dtype), Out(out, dtype)), absl::OkStatus());
      EXPECT_EQ(out, Concatenate(slices)) << Name(dtype) << " " << count;
    });
  }
}

TEST_P(Conformance, SendReceive_AroundTheRing_ShiftsByOne) {
  Communicators group = Connect();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{5003}, kLongCount}) {
    ForEachRank(group, [&](Communicator& c) {
      const int next = (c.Rank() + 1) % world_size();
      const int last = (c.Rank() + world_size() - 1) % world_size();
      const Bytes in = Pattern(DType::kFloat32, count, c.Rank());
      Bytes out(in.size());
      EXPECT_EQ(c.SendReceive(In(in, DType::kFloat32), next, Out(out, DType::kFloat32), last),
                absl::OkStatus());
      EXPECT_TRUE(out == Pattern(DType::kFloat32, count, last)) << count;
    });
  }
}

TEST_P(ConformanceWithPeers, Messages_ArriveInOrder) {
  Communicators group = Connect();
  constexpr int kMessages = 50;
  ForEachRank(group, [&](Communicator& c) {
    const int last = world_size() - 1;
    for (int i = 0; i < kMessages; ++i) {
      std::vector<int32_t> numbers(static_cast<size_t>(i) * 100, i);
      if (c.Rank() == 0) {
        EXPECT_EQ(c.Send(numbers, last, i), absl::OkStatus());
      } else if (c.Rank() == last) {
        std::vector<int32_t> received(numbers.size());
        EXPECT_EQ(c.Receive(received, 0, i), absl::OkStatus());
        EXPECT_EQ(received, numbers);
      }
    }
    EXPECT_EQ(c.Barrier(), absl::OkStatus());
  });
}

TEST_P(Conformance, Barrier_ReturnsAfterAllHaveEntered) {
  Communicators group = Connect();
  constexpr int kRounds = 200;
  std::atomic<int> entered{0};
  ForEachRank(group, [&](Communicator& c) {
    for (int i = 1; i <= kRounds; ++i) {
      entered.fetch_add(1);
      EXPECT_EQ(c.Barrier(), absl::OkStatus());
      EXPECT_GE(entered.load(), i * world_size());
      EXPECT_EQ(c.Barrier(), absl::OkStatus());
    }
  });
}

TEST_P(Conformance, Stats_AreTheClosedForms) {
  Communicators group = Connect();
  const uint64_t p = ranks();
  // All numbers of ranks divide it; 48000 bytes exceed the direct way.
  constexpr uint64_t kCount = 12000;
  constexpr uint64_t kSmall = 12;
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> slice(kCount / p), whole(kCount), other(kCount), few(kSmall);
    EXPECT_EQ(c.AllGather(slice, whole), absl::OkStatus());
    EXPECT_EQ(c.ReduceScatter(whole, slice), absl::OkStatus());
    EXPECT_EQ(c.AllReduce(whole, whole), absl::OkStatus());
    EXPECT_EQ(c.AllReduce(few, few), absl::OkStatus());
    EXPECT_EQ(c.Broadcast(few, 0), absl::OkStatus());
    EXPECT_EQ(c.AllToAll(whole, other), absl::OkStatus());
    EXPECT_EQ(c.Barrier(), absl::OkStatus());
    const CommunicatorStats stats = c.Stats();
    for (int r = 0; r < world_size(); ++r) {
      PeerTraffic expected;
      if (r != c.Rank()) {
        const uint64_t slices = 5 * (kCount / p) * 4;  // gather, scatter, reduce twice, transpose
        expected = {.bytes_sent = slices + kSmall * 4, .bytes_received = slices + kSmall * 4};
        if (c.Rank() == 0) expected.bytes_sent += kSmall * 4;
        if (r == 0) expected.bytes_received += kSmall * 4;
      }
      EXPECT_EQ(stats.peers[static_cast<size_t>(r)].bytes_sent, expected.bytes_sent) << r;
      EXPECT_EQ(stats.peers[static_cast<size_t>(r)].bytes_received, expected.bytes_received) << r;
    }
    EXPECT_EQ(stats.operations[static_cast<size_t>(OpKind::kAllReduce)], 2u);
    EXPECT_EQ(stats.operations[static_cast<size_t>(OpKind::kAllGather)], 1u);
    EXPECT_EQ(stats.operations[static_cast<size_t>(OpKind::kBarrier)], 1u);
  });
}

// The traffic of `rank` with `peer`, by kind. Reduce and Gather go to rank 0, messages to the next
// rank.
PeerTraffic TrafficOfOne(OpKind kind, int rank, int peer, int ranks, uint64_t bytes) {
  const uint64_t slice = bytes / static_cast<uint64_t>(ranks);
  if (rank == peer) return {};
  switch (kind) {
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
      return {slice, slice};
    case OpKind::kAllReduce:
      return {2 * slice, 2 * slice};
    case OpKind::kBroadcast:
      return {rank == 0 ? bytes : 0, peer == 0 ? bytes : 0};
    case OpKind::kReduce:
    case OpKind::kGather:
      return {peer == 0 ? bytes : 0, rank == 0 ? bytes : 0};
    case OpKind::kSend:
      return {(rank + 1) % ranks == peer ? bytes : 0, 0};
    case OpKind::kReceive:
      return {0, (peer + 1) % ranks == rank ? bytes : 0};
    case OpKind::kBarrier:
      return {};
  }
  return {};
}

void CallEachOnce(Communicator& c, size_t count) {
  const auto p = static_cast<size_t>(c.WorldSize());
  std::vector<float> slice(count / p), whole(count), other(count), all(count * p);
  EXPECT_EQ(c.AllGather(slice, whole), absl::OkStatus());
  EXPECT_EQ(c.ReduceScatter(whole, slice), absl::OkStatus());
  EXPECT_EQ(c.AllReduce(whole, whole), absl::OkStatus());
  EXPECT_EQ(c.Broadcast(whole, 0), absl::OkStatus());
  EXPECT_EQ(c.AllToAll(whole, other), absl::OkStatus());
  EXPECT_EQ(c.Reduce(whole, other, 0), absl::OkStatus());
  EXPECT_EQ(c.Gather(whole, all, 0), absl::OkStatus());
  const int next = (c.Rank() + 1) % c.WorldSize();
  const int last = (c.Rank() + c.WorldSize() - 1) % c.WorldSize();
  EXPECT_EQ(c.SendReceive(whole, next, other, last), absl::OkStatus());
  EXPECT_EQ(c.Barrier(), absl::OkStatus());
}

void ExpectTraffic(const Communicator& c, uint64_t times, uint64_t bytes) {
  const CommunicatorStats stats = c.Stats();
  for (int i = 0; i < kOpKindCount; ++i) {
    const auto kind = static_cast<OpKind>(i);
    const OperationTraffic& traffic = stats.traffic[static_cast<size_t>(i)];
    EXPECT_EQ(traffic.calls, times) << Name(kind);
    EXPECT_GE(traffic.seconds, 0) << Name(kind);
    ASSERT_EQ(traffic.peers.size(), static_cast<size_t>(c.WorldSize()));
    for (int peer = 0; peer < c.WorldSize(); ++peer) {
      const PeerTraffic one = TrafficOfOne(kind, c.Rank(), peer, c.WorldSize(), bytes);
      EXPECT_EQ(traffic.peers[static_cast<size_t>(peer)].bytes_sent, times * one.bytes_sent)
          << Name(kind) << " to " << peer;
      EXPECT_EQ(traffic.peers[static_cast<size_t>(peer)].bytes_received, times * one.bytes_received)
          << Name(kind) << " from " << peer;
    }
  }
}

TEST_P(Conformance, TrafficOfEachOperation_IsItsClosedForm) {
  Communicators group = Connect();
  // All numbers of ranks divide it; 48000 bytes exceed the direct way.
  constexpr size_t kCount = 12000;
  ForEachRank(group, [&](Communicator& c) {
    CallEachOnce(c, kCount);
    ExpectTraffic(c, 1, kCount * sizeof(float));
  });
}

TEST_P(Conformance, NetworkTrafficOfOperations_AddsUpToThatOfPeers) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    const uint64_t before = ReceivedFromAll(c.Stats().network);
    CallEachOnce(c, 12000);
    const CommunicatorStats stats = c.Stats();
    uint64_t bytes = 0;
    for (const OperationTraffic& traffic : stats.traffic) {
      bytes += traffic.network_bytes_received;
      if (std::string(c.BackendName()) != "tcp") continue;
      EXPECT_EQ(traffic.network_bytes_received, ReceivedFromAll(traffic.peers));
    }
    // Some of the traffic may stay within a host.
    const uint64_t all = ReceivedFromAll(stats.network) - before;
    if (std::string(c.BackendName()) == "hierarchical") {
      EXPECT_LE(bytes, all);
    } else {
      EXPECT_EQ(bytes, all);
    }
  });
}

TEST_P(Conformance, TrafficOfDuplicatesAndSubsets_CountsWhereTheyWereMade) {
  Communicators group = Connect();
  constexpr size_t kCount = 12000;
  ForEachRank(group, [&](Communicator& c) {
    auto duplicate = c.Duplicate("again");
    ASSERT_TRUE(duplicate.ok()) << duplicate.status();
    std::vector<int> backwards(ranks());
    for (int r = 0; r < world_size(); ++r) backwards[static_cast<size_t>(r)] = world_size() - 1 - r;
    auto subset = (*duplicate)->Subset("backwards", backwards);
    ASSERT_TRUE(subset.ok()) << subset.status();
    CallEachOnce(**duplicate, kCount);
    ExpectTraffic(c, 1, kCount * sizeof(float));
    std::vector<float> value(1);
    EXPECT_EQ((*subset)->Broadcast(value, 0), absl::OkStatus());
    (*subset).reset();  // its traffic stays counted
    const bool is_root = c.Rank() == world_size() - 1;
    for (const Communicator* counted : {&c, duplicate->get()}) {
      const auto broadcasts = counted->Stats().traffic[static_cast<size_t>(OpKind::kBroadcast)];
      EXPECT_EQ(broadcasts.calls, 2u);
      for (int r = 0; r < world_size(); ++r) {
        const uint64_t first = r != c.Rank() && c.Rank() == 0 ? kCount * sizeof(float) : 0;
        const uint64_t second = r != c.Rank() && is_root ? sizeof(float) : 0;
        EXPECT_EQ(broadcasts.peers[static_cast<size_t>(r)].bytes_sent, first + second) << r;
      }
    }
    EXPECT_EQ(c.Barrier(), absl::OkStatus());
  });
}

TEST_P(Conformance, StatsOfUnevenAllReduce_FollowThePartition) {
  Communicators group = Connect();
  constexpr size_t kCount = 10007;  // prime, 80056 bytes
  ForEachRank(group, [&](Communicator& c) {
    std::vector<double> values(kCount, 1.0);
    EXPECT_EQ(c.AllReduce(values, values), absl::OkStatus());
    EXPECT_EQ(values, std::vector<double>(kCount, world_size()));
    const Partition parts(kCount, world_size());
    const CommunicatorStats stats = c.Stats();
    for (int r = 0; r < world_size(); ++r) {
      if (r == c.Rank()) continue;
      const uint64_t both = (parts.Count(r) + parts.Count(c.Rank())) * sizeof(double);
      EXPECT_EQ(stats.peers[static_cast<size_t>(r)].bytes_sent, both);
      EXPECT_EQ(stats.peers[static_cast<size_t>(r)].bytes_received, both);
    }
  });
}

TEST_P(Conformance, BadArguments_AreRefusedAndDoNotPoison) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> one(1), whole(ranks()), longer(ranks() + 1);
    std::vector<double> doubles(ranks());
    std::vector<int32_t> integers(ranks());
    const auto kInvalid = absl::StatusCode::kInvalidArgument;
    EXPECT_EQ(c.AllGather(one, longer).code(), kInvalid);
    EXPECT_EQ(c.AllGather(one, doubles).code(), kInvalid);
    EXPECT_EQ(c.ReduceScatter(longer, one).code(), kInvalid);
    EXPECT_EQ(c.AllReduce(whole, longer).code(), kInvalid);
    EXPECT_EQ(c.AllReduce(integers, integers, ReduceOp::kSum, {.scale = 0.5}).code(), kInvalid);
    EXPECT_EQ(c.AllReduce(whole, whole, ReduceOp::kMax, {.scale = 0.5}).code(), kInvalid);
    for (const double scale : {NAN, INFINITY}) {
      EXPECT_EQ(c.AllReduce(whole, whole, ReduceOp::kSum, {.scale = scale}).code(), kInvalid);
      EXPECT_EQ(c.Reduce(whole, whole, 0, ReduceOp::kSum, {.scale = scale}).code(), kInvalid);
    }
    EXPECT_EQ(c.AllReduce(whole, whole, ReduceOp{99}).code(), kInvalid);
    EXPECT_EQ(c.AllReduce(std::span(longer).first(ranks()), std::span(longer).last(ranks())).code(),
              ranks() == 1 ? absl::StatusCode::kOk : kInvalid);
    EXPECT_EQ(c.Broadcast(one, world_size()).code(), kInvalid);
    EXPECT_EQ(c.Broadcast(one, -1).code(), kInvalid);
    EXPECT_EQ(c.Send(one, world_size()).code(), kInvalid);
    EXPECT_EQ(c.Send(one, c.Rank()).code(), kInvalid);
    EXPECT_EQ(c.Receive(Buffer(nullptr, 1, DType::kFloat32), 0).code(), kInvalid);
    EXPECT_EQ(c.Subset("x", std::vector<int>{}).status().code(), kInvalid);
    EXPECT_EQ(c.Subset("x", std::vector<int>{c.Rank(), c.Rank()}).status().code(), kInvalid);
    EXPECT_EQ(c.health(), absl::OkStatus());
    EXPECT_EQ(c.AllGather(one, whole), absl::OkStatus());
  });
}

TEST_P(ConformanceWithPeers, RanksThatDisagree_AllLearnWhoCalledWhat) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> values(5);
    const absl::Status status = c.Rank() == 1 ? c.Barrier() : c.AllReduce(values, values);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("rank 1 called Barrier"), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("AllReduce of 5 float32"), absl::string_view::npos) << status;
    EXPECT_EQ(c.Barrier(), status);
  });
}

// A root waits for nobody, so it may learn of the others' roots only in the next collective.
TEST_P(ConformanceWithPeers, BroadcastsFromDifferentRoots_AreFoundByTheNextCollective) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> values(5, static_cast<float>(c.Rank()));
    absl::Status status = c.Broadcast(values, c.Rank() == 1 ? 1 : 0);
    if (status.ok()) status = c.Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(status.message().find("rank 1 called "), absl::string_view::npos) << status;
    EXPECT_NE(status.message().find("Broadcast of 5 float32 from rank "), absl::string_view::npos)
        << status;
  });
}

TEST_P(ConformanceWithPeers, BroadcastsThatAgree_AreNoDisagreement) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    for (int root = 0; root < world_size(); ++root) {
      std::vector<float> values(3, static_cast<float>(c.Rank()));
      c.SetLabel(root % 2 == 0 ? "even" : "");
      ASSERT_EQ(c.Broadcast(values, root), absl::OkStatus());
      ASSERT_EQ(values, std::vector<float>(3, static_cast<float>(root)));
      ASSERT_EQ(c.Barrier(), absl::OkStatus());
    }
  });
}

TEST_P(ConformanceWithPeers, MessageOfAnotherSize_IsAnErrorOfBoth) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    std::vector<float> more(5), fewer(4);
    absl::Status status;
    if (c.Rank() == 0) status = c.Send(more, 1);
    if (c.Rank() == 1) status = c.Receive(fewer, 0);
    if (c.Rank() == 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_NE(status.message().find("Send of 5 float32"), absl::string_view::npos) << status;
    }
    // A rank that took no part learns of the failure in the next operation.
    EXPECT_EQ(c.Barrier().code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST_P(ConformanceWithPeers, AbsentRank_IsNamedAfterTheTimeout) {
  const int absent = world_size() - 1;
  std::vector<std::string> words(static_cast<size_t>(absent));
  // The message also names ranks that come later than the timeout.
  const auto only_absent_is_named = [&](absl::Duration timeout) {
    Communicators group = Connect(timeout);
    ForEachRank(group, [&](Communicator& c) {
      if (c.Rank() == absent) return;
      std::vector<float> values(1000), out(1000 * ranks());
      const absl::Status status = c.AllGather(values, out);
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      words[static_cast<size_t>(c.Rank())] = std::string(status.message());
    });
    const std::string named = absl::StrCat(": rank ", absent, " did not arrive within ");
    return std::ranges::all_of(words, [&](const std::string& of_rank) {
      return of_rank.find(named) != std::string::npos &&
             of_rank.find("all ranks must make the same calls") != std::string::npos;
    });
  };
  EXPECT_TRUE(WithTimeForAll(only_absent_is_named)) << absl::StrJoin(words, "\n");
}

TEST_P(ConformanceWithPeers, AbsentSender_IsNamedAfterTheTimeout) {
  Communicators group = Connect(kShort);
  std::vector<float> values(10);
  const absl::Status status = group[0]->Receive(values, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_NE(status.message().find("rank 1 did not arrive"), absl::string_view::npos) << status;
}

TEST_P(ConformanceWithPeers, PoisonedCommunicator_RepeatsItsErrorAtOnce) {
  Communicators group = Connect(kShort);
  const absl::Status first = group[0]->Barrier();
  EXPECT_EQ(first.code(), absl::StatusCode::kDeadlineExceeded);
  group[0]->SetTimeout(absl::InfiniteDuration());  // a call that waited would now wait for ever
  std::vector<float> one(1), whole(ranks());
  EXPECT_EQ(group[0]->AllGather(one, whole), first);
  EXPECT_EQ(group[0]->ReduceScatter(whole, one), first);
  EXPECT_EQ(group[0]->AllReduce(one, one), first);
  EXPECT_EQ(group[0]->Broadcast(one, 0), first);
  EXPECT_EQ(group[0]->Send(one, 1), first);
  EXPECT_EQ(group[0]->Receive(one, 1), first);
  EXPECT_EQ(group[0]->Barrier(), first);
  EXPECT_EQ(group[0]->Duplicate("x").status(), first);
  EXPECT_EQ(group[0]->health(), first);
}

TEST_P(Conformance, Abort_EndsTheWaitOfAll) {
  Communicators group = Connect(absl::InfiniteDuration());
  std::promise<void> go;
  std::shared_future<void> gone(go.get_future());
  ForEachRank(group, [&](Communicator& c) {
    if (c.Rank() == 0) {
      // Another thread aborts while this one waits or is about to wait. Both must end.
      std::thread([&c] { c.Abort("the loss is NaN"); }).join();
      go.set_value();
    }
    std::vector<float> values(100);
    absl::Status status;
    if (c.Rank() == 0) gone.wait();
    status = c.AllReduce(values, values);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(status.message(), "rank 0 aborted the communicator: the loss is NaN");
    EXPECT_EQ(c.Barrier(), status);
  });
}

TEST_P(ConformanceWithPeers, AbortOfTheWaitingRank_EndsItsOwnWait) {
  Communicators group = Connect(absl::InfiniteDuration());
  auto waiting = std::async(std::launch::async, [&] { return group[0]->Barrier(); });
  group[0]->Abort("enough");
  EXPECT_EQ(waiting.get().code(), absl::StatusCode::kAborted);
}

// The duplicate waits for a rank that does not come.
TEST_P(ConformanceWithPeers, AbortWhileADuplicateIsMade_EndsTheWaitOfAll) {
  const std::string backend = std::get<0>(GetParam()).name;
  if (backend == "local" || backend.find("nccl") != std::string::npos) {
    GTEST_SKIP() << "in one process nobody waits; with NCCL who waits is not told";
  }
  Communicators group = Connect(absl::InfiniteDuration());
  const int refused = world_size() - 1;
  ForEachRank(group, [&](Communicator& c) {
    if (c.Rank() == refused) return c.Abort("it has no memory");
    const absl::Status status = c.Duplicate("more").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_NE(status.message().find("it has no memory"), absl::string_view::npos) << status;
  });
}

TEST_P(ConformanceWithPeers, RankThatLeft_IsNamed) {
  Communicators group = Connect(absl::InfiniteDuration());
  const int gone = world_size() - 1;
  group.back().reset();
  ForEachRank(group, [&](Communicator& c) {
    const absl::Status status = c.Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_NE(status.message().find(absl::StrCat("rank ", gone, " left")), absl::string_view::npos)
        << status;
  });
}

TEST_P(ConformanceWithPeers, SenderThatLeft_IsNamed) {
  Communicators group = Connect(absl::InfiniteDuration());
  group[1].reset();
  std::vector<float> values(10);
  const absl::Status status = group[0]->Receive(values, 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_NE(status.message().find("rank 1 left"), absl::string_view::npos) << status;
}

TEST_P(Conformance, LeavingAfterTheLastOperation_DisturbsNobody) {
  const int trials = LongTests() ? 20 : 8;
  for (int trial = 0; trial < trials; ++trial) {
    Communicators group = Connect(absl::InfiniteDuration());
    ForEachRank(group, [&](Communicator& c) {
      std::vector<float> values(1000, 1.0f);
      EXPECT_EQ(c.AllReduce(values, values), absl::OkStatus());
      EXPECT_EQ(values, std::vector<float>(1000, static_cast<float>(world_size())));
      group[At(c)].reset();
    });
  }
}

TEST_P(Conformance, Duplicate_WorksBesideTheFirst) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    auto second = c.Duplicate("gradients");
    ASSERT_TRUE(second.ok()) << second.status();
    auto third = c.Duplicate("gradients");  // the same name again makes another communicator
    ASSERT_TRUE(third.ok()) << third.status();
    auto use = [&](Communicator& communicator, float value) {
      for (int i = 0; i < 50; ++i) {
        std::vector<float> values(300, value);
        ASSERT_EQ(communicator.AllReduce(values, values), absl::OkStatus());
        ASSERT_EQ(values, std::vector<float>(300, value * static_cast<float>(world_size())));
      }
    };
    std::thread other([&] { use(**second, 2.0f); });
    use(c, 3.0f);
    other.join();
    use(**third, 4.0f);
  });
}

// More bytes than a piece, in each kind of operation.
TEST_P(Conformance, DuplicateForSmallMessages_GivesTheSameResults) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    const auto small = c.Duplicate("small", Messages::kSmall);
    ASSERT_TRUE(small.ok()) << small.status();
    std::vector<float> values(50'000);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % 97) + static_cast<float>(c.Rank());
    }
    std::vector<float> sums(values.size()), expected(values.size());
    ASSERT_EQ((*small)->AllReduce(values, sums), absl::OkStatus());
    ASSERT_EQ(c.AllReduce(values, expected), absl::OkStatus());
    EXPECT_EQ(sums, expected);
    std::vector<float> from_root = values;
    ASSERT_EQ((*small)->Broadcast(from_root, 0), absl::OkStatus());
    EXPECT_EQ(from_root[1], 1.0f);
    EXPECT_EQ(from_root.back(), static_cast<float>((values.size() - 1) % 97));
    if (world_size() == 1) return;
    std::vector<float> received(values.size());
    const int next = (c.Rank() + 1) % world_size();
    const int last = (c.Rank() + world_size() - 1) % world_size();
    ASSERT_EQ((*small)->SendReceive(values, next, received, last), absl::OkStatus());
    EXPECT_EQ(received[0], static_cast<float>(last));
    EXPECT_EQ(received.back() - values.back(), static_cast<float>(last - c.Rank()));
  });
}

TEST_P(Conformance, AbortOfTheDuplicate_LeavesTheFirstAlone) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    auto second = c.Duplicate("second");
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_EQ(c.Barrier(), absl::OkStatus());
    if (c.Rank() == 0) (*second)->Abort("only this one");
    EXPECT_EQ((*second)->Barrier().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(c.Barrier(), absl::OkStatus());
  });
}

TEST_P(ConformanceOfFour, DisjointSubsets_HaveTheirOwnRanks) {
  Communicators group = Connect();
  ForEachRank(group, [&](Communicator& c) {
    const int first = c.Rank() / 2 * 2;
    const auto row = first == 0 ? std::vector<int>{1, 0} : std::vector<int>{first, first + 1};
    auto subset = c.Subset("row", row);
    ASSERT_TRUE(subset.ok()) << subset.status();
    EXPECT_EQ((*subset)->WorldSize(), 2);
    EXPECT_EQ(row[static_cast<size_t>((*subset)->Rank())], c.Rank());
    std::vector<int32_t> own = {c.Rank()}, all(2);
    EXPECT_EQ((*subset)->AllGather(own, all), absl::OkStatus());
    EXPECT_EQ(all, row);
  });
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Backend, int>>& instance) {
  return absl::StrCat(std::get<0>(instance.param).name, "_of_", std::get<1>(instance.param));
}

auto OnAllBackends(int fewest_ranks) {
  std::vector<std::tuple<Backend, int>> cases;
  for (const Backend& backend : BackendsUnderTest()) {
    for (const int size : backend.world_sizes) {
      if (size >= fewest_ranks) cases.emplace_back(backend, size);
    }
  }
  return testing::ValuesIn(cases);
}

INSTANTIATE_TEST_SUITE_P(All, Conformance, OnAllBackends(1), NameOf);
INSTANTIATE_TEST_SUITE_P(All, ConformanceWithPeers, OnAllBackends(2), NameOf);
INSTANTIATE_TEST_SUITE_P(All, ConformanceOfFour, OnAllBackends(4), NameOf);

}  // namespace
}  // namespace geminid::collectives
