#include "training/nn/parallel/sequence/head_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/model/attention/attention.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

std::vector<float> Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct Cut {
  size_t first_token, tokens, first_head, heads;
};

std::vector<float> Take(const std::vector<float>& whole, const HeadsShape& shape, const Cut& cut) {
  std::vector<float> part;
  for (size_t b = 0; b < shape.batch; ++b) {
    for (size_t t = 0; t < cut.tokens; ++t) {
      for (size_t h = 0; h < cut.heads; ++h) {
        for (size_t d = 0; d < shape.head_dim; ++d) {
          const size_t row = b * shape.sequence + cut.first_token + t;
          part.push_back(whole[(row * shape.heads + cut.first_head + h) * shape.head_dim + d]);
        }
      }
    }
  }
  return part;
}

Cut TokensOf(const HeadsShape& shape, size_t ranks, size_t rank) {
  const size_t tokens = shape.sequence / ranks;
  return {rank * tokens, tokens, 0, shape.heads};
}
Cut HeadsOf(const HeadsShape& shape, size_t ranks, size_t rank) {
  const size_t heads = shape.heads / ranks;
  return {0, shape.sequence, rank * heads, heads};
}

TEST(HeadExchange, EveryRank_GetsAllTokensOfItsHeadsAndBack) {
  const HeadsShape shape = {.batch = 3, .sequence = 24, .heads = 12, .head_dim = 5};
  const std::vector<float> whole = Random(shape.elements(), 1);
  for (const int ranks : {1, 2, 3, 4}) {
    Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      auto exchange = HeadExchange::Make(shape, rank);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      const auto p = static_cast<size_t>(ranks), r = static_cast<size_t>(rank.Rank());
      const std::vector<float> tokens = Take(whole, shape, TokensOf(shape, p, r));
      std::vector<float> heads(tokens.size()), back(tokens.size());
      ASSERT_EQ(exchange->ToHeads(tokens, heads), absl::OkStatus());
      EXPECT_EQ(heads, Take(whole, shape, HeadsOf(shape, p, r)));
      ASSERT_EQ(exchange->ToTokens(heads, back), absl::OkStatus());
      EXPECT_EQ(back, tokens);
      uint64_t received = 0;
      for (const PeerTraffic& peer : rank.Stats().peers) received += peer.bytes_received;
      EXPECT_EQ(received, 2 * sizeof(float) * tokens.size() * (p - 1) / p);
    });
  }
}

kernels::AttentionShape AttentionOf(const HeadsShape& shape, size_t heads) {
  return {.batch = shape.batch,
          .sequence = shape.sequence,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = shape.head_dim,
          .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim))};
}

std::vector<float> Attend(const HeadsShape& shape, size_t heads, const std::vector<float>& q,
                          const std::vector<float>& k, const std::vector<float>& v) {
  const kernels::AttentionShape attention = AttentionOf(shape, heads);
  const size_t stride = heads * shape.head_dim;
  std::vector<float> out(q.size()), lse(shape.batch * heads * shape.sequence);
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> workspace(kernels::AttentionWorkspaceBytes(attention) / sizeof(Line) + 1);
  EXPECT_EQ(kernels::AttentionForward<float>(attention, {q.data(), stride}, {k.data(), stride},
                                             {v.data(), stride}, {out.data(), stride}, lse.data(),
                                             workspace.data(), workspace.size() * sizeof(Line)),
            kernels::Status::kOk);
  return out;
}

// One rank computes each head's attention, so the bits are those of one process.
TEST(HeadExchange, AttentionInBetween_HasTheBitsOfOneProcess) {
  const HeadsShape shape = {.batch = 2, .sequence = 96, .heads = 4, .head_dim = 16};
  const std::vector<float> q = Random(shape.elements(), 1), k = Random(shape.elements(), 2),
                           v = Random(shape.elements(), 3);
  const std::vector<float> expected = Attend(shape, shape.heads, q, k, v);
  for (const int ranks : {2, 4}) {
    Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& rank) {
      auto exchange = HeadExchange::Make(shape, rank);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      const Cut own = TokensOf(shape, static_cast<size_t>(ranks), static_cast<size_t>(rank.Rank()));
      const auto heads_of = [&](const std::vector<float>& whole) {
        std::vector<float> heads(exchange->part_elements());
        EXPECT_EQ(exchange->ToHeads(Take(whole, shape, own), heads), absl::OkStatus());
        return heads;
      };
      const std::vector<float> own_q = heads_of(q), own_k = heads_of(k), own_v = heads_of(v);
      const std::vector<float> out =
          Attend(shape, shape.heads / static_cast<size_t>(ranks), own_q, own_k, own_v);
      std::vector<float> tokens(out.size());
      ASSERT_EQ(exchange->ToTokens(out, tokens), absl::OkStatus());
      EXPECT_EQ(tokens, Take(expected, shape, own));
    });
  }
}

TEST(HeadExchange, WhatCannotBeCut_IsRefused) {
  Communicators world = LocalBackend().connect(2, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    EXPECT_THAT(std::string(HeadExchange::Make({1, 4, 3, 2}, rank).status().message()),
                testing::HasSubstr("3 heads cannot be divided over 2 ranks"));
    EXPECT_THAT(std::string(HeadExchange::Make({1, 5, 4, 2}, rank).status().message()),
                testing::HasSubstr("5 tokens cannot be divided over 2 ranks"));
    auto exchange = HeadExchange::Make({1, 4, 4, 2}, rank);
    std::vector<float> right(16), wrong(15);
    EXPECT_EQ(exchange->ToHeads(wrong, right).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(exchange->ToTokens(right, wrong).code(), absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace geminid::collectives
