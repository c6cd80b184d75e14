#include "training/data/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "training/data/batches.h"

namespace geminid::trainer {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kContext = 16;

// A source of any length in which each token is its own index.
class Counted final : public TokenSource {
 public:
  explicit Counted(uint64_t tokens) : tokens_(tokens) {}
  uint64_t tokens() const override { return tokens_; }
  const char* unit() const override { return "tokens"; }
  absl::Status Read(uint64_t first, std::span<int32_t> out) const override {
    EXPECT_LE(first + out.size(), tokens_);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(first + i);
    return absl::OkStatus();
  }

 private:
  const uint64_t tokens_;
};

struct Shape {
  uint64_t batch = 8;
  uint64_t accumulate = 1;
  uint64_t ranks = 1;
};

// The first tokens of all sequences of the steps from first_step to end_step, in sample order.
std::vector<int32_t> Starts(const TokenSource& data, Sampling sampling, uint64_t seed, Shape shape,
                            uint64_t first_step, uint64_t end_step) {
  std::vector<int32_t> starts;
  for (uint64_t step = first_step; step < end_step; ++step) {
    for (uint64_t micro_batch = 0; micro_batch < shape.accumulate; ++micro_batch) {
      for (uint64_t rank = 0; rank < shape.ranks; ++rank) {
        auto batches = Batches::Create(TokenRange::All(data), {.seed = seed,
                                                               .sampling = sampling,
                                                               .context = kContext,
                                                               .batch = shape.batch,
                                                               .accumulate = shape.accumulate,
                                                               .rank = rank,
                                                               .world_size = shape.ranks});
        const MicroBatch batch = *batches->Get(step, micro_batch);
        for (size_t i = 0; i < batch.tokens.size(); i += kContext) {
          starts.push_back(batch.tokens[i]);
        }
      }
    }
  }
  return starts;
}

std::vector<int32_t> Sorted(std::vector<int32_t> values) {
  std::ranges::sort(values);
  return values;
}

std::vector<int32_t> WindowsOf(uint64_t count) {
  std::vector<int32_t> starts;
  for (uint64_t i = 0; i < count; ++i) starts.push_back(static_cast<int32_t>(i * kContext));
  return starts;
}

// 21 windows in steps of 8: epochs begin inside steps, micro-batches and ranks' shares.
TEST(Sampling, OfEpochs_HasEachWindowOnceInEachWhateverSharesTheBatch) {
  const Counted data(21 * kContext + 1);
  for (const Sampling sampling : {Sampling::kShuffle, Sampling::kSequential}) {
    const std::vector<int32_t> all = Starts(data, sampling, 5, {}, 0, 21);
    for (size_t epoch = 0; epoch < 8; ++epoch) {
      const auto begin = all.begin() + static_cast<ptrdiff_t>(epoch * 21);
      EXPECT_EQ(Sorted({begin, begin + 21}), WindowsOf(21)) << Name(sampling) << epoch;
    }
    for (const Shape& shape : {Shape{8, 1, 2}, Shape{8, 1, 8}, Shape{4, 2, 1}, Shape{2, 4, 2}}) {
      EXPECT_EQ(Starts(data, sampling, 5, shape, 0, 21), all) << Name(sampling);
    }
  }
}

TEST(Sampling, Shuffled_HasAnOrderOfItsOwnForEachEpochAndSeed) {
  const Counted data(32 * kContext + 1);
  std::set<std::vector<int32_t>> orders;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    for (uint64_t epoch = 0; epoch < 4; ++epoch) {
      orders.insert(Starts(data, Sampling::kShuffle, seed, {}, 4 * epoch, 4 * epoch + 4));
    }
  }
  EXPECT_EQ(orders.size(), 16);
  EXPECT_FALSE(orders.contains(WindowsOf(32)));
}

TEST(Sampling, Sequential_FollowsTheDataInEachEpochForAnySeed) {
  const Counted data(3 * kContext + 1);
  for (const uint64_t seed : {1, 2}) {
    EXPECT_THAT(Starts(data, Sampling::kSequential, seed, {.batch = 2}, 0, 3),
                ElementsAre(0, 16, 32, 0, 16, 32));
  }
}

