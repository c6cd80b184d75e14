#include "daemon/core/accounts/ledger.h"

#include <random>

#include "gtest/gtest.h"

namespace geminid::core {
namespace {

constexpr SessionId kA{1};
constexpr SessionId kB{2};
constexpr Account kDevice0 = DeviceAccount(DeviceIndex{0});

TEST(Ledger, NewLedger_EverythingIsFree) {
  const Ledger ledger({100}, 200);
  EXPECT_EQ(ledger.Totals(kDevice0).free_bytes, 100u);
  EXPECT_EQ(ledger.Totals(kHostAccount).free_bytes, 200u);
  EXPECT_EQ(ledger.Totals(Account{}).capacity_bytes, 0u);
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, ThereAndBack_NamesEachLine) {
  Ledger ledger({0}, 1000);
  ASSERT_TRUE(ledger.HandOut(kHostAccount, 600).ok());
  ASSERT_TRUE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 100).ok());
  ASSERT_TRUE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 50).ok());
  ASSERT_TRUE(ledger.Occupy(kHostAccount, kB, ChunkKind::kExpAvg, 300).ok());
  const AccountTotals totals = ledger.Totals(kHostAccount);
  EXPECT_EQ(totals.in_use_bytes, 450u);
  EXPECT_EQ(totals.reserved_bytes, 150u);
  EXPECT_EQ(totals.free_bytes, 400u);
  const std::vector<LedgerLine> lines = ledger.Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].bytes, 150u);
  EXPECT_EQ(lines[0].chunks, 2u);
  EXPECT_EQ(ledger.InUseBytes(kHostAccount, kA), 150u);
  EXPECT_EQ(ledger.InUseBytes(kDevice0, kA), 0u);

  ASSERT_TRUE(ledger.Vacate(kHostAccount, kA, ChunkKind::kWeight, 100).ok());
  ASSERT_TRUE(ledger.Vacate(kHostAccount, kA, ChunkKind::kWeight, 50).ok());
  ASSERT_TRUE(ledger.Vacate(kHostAccount, kB, ChunkKind::kExpAvg, 300).ok());
  ASSERT_TRUE(ledger.TakeBack(kHostAccount, 600).ok());
  EXPECT_EQ(ledger.Totals(kHostAccount).free_bytes, 1000u);
  EXPECT_EQ(ledger.Totals(kHostAccount).peak_in_use_bytes, 450u);
  EXPECT_TRUE(ledger.Lines().empty());
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, WhatWouldBreakTheSum_IsRefused) {
  Ledger ledger({0}, 100);
  EXPECT_EQ(ledger.HandOut(kHostAccount, 101).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(ledger.TakeBack(kHostAccount, 1).ok());
  EXPECT_FALSE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 1).ok());
  ASSERT_TRUE(ledger.HandOut(kHostAccount, 50).ok());
  EXPECT_FALSE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 0).ok());
  ASSERT_TRUE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 30).ok());
  EXPECT_FALSE(ledger.TakeBack(kHostAccount, 21).ok());
  EXPECT_FALSE(ledger.Vacate(kHostAccount, kA, ChunkKind::kWeight, 31).ok());
  EXPECT_FALSE(ledger.Vacate(kHostAccount, kA, ChunkKind::kWeight, 29).ok());  // its only chunk
  EXPECT_FALSE(ledger.Vacate(kHostAccount, kB, ChunkKind::kWeight, 30).ok());
  EXPECT_FALSE(ledger.Vacate(kHostAccount, kA, ChunkKind::kGradient, 30).ok());
  EXPECT_FALSE(ledger.HandOut(Account{}, 1).ok());
  EXPECT_FALSE(ledger.HandOut({static_cast<Tier>(200)}, 1).ok());
  EXPECT_EQ(ledger.Totals(kHostAccount).in_use_bytes, 30u);
  EXPECT_EQ(ledger.Totals(kHostAccount).reserved_bytes, 20u);
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, Peak_IsOfAllTimesNotOfThePresent) {
  Ledger ledger({0}, 100);
  ASSERT_TRUE(ledger.HandOut(kHostAccount, 100).ok());
  ASSERT_TRUE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 80).ok());
  ASSERT_TRUE(ledger.Vacate(kHostAccount, kA, ChunkKind::kWeight, 80).ok());
  ASSERT_TRUE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 30).ok());
  EXPECT_EQ(ledger.Totals(kHostAccount).peak_in_use_bytes, 80u);
}

