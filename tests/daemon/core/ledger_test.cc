#include "daemon/core/ledger.h"

#include <random>

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

constexpr SessionId kA{1};
constexpr SessionId kB{2};

TEST(Ledger, NewLedger_EverythingIsFree) {
  const Ledger ledger(100, 200, 300);
  EXPECT_EQ(ledger.Totals(Tier::kDevice).free_bytes, 100u);
  EXPECT_EQ(ledger.Totals(Tier::kHost).free_bytes, 200u);
  EXPECT_EQ(ledger.Totals(Tier::kDisk).free_bytes, 300u);
  EXPECT_EQ(ledger.Totals(Tier::kNone).capacity_bytes, 0u);
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, ThereAndBack_NamesEachLine) {
  Ledger ledger(0, 1000, 0);
  ASSERT_TRUE(ledger.HandOut(Tier::kHost, 600).ok());
  ASSERT_TRUE(ledger.Occupy(Tier::kHost, kA, ChunkKind::kWeight, 100).ok());
  ASSERT_TRUE(ledger.Occupy(Tier::kHost, kA, ChunkKind::kWeight, 50).ok());
  ASSERT_TRUE(ledger.Occupy(Tier::kHost, kB, ChunkKind::kExpAvg, 300).ok());
  const TierTotals totals = ledger.Totals(Tier::kHost);
  EXPECT_EQ(totals.in_use_bytes, 450u);
  EXPECT_EQ(totals.reserved_bytes, 150u);
  EXPECT_EQ(totals.free_bytes, 400u);
  const std::vector<LedgerLine> lines = ledger.Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].bytes, 150u);
  EXPECT_EQ(lines[0].chunks, 2u);
  EXPECT_EQ(ledger.InUseBytes(Tier::kHost, kA), 150u);
  EXPECT_EQ(ledger.InUseBytes(Tier::kDevice, kA), 0u);

  ASSERT_TRUE(ledger.Vacate(Tier::kHost, kA, ChunkKind::kWeight, 100).ok());
  ASSERT_TRUE(ledger.Vacate(Tier::kHost, kA, ChunkKind::kWeight, 50).ok());
  ASSERT_TRUE(ledger.Vacate(Tier::kHost, kB, ChunkKind::kExpAvg, 300).ok());
  ASSERT_TRUE(ledger.TakeBack(Tier::kHost, 600).ok());
  EXPECT_EQ(ledger.Totals(Tier::kHost).free_bytes, 1000u);
  EXPECT_EQ(ledger.Totals(Tier::kHost).peak_in_use_bytes, 450u);
  EXPECT_TRUE(ledger.Lines().empty());
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, WhatWouldBreakTheSum_IsRefused) {
  Ledger ledger(0, 100, 0);
  EXPECT_EQ(ledger.HandOut(Tier::kHost, 101).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(ledger.TakeBack(Tier::kHost, 1).ok());
  EXPECT_FALSE(ledger.Occupy(Tier::kHost, kA, ChunkKind::kWeight, 1).ok());
  ASSERT_TRUE(ledger.HandOut(Tier::kHost, 50).ok());
  EXPECT_FALSE(ledger.Occupy(Tier::kHost, kA, ChunkKind::kWeight, 0).ok());
  ASSERT_TRUE(ledger.Occupy(Tier::kHost, kA, ChunkKind::kWeight, 30).ok());
  EXPECT_FALSE(ledger.TakeBack(Tier::kHost, 21).ok());
  EXPECT_FALSE(ledger.Vacate(Tier::kHost, kA, ChunkKind::kWeight, 31).ok());
  EXPECT_FALSE(ledger.Vacate(Tier::kHost, kA, ChunkKind::kWeight, 29).ok());  // its only chunk
  EXPECT_FALSE(ledger.Vacate(Tier::kHost, kB, ChunkKind::kWeight, 30).ok());
  EXPECT_FALSE(ledger.Vacate(Tier::kHost, kA, ChunkKind::kGradient, 30).ok());
  EXPECT_FALSE(ledger.HandOut(Tier::kNone, 1).ok());
  EXPECT_FALSE(ledger.HandOut(static_cast<Tier>(200), 1).ok());
  EXPECT_EQ(ledger.Totals(Tier::kHost).in_use_bytes, 30u);
  EXPECT_EQ(ledger.Totals(Tier::kHost).reserved_bytes, 20u);
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, RandomMovements_AlwaysAddUp) {
  Ledger ledger(1 << 20, 1 << 20, 1 << 20);
  std::mt19937 random(11);
  int done = 0;
  for (int i = 0; i < 20000; ++i) {
    const auto tier = static_cast<Tier>(1 + random() % 3);
    const SessionId session{1 + random() % 3};
    const auto kind = static_cast<ChunkKind>(1 + random() % 8);
    const uint64_t bytes = random() % 4 == 0 ? 4096 : random() % 65536;
    switch (random() % 4) {
      case 0:
        done += ledger.HandOut(tier, bytes).ok();
        break;
      case 1:
        done += ledger.TakeBack(tier, bytes).ok();
        break;
      case 2:
        done += ledger.Occupy(tier, session, kind, bytes).ok();
        break;
      case 3:
        done += ledger.Vacate(tier, session, kind, bytes).ok();
        break;
    }
    ASSERT_TRUE(ledger.Check().ok()) << ledger.Check();
  }
  EXPECT_GT(done, 1000);
}

}  // namespace
}  // namespace geminid::core
