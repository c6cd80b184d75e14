// Compares the exchanges with the closed forms of collectives/ and with the counters of real
// layers' communicators, group by group.
#include "training/meshes/exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <ostream>
#include <vector>

#include "tests/collectives/world.h"
#include "training/nn/parallel/host_layer_math.h"
#include "training/nn/parallel/sequence/head_exchange.h"
#include "training/nn/parallel/sequence/ring_attention.h"
#include "training/nn/parallel/tensor/layer_scratch.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/tensor_traffic.h"

namespace geminid::parallel {
namespace {

using collectives::Communicator;
using collectives::Communicators;
using collectives::GridAxis;
using collectives::LinearRole;
using collectives::LinearShape;
using collectives::TensorGrid;
using collectives::TensorMode;

struct GridCase {
  TensorMode mode;
  int ranks;
  int depth = 1;
  friend std::ostream& operator<<(std::ostream& os, const GridCase& grid) {
    return os << Name(grid.mode) << "_" << grid.ranks << "_" << grid.depth;
  }
};
const GridCase kSmallGrids[] = {{TensorMode::k1D, 4},     {TensorMode::k1DSequence, 4},
                                {TensorMode::k2D, 4},     {TensorMode::k2D, 9},
                                {TensorMode::k25D, 8, 2}, {TensorMode::k25D, 12, 3},
                                {TensorMode::k3D, 8}};

TensorGrid GridOf(const GridCase& c) { return *TensorGrid::Make(c.mode, c.ranks, c.depth); }

TEST(ExchangesOf, AllGroups_AddUpToTheClosedForms) {
  std::vector<GridCase> grids(std::begin(kSmallGrids), std::end(kSmallGrids));
  grids.push_back({TensorMode::k3D, 1000});
  grids.push_back({TensorMode::k25D, 1000, 10});
  grids.push_back({TensorMode::k1D, 1000});
  const LinearShape shape = {.tokens = 360, .in = 1200, .out = 720};
  for (const GridCase& c : grids) {
    for (const LinearRole role : {LinearRole::kFirst, LinearRole::kSecond}) {
      const auto expected = TrafficOf(GridOf(c), role, shape);
      double forward = 0, backward = 0;
      int partners = 0;
      for (const Exchange& exchange : ExchangesOf(GridOf(c), role, shape)) {
        forward += exchange.forward.elements;
        backward += exchange.backward.elements;
        partners += static_cast<int>(exchange.group.size) - 1;
      }
      EXPECT_NEAR(forward, expected.forward_elements, 1e-9 * expected.forward_elements) << c;
      EXPECT_NEAR(backward, expected.backward_elements, 1e-9 * expected.backward_elements) << c;
      EXPECT_EQ(partners, expected.partners) << c;
    }
  }
}

TEST(ExchangesOf, OneRank_AreNone) {
  EXPECT_TRUE(
      ExchangesOf(*TensorGrid::Make(TensorMode::k1D, 1), LinearRole::kFirst, {4, 4, 4}).empty());
}

// The bytes and calls that one rank has received and completed along each of the grid's groups.
struct Counted {
  GroupShape group;
  double bytes = 0;
  std::uint64_t calls = 0;
};
std::vector<Counted> Count(collectives::TensorGroups& groups) {
  std::vector<GridAxis> axes = {GridAxis::kColumn};
  if (groups.grid().mode() == TensorMode::k3D) {
    axes = {GridAxis::kOutput, GridAxis::kInput, GridAxis::kWeight};
  } else if (groups.grid().mode() == TensorMode::k2D || groups.grid().mode() == TensorMode::k25D) {
    axes = {GridAxis::kColumn, GridAxis::kRow, GridAxis::kDepth};
  }
  std::vector<Counted> counted;
  for (const GridAxis axis : axes) {
    const std::vector<int> ranks = groups.grid().mesh().Group(groups.rank(), {Name(axis)});
    if (ranks.size() == 1) continue;
    Counted& of = counted.emplace_back();
    of.group = {.stride = ranks[1] - ranks[0], .size = static_cast<std::int64_t>(ranks.size())};
    const auto stats = groups.OnHost(axis).Stats();
    for (const auto& peer : stats.peers) of.bytes += static_cast<double>(peer.bytes_received);
    of.calls = std::accumulate(stats.operations.begin(), stats.operations.end(), std::uint64_t{0});
  }
  return counted;
}

void ExpectCounted(const std::vector<Exchange>& exchanges, Exchange::PassTraffic Exchange::*turn,
                   const std::vector<Counted>& before, const std::vector<Counted>& after,
                   const GridCase& c) {
  ASSERT_EQ(exchanges.size(), after.size()) << c;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const auto exchange = std::find_if(exchanges.begin(), exchanges.end(), [&](const Exchange& e) {
      return e.group == after[i].group;
    });
    ASSERT_NE(exchange, exchanges.end()) << c;
    const Exchange::PassTraffic& expected = (*exchange).*turn;
    EXPECT_DOUBLE_EQ(after[i].bytes - before[i].bytes, expected.elements * sizeof(float)) << c;
    EXPECT_EQ(after[i].calls - before[i].calls, static_cast<std::uint64_t>(expected.calls)) << c;
  }
}

void RunLayer(Communicator& rank, const GridCase& c, LinearRole role, const LinearShape& shape) {
  auto groups = collectives::TensorGroups::Connect(GridOf(c), rank);
  ASSERT_TRUE(groups.ok()) << groups.status();
  collectives::LinearScratch scratch;
  auto layer =
      collectives::ParallelLinear<float>::Make(**groups, {.role = role, .shape = shape}, scratch);
  ASSERT_TRUE(layer.ok()) << layer.status();
  const auto& blocks = (*layer)->blocks();
  std::vector<float> x(blocks.x.elements()), w(blocks.w.elements()), y(blocks.y.elements());
  const std::vector<Counted> start = Count(**groups);
  ASSERT_EQ((*layer)->Forward(x, w, {}, y), absl::OkStatus());
  const std::vector<Counted> middle = Count(**groups);
  std::vector<float> dx(x.size()), dw(w.size());
  ASSERT_EQ((*layer)->Backward(x, w, y, {.x = dx, .w = dw, .bias = {}}), absl::OkStatus());
  const std::vector<Exchange> exchanges = ExchangesOf(GridOf(c), role, shape);
  ExpectCounted(exchanges, &Exchange::forward, start, middle, c);
  ExpectCounted(exchanges, &Exchange::backward, middle, Count(**groups), c);
}

// The tensors are large enough that all-reduces are sliced, which the formulas count.
TEST(ExchangesOf, RealLayers_ReceiveTheseBytesAlongTheseGroups) {
  const LinearShape shape = {.tokens = 288, .in = 144, .out = 288};
  for (const GridCase& c : kSmallGrids) {
    if (c.mode == TensorMode::k1D) continue;  // tests/training/nn/layer_share_test.cc
    for (const LinearRole role : {LinearRole::kFirst, LinearRole::kSecond}) {
      Communicators world = collectives::LocalBackend().connect(c.ranks, absl::Seconds(60));
      ForEachRank(world, [&](Communicator& rank) { RunLayer(rank, c, role, shape); });
    }
  }
}

TEST(RingExchangesOf, RealRings_ReceiveTheseBytes) {
  const collectives::RingShape shape = {
      .batch = 2, .sequence = 16, .heads = 4, .kv_heads = 2, .head_dim = 4, .scale = 0.5F};
  const double keys = 2.0 * 16 * 2 * 4;
  for (const int ranks : {1, 2, 4}) {
    const Exchange expected = RingExchangesOf(keys, {.stride = 1, .size = ranks});
    Communicators world = collectives::LocalBackend().connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      auto ring = collectives::AsyncCommunicator::Start(rank.Duplicate("ring").value());
      ASSERT_TRUE(ring.ok()) << ring.status();
      collectives::HostRingRanks ranks_of_ring(**ring);
      auto attention = collectives::RingAttention::Make(shape, ranks_of_ring);
      ASSERT_TRUE(attention.ok()) << attention.status();
      const std::size_t queries = 2 * attention->tokens() * 4 * 4;
      const std::vector<float> q(queries), k(queries / 2), v(queries / 2);
      std::vector<float> out(queries), lse(queries / 4), dq(queries), dk(queries / 2),
          dv(queries / 2);
      const auto math = collectives::MakeHostLayerMath(nullptr, collectives::HeapMemory());
      const collectives::LayerPlace place = {*math, collectives::HeapMemory()};
      const auto received = [&] {
        double bytes = 0;
        for (const auto& peer : (*ring)->Stats().peers) {
          bytes += static_cast<double>(peer.bytes_received);
        }
        return bytes;
      };
      ASSERT_EQ(attention->Forward(place, q, k, v, out, lse), absl::OkStatus());
      const double forward = received();
      EXPECT_DOUBLE_EQ(forward, expected.forward.elements * sizeof(float));
      ASSERT_EQ(attention->Backward(place, {q, k, v, out, lse}, out, dq, dk, dv), absl::OkStatus());
      EXPECT_DOUBLE_EQ(received() - forward,
                       (ranks == 1 ? 0 : expected.backward.elements) * sizeof(float));
    });
  }
}