TEST(Ledger, ExactFit_IsGrantedInEveryDirection) {
  Ledger ledger({0}, 100);
  EXPECT_TRUE(ledger.HandOut(kHostAccount, 100).ok());
  EXPECT_TRUE(ledger.Occupy(kHostAccount, kA, ChunkKind::kWeight, 100).ok());
  EXPECT_EQ(ledger.Totals(kHostAccount).reserved_bytes, 0u);
  EXPECT_TRUE(ledger.Vacate(kHostAccount, kA, ChunkKind::kWeight, 100).ok());
  EXPECT_TRUE(ledger.TakeBack(kHostAccount, 100).ok());
  EXPECT_EQ(ledger.Totals(kHostAccount).free_bytes, 100u);
}

TEST(Ledger, SeveralDevices_AreAccountsOfTheirOwn) {
  Ledger ledger({100, 200}, 300);
  const Account first = DeviceAccount(DeviceIndex{0});
  const Account second = DeviceAccount(DeviceIndex{1});
  EXPECT_EQ(ledger.Accounts(), (std::vector<Account>{first, second, kHostAccount, kDiskAccount}));
  ASSERT_TRUE(ledger.HandOut(first, 100).ok());
  EXPECT_EQ(ledger.HandOut(first, 1).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(ledger.Totals(second).free_bytes, 200u);
  ASSERT_TRUE(ledger.HandOut(second, 150).ok());
  ASSERT_TRUE(ledger.Occupy(second, kA, ChunkKind::kWeight, 120).ok());
  EXPECT_EQ(ledger.InUseBytes(first, kA), 0u);
  EXPECT_EQ(ledger.InUseBytes(second, kA), 120u);
  // Bytes on one device cannot leave another.
  EXPECT_FALSE(ledger.Vacate(first, kA, ChunkKind::kWeight, 120).ok());
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, Disk_HasTheCapacityThatIsHandedOut) {
  Ledger ledger({0}, 100);
  EXPECT_EQ(ledger.Totals(kDiskAccount).capacity_bytes, 0u);
  ASSERT_TRUE(ledger.HandOut(kDiskAccount, 500).ok());
  ASSERT_TRUE(ledger.Occupy(kDiskAccount, kA, ChunkKind::kOnDisk, 300).ok());
  EXPECT_EQ(ledger.Totals(kDiskAccount).capacity_bytes, 500u);
  EXPECT_EQ(ledger.Totals(kDiskAccount).free_bytes, 0u);
  EXPECT_FALSE(ledger.TakeBack(kDiskAccount, 201).ok());
  ASSERT_TRUE(ledger.TakeBack(kDiskAccount, 200).ok());
  EXPECT_EQ(ledger.Totals(kDiskAccount).capacity_bytes, 300u);
  EXPECT_EQ(ledger.Totals(kHostAccount).free_bytes, 100u);
  EXPECT_TRUE(ledger.Check().ok());
}

TEST(Ledger, DeviceThatIsNotThere_HasNoAccount) {
  Ledger ledger({100}, 100);
  const Account missing = DeviceAccount(DeviceIndex{1});
  EXPECT_EQ(ledger.HandOut(missing, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ledger.Totals(missing).capacity_bytes, 0u);
}

TEST(Ledger, RandomMovements_AlwaysAddUp) {
  Ledger ledger({1 << 20, 1 << 19, 0}, 1 << 20);
  const std::vector<Account> accounts = ledger.Accounts();
  std::mt19937 random(11);
  int done = 0;
  for (int i = 0; i < 20000; ++i) {
    const Account account = accounts[random() % accounts.size()];
    const SessionId session{1 + random() % 3};
    const auto kind = static_cast<ChunkKind>(1 + random() % 8);
    const uint64_t bytes = random() % 4 == 0 ? 4096 : random() % 65536;
    switch (random() % 4) {
      case 0:
        done += ledger.HandOut(account, bytes).ok();
        break;
      case 1:
        done += ledger.TakeBack(account, bytes).ok();
        break;
      case 2:
        done += ledger.Occupy(account, session, kind, bytes).ok();
        break;
      case 3:
        done += ledger.Vacate(account, session, kind, bytes).ok();
        break;
    }
    ASSERT_TRUE(ledger.Check().ok()) << ledger.Check();
  }
  EXPECT_GT(done, 1000);
}

}  // namespace
}  // namespace geminid::core
