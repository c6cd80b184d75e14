// Attention over partitioned sequences takes memory as its closed forms say, and frees all of it.
// If one rank's request is refused, that rank says so and the others do not wait for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/world.h"
#include "tests/training/nn/parallel/counting_memory.h"
#include "training/nn/parallel/host_layer_math.h"
#include "training/nn/parallel/sequence/head_exchange.h"
#include "training/nn/parallel/sequence/sequence_parallel_attention.h"

namespace geminid::collectives {
namespace {

using kernels::AttentionShape;
using testing::HasSubstr;
using Values = std::vector<float>;

constexpr size_t kTokens = 24, kBatch = 2, kHeads = 8, kKvHeads = 4, kHeadDim = 6;

AttentionShape Mine(int ranks) {
  return {.batch = kBatch,
          .sequence = kTokens / static_cast<size_t>(ranks),
          .heads = kHeads,
          .kv_heads = kKvHeads,
          .head_dim = kHeadDim,
          .scale = 0.4F};
}

// One rank's attention with its arguments.
class Attention {
 public:
  Attention(SequenceParallelAttention& attention, int ranks)
      : attention_(attention), mine_(Mine(ranks)) {}

  absl::Status Forward(Memory& memory) {
    const auto math = MakeHostLayerMath(nullptr, memory);
    return attention_.Forward({*math, memory}, mine_, q_, k_, k_, out_, lse_);
  }
  absl::Status Backward(Memory& memory) {
    Values dq(q_), dk(k_), dv(k_);
    const auto math = MakeHostLayerMath(nullptr, memory);
    return attention_.Backward({*math, memory}, mine_, {q_, k_, k_, out_, lse_}, q_, dq, dk, dv);
  }

 private:
  SequenceParallelAttention& attention_;
  const AttentionShape mine_;
  const Values q_ = Values(mine_.batch * mine_.sequence * kHeads * kHeadDim, 0.5F);
  const Values k_ = Values(mine_.batch * mine_.sequence * kKvHeads * kHeadDim, 0.25F);
  Values out_ = q_, lse_ = Values(mine_.batch * mine_.sequence * kHeads);
};

struct Kind {
  const char* name;
  std::function<std::unique_ptr<SequenceParallelAttention>(Communicator&, RingRanks&)> make;
  size_t (*bytes)(int ranks, RingPass turn);
};

std::vector<Kind> Kinds() {
  return {
      {"Ring", [](Communicator&, RingRanks& ring) { return MakeRingSequenceAttention(ring); },
       [](int ranks, RingPass turn) {
         const RingShape shape = {.batch = kBatch,
                                  .sequence = kTokens,
                                  .heads = kHeads,
                                  .kv_heads = kKvHeads,
                                  .head_dim = kHeadDim,
                                  .scale = 1};
         return RingAttentionBytes(shape, ranks, turn, 1);
       }},
      {"Heads", [](Communicator& ranks, RingRanks&) { return MakeUlyssesSequenceAttention(ranks); },
       [](int ranks, RingPass turn) {
         return UlyssesSequenceAttentionBytes(Mine(ranks), ranks, turn, 1);
       }}};
}

// Calls `body` on each of so many ranks, each with its own memory. Rank 0's memory refuses the
// request `refused`.
void OnRanks(const Kind& kind, int ranks, int refused,
             const std::function<void(int rank, Attention, CountingMemory&)>& body) {
  Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
  Communicators rings = LocalBackend().connect(ranks, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    const auto queue =
        AsyncCommunicator::Start(std::move(rings[static_cast<size_t>(rank.Rank())])).value();
    HostRingRanks ring(*queue);
    const auto attention = kind.make(rank, ring);
    CountingMemory memory(rank.Rank() == 0 ? refused : 0);
    body(rank.Rank(), Attention(*attention, ranks), memory);
    EXPECT_EQ(memory.in_use_bytes(), 0u);
  });
}

TEST(PieceAttentionMemory, OfEachKind_IsTheClosedForm) {
  for (const Kind& kind : Kinds()) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(kind.name) + " of " + std::to_string(ranks));
      OnRanks(kind, ranks, 0, [&](int, Attention attention, CountingMemory& memory) {
        ASSERT_EQ(attention.Forward(memory), absl::OkStatus());
        EXPECT_EQ(memory.TakePeakBytes(), kind.bytes(ranks, RingPass::kForward));
        EXPECT_EQ(memory.in_use_bytes(), 0u);
        ASSERT_EQ(attention.Backward(memory), absl::OkStatus());
        EXPECT_EQ(memory.TakePeakBytes(), kind.bytes(ranks, RingPass::kBackward));
      });
    }
  }
}

// A rank that needed nothing more of the refused one learns it in its next pass.
TEST(PieceAttentionMemory, RefusedOnOneRank_IsSaidThereAndEndsTheOthers) {
  constexpr int kRanks = 4;
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    for (int refused = 1;; ++refused) {
      std::vector<absl::Status> ends(kRanks);
      bool was_refused = false;
      OnRanks(kind, kRanks, refused, [&](int rank, Attention attention, CountingMemory& memory) {
        absl::Status end = attention.Forward(memory);
        if (end.ok()) end = attention.Backward(memory);
        if (rank == 0) was_refused = !end.ok();
        if (end.ok()) end = attention.Forward(memory);
        ends[static_cast<size_t>(rank)] = end;
      });
      if (!was_refused) break;  // both passes have fewer requests
      EXPECT_EQ(ends[0].code(), absl::StatusCode::kResourceExhausted) << ends[0];
      for (const absl::Status& end : ends) {
        EXPECT_THAT(std::string(end.message()), HasSubstr("B): a test refuses it"));
      }
      for (size_t rank = 1; rank < ends.size(); ++rank) {
        EXPECT_EQ(ends[rank].code(), absl::StatusCode::kAborted) << ends[rank];
      }
    }
  }
}

TEST(HeadExchangeMemory, OfBothWays_IsTwiceARanksPart) {
  const HeadsShape shape = {.batch = 3, .sequence = 24, .heads = 12, .head_dim = 5};
  for (const int ranks : {1, 2, 3}) {
    Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      auto exchange = HeadExchange::Make(shape, rank);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      const size_t part = shape.elements() / static_cast<size_t>(ranks);
      CountingMemory memory;
      const Values from(part);
      Values to(part);
      ASSERT_EQ(exchange->ToHeads(from, to, memory), absl::OkStatus());
      EXPECT_EQ(memory.TakePeakBytes(), 2 * sizeof(float) * part);
      ASSERT_EQ(exchange->ToTokens(from, to, memory), absl::OkStatus());
      EXPECT_EQ(memory.TakePeakBytes(), 2 * sizeof(float) * part);
      EXPECT_EQ(memory.in_use_bytes(), 0u);
    });
  }
}

}  // namespace
}  // namespace geminid::collectives