TEST(HeadExchangesOf, RealExchanges_ReceiveTheseBytes) {
  const collectives::HeadsShape shape = {.batch = 2, .sequence = 16, .heads = 8, .head_dim = 4};
  for (const int ranks : {1, 2, 4}) {
    // Queries, keys, values and the result have the same shape here.
    const Exchange expected =
        HeadExchangesOf(4.0 * static_cast<double>(shape.elements()), {.stride = 1, .size = ranks});
    Communicators world = collectives::LocalBackend().connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      auto exchange = collectives::HeadExchange::Make(shape, rank);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      std::vector<float> from(exchange->part_elements()), to(from.size());
      for (int i = 0; i < 3; ++i) ASSERT_EQ(exchange->ToHeads(from, to), absl::OkStatus());
      ASSERT_EQ(exchange->ToTokens(from, to), absl::OkStatus());
      double bytes = 0;
      for (const auto& peer : rank.Stats().peers) bytes += static_cast<double>(peer.bytes_received);
      EXPECT_DOUBLE_EQ(bytes, expected.forward.elements * sizeof(float));
      EXPECT_EQ(expected.backward.elements, expected.forward.elements);
    });
  }
}

TEST(ScratchElements, OfEachGrid_AreThoseThatLayersTake) {
  const LinearShape shape = {.tokens = 288, .in = 144, .out = 288};
  for (const GridCase& c : kSmallGrids) {
    for (const LinearRole role : {LinearRole::kFirst, LinearRole::kSecond}) {
      const auto taken = BlocksScratchOf(GridOf(c), collectives::LinearOptions{role, shape});
      EXPECT_DOUBLE_EQ(ScratchElements(GridOf(c), role, shape) * sizeof(float),
                       static_cast<double>(std::max(taken.forward, taken.backward)))
          << c;
    }
  }
}

