#include "training/nn/parallel/experts/row_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/collectives/world.h"
#include "tests/training/nn/parallel/counting_memory.h"

namespace geminid::collectives {
namespace {

constexpr size_t kExperts = 8, kWidth = 3;

Routing RoutingOf(size_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> logit;
  std::vector<float> logits(tokens * kExperts);
  for (float& value : logits) value = logit(random);
  return *Route({.experts = kExperts, .choices = 2}, logits);
}

// Rows that contain their rank, token and expert.
std::vector<float> RowsOf(const Routing& routing, size_t rank) {
  std::vector<float> rows;
  for (size_t e = 0; e < kExperts; ++e) {
    for (size_t r = routing.first[e]; r < routing.first[e + 1]; ++r) {
      for (const size_t mark : {rank, routing.rows[r].token, e}) {
        rows.push_back(static_cast<float>(mark));
      }
    }
  }
  return rows;
}

TEST(RowExchange, EveryRow_ReachesItsExpertInTheOrderOfRanksAndTokens_AndComesBack) {
  for (const int ranks : {1, 2, 4, 8}) {
    Communicators world = LocalBackend().connect(ranks, absl::Seconds(60));
    ForEachRank(world, [&](Communicator& communicator) {
      const auto p = static_cast<size_t>(ranks);
      const auto rank = static_cast<size_t>(communicator.Rank());
      // Ranks have different numbers of tokens; rank 2 has none.
      const auto tokens_of = [](size_t r) { return r == 2 ? 0 : 5 + 2 * r; };
      const Routing routing = RoutingOf(tokens_of(rank), static_cast<unsigned>(rank));
      auto exchange = RowExchange::Make(routing, communicator);
      ASSERT_TRUE(exchange.ok()) << exchange.status();
      ASSERT_EQ(exchange->experts(), kExperts / p);

      std::vector<float> expected;
      for (size_t e = 0; e < exchange->experts(); ++e) {
        EXPECT_EQ(exchange->FirstOf(e) * kWidth, expected.size());
        for (size_t r = 0; r < p; ++r) {
          const Routing theirs = RoutingOf(tokens_of(r), static_cast<unsigned>(r));
          const std::vector<float> rows = RowsOf(theirs, r);
          const size_t expert = rank * exchange->experts() + e;
          expected.insert(expected.end(),
                          rows.begin() + static_cast<ptrdiff_t>(theirs.first[expert] * kWidth),
                          rows.begin() + static_cast<ptrdiff_t>(theirs.first[expert + 1] * kWidth));
        }
      }
      const std::vector<float> at_tokens = RowsOf(routing, rank);
      std::vector<float> at_experts(exchange->rows_at_experts() * kWidth), back(at_tokens.size());
      ASSERT_EQ(exchange->ToExperts(kWidth, at_tokens, at_experts), absl::OkStatus());
      EXPECT_EQ(at_experts, expected);
      ASSERT_EQ(exchange->ToTokens(kWidth, at_experts, back), absl::OkStatus());
      EXPECT_EQ(back, at_tokens);
    });
  }
}

TEST(RowExchange, OnItsWay_TakesTheRowsAtExpertsOnce) {
  Communicators world = LocalBackend().connect(4, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& communicator) {
    const Routing routing = RoutingOf(9, static_cast<unsigned>(communicator.Rank()));
    auto exchange = RowExchange::Make(routing, communicator);
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    std::vector<float> at_tokens(exchange->rows_at_tokens() * kWidth);
    std::vector<float> at_experts(exchange->rows_at_experts() * kWidth);
    CountingMemory memory;
    ASSERT_EQ(exchange->ToExperts(kWidth, at_tokens, at_experts, memory), absl::OkStatus());
    EXPECT_EQ(memory.TakePeakBytes(), sizeof(float) * at_experts.size());
    ASSERT_EQ(exchange->ToTokens(kWidth, at_experts, at_tokens, memory), absl::OkStatus());
    EXPECT_EQ(memory.TakePeakBytes(), sizeof(float) * at_experts.size());
    EXPECT_EQ(memory.in_use_bytes(), 0u);
  });
}

TEST(RowExchange, RefusedOnOneRank_IsSaidThereAndEndsTheOthers) {
  Communicators world = LocalBackend().connect(4, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& communicator) {
    const Routing routing = RoutingOf(9, static_cast<unsigned>(communicator.Rank()));
    CountingMemory memory(communicator.Rank() == 1 ? 1 : 0);
    auto exchange = RowExchange::Make(routing, communicator);
    absl::Status status = exchange.status();  // the others may get the error in Make
    if (status.ok()) {
      std::vector<float> at_tokens(exchange->rows_at_tokens() * kWidth);
      std::vector<float> at_experts(exchange->rows_at_experts() * kWidth);
      status = exchange->ToExperts(kWidth, at_tokens, at_experts, memory);
    }
    EXPECT_EQ(status.code(), communicator.Rank() == 1 ? absl::StatusCode::kResourceExhausted
                                                      : absl::StatusCode::kAborted)
        << status;
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("rows of experts on their way ("));
  });
}

TEST(RowExchange, WhatCannotBeSpread_IsRefusedOnAllRanks) {
  Communicators world = LocalBackend().connect(3, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    EXPECT_THAT(std::string(RowExchange::Make(RoutingOf(4, 1), rank).status().message()),
                testing::HasSubstr("8 experts cannot be spread over 3 ranks"));
  });
  Communicators two = LocalBackend().connect(2, absl::Seconds(60));
  ForEachRank(two, [](Communicator& rank) {
    auto exchange = RowExchange::Make(RoutingOf(4, 1), rank);
    std::vector<float> rows(exchange->rows_at_tokens() * kWidth), wrong(1);
    EXPECT_EQ(exchange->ToExperts(kWidth, rows, wrong).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(exchange->ToTokens(kWidth, wrong, rows).code(), absl::StatusCode::kInvalidArgument);
  });
}

}  // namespace
}  // namespace geminid::collectives