TEST(Sampling, BegunInTheMiddle_GoesOnAsOneThatWasNot) {
  const Counted data(50 * kContext + 1);
  const std::vector<int32_t> all = Starts(data, Sampling::kShuffle, 9, {}, 0, 20);
  const std::vector<int32_t> rest = Starts(data, Sampling::kShuffle, 9, {4, 2, 4}, 7, 20);
  EXPECT_TRUE(std::equal(rest.begin(), rest.end(), all.begin() + 7 * 8, all.end()));
}

// If a step has more sequences than there are windows, one or several epochs end within the step.
TEST(Sampling, OfFewerWindowsThanABatch_RepeatsThemEquallyOften) {
  const Counted data(3 * kContext + 1);
  const std::vector<int32_t> starts = Starts(data, Sampling::kShuffle, 1, {.batch = 12}, 0, 1);
  for (const int32_t window : WindowsOf(3)) EXPECT_EQ(std::ranges::count(starts, window), 4);
  const Counted one(kContext + 1);
  EXPECT_THAT(Starts(one, Sampling::kShuffle, 1, {.batch = 4}, 0, 2), Each(0));
}

TEST(Sampling, OfDataThatEndsInTheMiddleOfAWindow_LeavesItsEndOut) {
  EXPECT_EQ(WindowsIn(0, kContext), 0);
  EXPECT_EQ(WindowsIn(kContext, kContext), 0) << "the token after it is missing";
  EXPECT_EQ(WindowsIn(kContext + 1, kContext), 1);
  EXPECT_EQ(WindowsIn(2 * kContext, kContext), 1);
  EXPECT_EQ(WindowsIn(2 * kContext + 1, kContext), 2);
  const Counted data(2 * kContext);
  EXPECT_THAT(Starts(data, Sampling::kShuffle, 1, {.batch = 2}, 0, 1), ElementsAre(0, 0));
  const Counted short_one(kContext);
  const BatchPlan plan = {.sampling = Sampling::kShuffle, .context = kContext, .batch = 1};
  EXPECT_TRUE(absl::IsInvalidArgument(Batches::Create(TokenRange::All(short_one), plan).status()));
}

// 100 TB of tokens: positions and numbers of windows exceed 32 bits.
TEST(Sampling, OfHugeData_ReachesAllOfIt) {
  constexpr uint64_t kTokens = uint64_t{50'000'000'000'000};
  const uint64_t windows = WindowsIn(kTokens, kContext);
  uint64_t most = 0;
  std::set<uint64_t> starts;
  for (uint64_t sample = windows - 500; sample < windows + 500; ++sample) {
    const uint64_t start = StartOfSample(Sampling::kShuffle, 1, kTokens, kContext, sample);
    EXPECT_EQ(start % kContext, 0);
    EXPECT_LE(start + kContext + 1, kTokens);
    most = std::max(most, start);
    starts.insert(start);
  }
  EXPECT_EQ(starts.size(), 1000u);
  EXPECT_GT(most, kTokens / 10 * 9);
}

TEST(StepsOfEpochs, EndWithTheStepThatHasTheLastSample) {
  EXPECT_EQ(*StepsOfEpochs(1, 16, 8, 100), 2);
  EXPECT_EQ(*StepsOfEpochs(1, 17, 8, 100), 3);
  EXPECT_EQ(*StepsOfEpochs(3, 17, 8, 100), 7) << "51 samples";
  EXPECT_EQ(*StepsOfEpochs(1, 1, 8, 100), 1);
  EXPECT_EQ(*StepsOfEpochs(100, 8, 8, 100), 100);
}

TEST(StepsOfEpochs, BeyondWhatARunHas_AreRefusedWithTheSizes) {
  for (const uint64_t windows : {uint64_t{808}, uint64_t{1} << 62}) {
    const auto steps = StepsOfEpochs(100, windows, 8, 100);
    EXPECT_TRUE(absl::IsInvalidArgument(steps.status()));
    EXPECT_THAT(std::string(steps.status().message()),
                HasSubstr("--epochs 100: an epoch is " + std::to_string(windows) +
                          " sequences and a step 8"));
  }
}

}  // namespace
}  // namespace geminid::trainer
