#include "training/nn/parallel/sequence/sequence_parallel_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "tests/collectives/world.h"
#include "training/nn/parallel/host_layer_math.h"

namespace geminid::collectives {
namespace {

using kernels::AttentionShape;
using testing::HasSubstr;
using Values = std::vector<float>;

constexpr AttentionShape kWhole = {
    .batch = 2, .sequence = 24, .heads = 4, .kv_heads = 2, .head_dim = 6, .scale = 0.4F};
constexpr int kRanks = 2;

Values Random(size_t heads, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Values values(kWhole.batch * kWhole.sequence * heads * kWhole.head_dim);
  for (float& value : values) value = normal(random);
  return values;
}

struct Results {
  Values out, dq, dk, dv;
  friend bool operator==(const Results&, const Results&) = default;
};

// Queries, keys, values, and the gradient of the result.
struct Inputs {
  Values q = Random(kWhole.heads, 1), k = Random(kWhole.kv_heads, 2),
         v = Random(kWhole.kv_heads, 3), dout = Random(kWhole.heads, 4);
};

// The kernel's attention over whole sequences.
Results InOnePlace(const Inputs& in) {
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  const size_t bytes = kernels::AttentionWorkspaceBytes(kWhole);
  std::vector<Line> workspace(bytes / sizeof(Line) + 1);
  const size_t queries = kWhole.heads * kWhole.head_dim, keys = kWhole.kv_heads * kWhole.head_dim;
  Results all = {Values(in.q.size()), Values(in.q.size()), Values(in.k.size()),
                 Values(in.k.size())};
  Values lse(in.q.size() / kWhole.head_dim);
  EXPECT_TRUE(kernels::AttentionForward<float>(kWhole, {in.q.data(), queries}, {in.k.data(), keys},
                                               {in.v.data(), keys}, {all.out.data(), queries},
                                               lse.data(), workspace.data(),
                                               bytes) == kernels::Status::kOk);
  const kernels::AttentionSaved<float> saved = {.q = {in.q.data(), queries},
                                                .k = {in.k.data(), keys},
                                                .v = {in.v.data(), keys},
                                                .out = {all.out.data(), queries},
                                                .dout = {in.dout.data(), queries},
                                                .lse = lse.data()};
  EXPECT_TRUE(kernels::AttentionBackward<float>(kWhole, saved, {all.dq.data(), queries},
                                                {all.dk.data(), keys}, {all.dv.data(), keys},
                                                workspace.data(), bytes) == kernels::Status::kOk);
  return all;
}

AttentionShape Mine() {
  AttentionShape mine = kWhole;
  mine.sequence /= kRanks;
  return mine;
}

// A rank's consecutive tokens of each sequence.
Values PieceOf(const Values& whole, size_t heads, int rank) {
  const size_t piece = kWhole.sequence / kRanks * heads * kWhole.head_dim;
  Values mine;
  for (size_t entry = 0; entry < kWhole.batch; ++entry) {
    const auto from = whole.begin() +
                      static_cast<ptrdiff_t>((entry * kRanks + static_cast<size_t>(rank)) * piece);
    mine.insert(mine.end(), from, from + static_cast<ptrdiff_t>(piece));
  }
  return mine;
}

Inputs PiecesOf(const Inputs& in, int rank) {
  return {PieceOf(in.q, kWhole.heads, rank), PieceOf(in.k, kWhole.kv_heads, rank),
          PieceOf(in.v, kWhole.kv_heads, rank), PieceOf(in.dout, kWhole.heads, rank)};
}

Results RunOn(SequenceParallelAttention& attention, const Inputs& mine) {
  // The old contents of results do not matter.
  Results results = {Values(mine.q.size(), 7.0F), Values(mine.q.size(), 7.0F),
                     Values(mine.k.size(), 7.0F), Values(mine.k.size(), 7.0F)};
  Values lse(mine.q.size() / kWhole.head_dim, 7.0F);
  const auto math = MakeHostLayerMath(nullptr, HeapMemory());
  const LayerPlace place = {*math, HeapMemory()};
  EXPECT_EQ(attention.Forward(place, Mine(), mine.q, mine.k, mine.v, results.out, lse),
            absl::OkStatus());
  EXPECT_EQ(attention.Backward(place, Mine(), {mine.q, mine.k, mine.v, results.out, lse}, mine.dout,
                               results.dq, results.dk, results.dv),
            absl::OkStatus());
  return results;
}

TEST(SequenceParallelAttention, ByExchangesOfHeads_HasTheBitsOfOnePlaceAndReceivesTheClosedForm) {
  const Inputs in;
  const Results whole = InOnePlace(in);
  Communicators world = LocalBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    const auto attention = MakeUlyssesSequenceAttention(rank);
    const Inputs mine = PiecesOf(in, rank.Rank());
    const auto received = [&] {
      return rank.Stats().peers[static_cast<size_t>(1 - rank.Rank())].bytes_received;
    };
    const uint64_t before = received();
    const Results found = RunOn(*attention, mine);
    const Results expected = {PieceOf(whole.out, kWhole.heads, rank.Rank()),
                              PieceOf(whole.dq, kWhole.heads, rank.Rank()),
                              PieceOf(whole.dk, kWhole.kv_heads, rank.Rank()),
                              PieceOf(whole.dv, kWhole.kv_heads, rank.Rank())};
    EXPECT_TRUE(found == expected);
    const size_t n = Mine().batch * Mine().sequence * kWhole.head_dim;
    EXPECT_EQ(received() - before,
              sizeof(float) * n * (kRanks - 1) / kRanks * 6 * (kWhole.heads + kWhole.kv_heads));
    // A second run with used buffers gives the same results.
    EXPECT_TRUE(RunOn(*attention, mine) == found);
  });
}

TEST(SequenceParallelAttention, OfHeadsThatRanksDoNotDivide_IsRefusedByExchangesAndNotByTheRing) {
  Communicators world = LocalBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    AttentionShape mine = Mine();
    mine.kv_heads = 1;
    const size_t queries = mine.batch * mine.sequence * mine.heads * mine.head_dim;
    const Values q(queries, 1.0F), k(queries / mine.heads, 1.0F);
    Values out(queries), lse(queries / mine.head_dim);
    const auto math = MakeHostLayerMath(nullptr, HeapMemory());
    const LayerPlace place = {*math, HeapMemory()};
    const absl::Status status =
        MakeUlyssesSequenceAttention(rank)->Forward(place, mine, q, k, k, out, lse);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("4 heads of queries and 1 of keys cannot be shared out over 2 ranks"));
    const auto queue = AsyncCommunicator::Start(rank.Duplicate("ring").value()).value();
    HostRingRanks ring(*queue);
    EXPECT_EQ(MakeRingSequenceAttention(ring)->Forward(place, mine, q, k, k, out, lse),
              absl::OkStatus());
    // All keys and values are equal, so every mean of values equals them, too.
    for (const float value : out) EXPECT_NEAR(value, 1, 1e-6);
  });
}

}  // namespace
}  // namespace geminid::collectives
