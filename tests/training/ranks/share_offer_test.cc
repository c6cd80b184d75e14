// The offer of a run to a daemon that may change the number of its ranks.
#include "training/ranks/share_offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "training/models/model_config.h"
#include "training/ranks/daemon_choice.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint64_t kArenaBytes = uint64_t{1} << 23;
constexpr uint64_t kFarAway = 1'000'000;

class ShareOfferTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto memory = HandoverMemory::Create();
    ASSERT_TRUE(memory.ok()) << memory.status();
    context_.handover = *std::move(memory);
    context_.handover->SetShare({1, 4});
    context_.info.world_size = 2;
    context_.check_ranks = [](int ranks) {  // a batch of 4
      return ranks == 3 ? absl::InvalidArgumentError("the batch") : absl::OkStatus();
    };
    options_.device_memory_bytes = kArenaBytes;
  }

  // Trains steps of four sequences.
  void Train(ShareOffer* offer, int steps, double seconds, uint64_t left = kFarAway) {
    for (int step = 0; step < steps; ++step) {
      offer->AfterStep({.sequences = 4, .seconds = seconds, .sequences_left = left});
    }
  }

  TrainOptions options_;
  RankContext context_;
};

TEST_F(ShareOfferTest, BeforeItHasTimedEnoughSteps_HasNoRows) {
  ShareOffer offer(options_, context_);
  Train(&offer, 8, 2);
  const JobScaling::Share share = offer.Make(kArenaBytes);
  EXPECT_THAT(share.rows, IsEmpty());
  EXPECT_THAT(share.why_not, HasSubstr("has not timed enough steps"));
}

TEST_F(ShareOfferTest, OfATimedRun_HasARowForEachNumberThatItMayHave) {
  ShareOffer offer(options_, context_);
  Train(&offer, 9, 2);
  const JobScaling::Share share = offer.Make(kArenaBytes);
  EXPECT_EQ(share.why_not, "");
  EXPECT_EQ(share.remaining, kFarAway);
  ASSERT_THAT(share.rows, SizeIs(3)) << "three ranks do not divide the batch";
  EXPECT_EQ(share.rows[0].ranks, 2);
  EXPECT_DOUBLE_EQ(share.rows[0].goodput, 2);
  EXPECT_EQ(share.rows[0].device_bytes, 2 * kArenaBytes);
  EXPECT_EQ(share.rows[1].ranks, 1);
  EXPECT_DOUBLE_EQ(share.rows[1].goodput, 1);
  EXPECT_EQ(share.rows[2].ranks, 4);
  EXPECT_EQ(share.rows[2].device_bytes, 4 * kArenaBytes);
}

// As after 'geminictl scale JOB 2' and then 'geminictl scale JOB auto' of a run with --ranks 3:4.
TEST_F(ShareOfferTest, WithANumberOutsideOfItsRange_OffersThatAsTheWorst) {
  context_.handover->SetShare({3, 4});
  context_.check_ranks = [](int) { return absl::OkStatus(); };
  ShareOffer offer(options_, context_);
  Train(&offer, 9, 2);
  const JobScaling::Share share = offer.Make(kArenaBytes);
  ASSERT_THAT(share.rows, SizeIs(3));
  EXPECT_EQ(share.rows[0].ranks, 2);
  EXPECT_GT(share.rows[0].goodput, 0);
  for (const auto& row : {share.rows[1], share.rows[2]}) {
    EXPECT_GT(row.goodput, 100 * share.rows[0].goodput) << row.ranks;
  }
}

// Measured numbers of ranks have their measured goodput.
TEST_F(ShareOfferTest, OfALaterGroup_KnowsTheTimesOfThoseBefore) {
  ShareOffer before(options_, context_);
  Train(&before, 9, 2);
  context_.info.world_size = 4;
  ShareOffer offer(options_, context_);
  Train(&offer, 9, 2.5);
  const JobScaling::Share share = offer.Make(kArenaBytes);
  ASSERT_THAT(share.rows, SizeIs(3));
  EXPECT_EQ(share.rows[0].ranks, 4);
  EXPECT_DOUBLE_EQ(share.rows[0].goodput, 4 / 2.5);
  EXPECT_EQ(share.rows[2].ranks, 2);
  EXPECT_DOUBLE_EQ(share.rows[2].goodput, 2);
}

TEST_F(ShareOfferTest, OfARunOutsideOfItsRange_HasARowForWhatItHas) {
  context_.info.world_size = 8;
  ShareOffer offer(options_, context_);
  Train(&offer, 9, 2);
  const JobScaling::Share share = offer.Make(kArenaBytes);
  ASSERT_THAT(share.rows, SizeIs(4));
  EXPECT_EQ(share.rows[0].ranks, 8);
}

// Fewer ranks have larger parts of the batch each.
TEST_F(ShareOfferTest, WithoutAMemoryOfItsOwn_TakesMoreForEachOfFewerRanks) {
  options_.device_memory_bytes.reset();
  options_.model = *FindPreset("gpt2-tiny");
  ShareOffer offer(options_, context_);
  Train(&offer, 9, 2);
  const uint64_t one = UsualDeviceBytes(options_, 1), four = UsualDeviceBytes(options_, 4);
  const JobScaling::Share little = offer.Make(1);
  ASSERT_THAT(little.rows, SizeIs(3));
  EXPECT_EQ(little.rows[0].device_bytes, 2u);
  EXPECT_EQ(little.rows[1].device_bytes, one);
  EXPECT_EQ(little.rows[2].device_bytes, 4u);
  const uint64_t most = uint64_t{1} << 50;
  const JobScaling::Share much = offer.Make(most);
  EXPECT_EQ(much.rows[0].device_bytes, 2 * most);
  EXPECT_EQ(much.rows[1].device_bytes, most);
  EXPECT_EQ(much.rows[2].device_bytes, 4 * four);
}

TEST_F(ShareOfferTest, OfARunThatEndsSoon_HasNoRows) {
  ShareOffer offer(options_, context_);
  Train(&offer, 9, 2, /*left=*/16);
  const JobScaling::Share share = offer.Make(kArenaBytes);
  EXPECT_THAT(share.rows, IsEmpty());
  EXPECT_THAT(share.why_not, HasSubstr("it ends within 10 s"));
}

}  // namespace
}  // namespace geminid::trainer
