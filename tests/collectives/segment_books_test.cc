// An owner of memory accounts is told once of the memory that ranks share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>

#include "collectives/shm/segment.h"
#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 2;

// The segment of a group of two with ConnectShm's default options. It holds more than messages.
uint64_t SegmentBytes() {
  constexpr uint32_t kSlots = 4, kPieceBytes = 256 * 1024;
  return SegmentLayout::Of({.world_size = kRanks, .slots = kSlots, .piece_bytes = kPieceBytes}).end;
}

// The present charges by name. Refuses a total above `limit_bytes`.
class Account {
 public:
  explicit Account(uint64_t limit_bytes = ~uint64_t{0}) : limit_bytes_(limit_bytes) {}

  SegmentCharger charger() {
    return
        [this](const std::string& name, uint64_t bytes) -> absl::StatusOr<std::shared_ptr<void>> {
          const std::lock_guard lock(mutex_);
          if (Sum() + bytes > limit_bytes_)
            return absl::ResourceExhaustedError("no room for " + name);
          const int number = ++last_;
          charged_[number] = bytes;
          return std::shared_ptr<void>(nullptr, [this, number](void*) { Return(number); });
        };
  }
  uint64_t bytes() const {
    const std::lock_guard lock(mutex_);
    return Sum();
  }

 private:
  void Return(int number) {
    const std::lock_guard lock(mutex_);
    charged_.erase(number);
  }
  uint64_t Sum() const {
    return std::accumulate(charged_.begin(), charged_.end(), uint64_t{0},
                           [](uint64_t sum, const auto& entry) { return sum + entry.second; });
  }

  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;
  int last_ = 0;
  std::map<int, uint64_t> charged_;
};

TEST(ChargeSegments, OfSharedMemory_CountsEachSegmentOnceWhileItIsThere) {
  Communicators world = ShmBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    const uint64_t own = rank.Rank() == 0 ? SegmentBytes() : 0;
    Account account;
    auto earlier = rank.Duplicate("earlier");
    auto charge = rank.ChargeSegments(account.charger());
    ASSERT_TRUE(charge.ok()) << charge.status();
    EXPECT_EQ(account.bytes(), 2 * own);
    {
      auto later = rank.Duplicate("later");
      ASSERT_TRUE(later.ok());
      auto nested = (*later)->Duplicate("nested");
      EXPECT_EQ(account.bytes(), 4 * own);
      EXPECT_EQ((*nested)->Barrier(), absl::OkStatus());
    }
    EXPECT_EQ(account.bytes(), 2 * own);
    earlier->reset();
    EXPECT_EQ(account.bytes(), own);
    charge->reset();
    EXPECT_EQ(account.bytes(), 0u);
    EXPECT_TRUE(rank.Duplicate("uncharged").ok());
    EXPECT_EQ(account.bytes(), 0u);
  });
}

TEST(ChargeSegments, ForSmallMessages_IsAFractionOfThat) {
  Communicators world = ShmBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    Account account;
    const auto charge = rank.ChargeSegments(account.charger());
    const uint64_t before = account.bytes();
    const auto small = rank.Duplicate("small", Messages::kSmall);
    ASSERT_TRUE(small.ok()) << small.status();
    const uint64_t more = account.bytes() - before;
    EXPECT_EQ(more > 0, rank.Rank() == 0);
    EXPECT_LT(more, SegmentBytes() / 20);
    const auto of_small = (*small)->Duplicate("as small");
    ASSERT_TRUE(of_small.ok()) << of_small.status();
    EXPECT_EQ(account.bytes() - before, 2 * more);
  });
}

TEST(ChargeSegments, OfDisjointSubsets_IsWithTheFirstRankOfEach) {
  Communicators world = ShmBackend().connect(2 * kRanks, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    Account account;
    const auto charge = rank.ChargeSegments(account.charger());
    const uint64_t before = account.bytes();
    EXPECT_EQ(before > 0, rank.Rank() == 0);
    const int first = rank.Rank() / kRanks * kRanks;
    const auto subset = rank.Subset("half", std::vector<int>{first, first + 1});
    EXPECT_EQ(account.bytes() - before, rank.Rank() == first ? SegmentBytes() : 0);
  });
}

TEST(ChargeSegments, ThatIsRefused_IsAnErrorAndChargesNothing) {
  Communicators world = ShmBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    auto second = rank.Duplicate("second");
    Account small(SegmentBytes());
    const auto refused = rank.ChargeSegments(small.charger());
    EXPECT_EQ(refused.ok(), rank.Rank() != 0);
    if (rank.Rank() == 0) {
      EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no room for"));
    }
    EXPECT_EQ(small.bytes(), 0u);
  });
}

TEST(ChargeSegments, ThatIsRefusedLater_FailsOnAllRanksInItsWords) {
  Communicators world = ShmBackend().connect(kRanks, absl::Seconds(60));
  ForEachRank(world, [](Communicator& rank) {
    Account small(SegmentBytes());
    const auto charge = rank.ChargeSegments(small.charger());
    ASSERT_TRUE(charge.ok()) << charge.status();
    const auto second = rank.Duplicate("second");
    EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted) << second.status();
    EXPECT_THAT(std::string(second.status().message()), HasSubstr("no room for"));
    EXPECT_EQ(rank.Barrier(), absl::OkStatus());  // the group works as before
  });
}

TEST(ChargeSegments, WhereSomebodyChargesAlready_TellsThatOneAlone) {
  Communicators world = ShmBackend().connect(1, absl::Seconds(60));
  Account first, second;
  auto charge = world[0]->ChargeSegments(first.charger());
  ASSERT_TRUE(charge.ok());
  const auto other = world[0]->ChargeSegments(second.charger());
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(*other, nullptr);
  EXPECT_GT(first.bytes(), 0u);
  EXPECT_EQ(second.bytes(), 0u);
}

TEST(ChargeSegments, OfThreads_HasNothingToCount) {
  Communicators world = LocalBackend().connect(1, absl::Seconds(60));
  Account account;
  const auto charge = world[0]->ChargeSegments(account.charger());
  ASSERT_TRUE(charge.ok());
  EXPECT_EQ(account.bytes(), 0u);
}

}  // namespace
}  // namespace geminid::collectives