// In 1D the library needs no scratch.
TEST(ScratchElements, InThreeDimensions_AreTheGatheredBlocks) {
  const LinearShape shape = {.tokens = 64, .in = 32, .out = 128};
  const TensorGrid cube = *TensorGrid::Make(TensorMode::k3D, 8);
  const double x = 64.0 * 32 / 4, w = 32.0 * 128 / 4, y = 64.0 * 128 / 4;
  EXPECT_DOUBLE_EQ(ScratchElements(cube, LinearRole::kFirst, shape), 2 * x + w + y);
  const TensorGrid square = *TensorGrid::Make(TensorMode::k2D, 4);
  EXPECT_DOUBLE_EQ(ScratchElements(square, LinearRole::kFirst, shape),
                   2 * (64.0 * 32 + 32.0 * 128) / 4 + 64.0 * 32 / 4);
  const TensorGrid line = *TensorGrid::Make(TensorMode::k1D, 4);
  EXPECT_EQ(ScratchElements(line, LinearRole::kFirst, shape), 0);
  const TensorGrid tokens = *TensorGrid::Make(TensorMode::k1DSequence, 4);
  EXPECT_DOUBLE_EQ(ScratchElements(tokens, LinearRole::kFirst, shape), 2 * 64.0 * 32);
  EXPECT_DOUBLE_EQ(ScratchElements(tokens, LinearRole::kSecond, shape), 64.0 * 128);
}

}  // namespace
}  // namespace geminid::parallel
