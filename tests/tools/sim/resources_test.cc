#include "tools/sim/resources.h"

#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/sim/noise.h"

namespace geminid::sim {
namespace {

TEST(EventQueue, SameTime_GoesByOrderOfAdding) {
  EventQueue events;
  std::string order;
  events.After(core::Duration::Nanoseconds(5), [&] { order += "b"; });
  events.Soon([&] {
    order += "a";
    events.After(core::Duration::Nanoseconds(5), [&] { order += "c"; });
  });
  while (events.RunNext()) {
  }
  EXPECT_EQ(order, "abc");
  EXPECT_EQ(events.now().nanoseconds(), 5);
}

TEST(EventQueue, PastTime_CountsAsNow) {
  EventQueue events;
  events.After(core::Duration::Nanoseconds(9), [&] { events.At(core::Time(), [] {}); });
  while (events.RunNext()) {
  }
  EXPECT_EQ(events.now().nanoseconds(), 9);
}

class ResourcesTest : public ::testing::Test {
 protected:
  // Starts a flow and records when it ends.
  void Start(double seconds, std::vector<ResourceDemand> demands) {
    const size_t n = ends_.size();
    ends_.push_back(-1);
    resources_.Start(seconds, std::move(demands), [this, n] { ends_[n] = events_.seconds(); });
  }
  void RunAll() {
    while (events_.RunNext()) {
    }
  }

  EventQueue events_;
  Resources resources_{&events_};
  std::vector<double> ends_;
};

TEST_F(ResourcesTest, FlowAlone_TakesItsTime) {
  const ResourceId link = resources_.Add(10);
  Start(2, {{link, 10}});
  RunAll();
  EXPECT_NEAR(ends_[0], 2, 1e-8);
}

TEST_F(ResourcesTest, TwoFlowsOnOneLink_ShareIt) {
  const ResourceId link = resources_.Add(10);
  Start(1, {{link, 10}});
  Start(2, {{link, 10}});
  RunAll();
  EXPECT_NEAR(ends_[0], 2, 1e-8);  // at half speed while both run
  EXPECT_NEAR(ends_[1], 3, 1e-8);
}

TEST_F(ResourcesTest, FlowThatNeedsLessThanItsPart_LeavesTheRest) {
  const ResourceId processors = resources_.Add(2);
  Start(1, {{processors, 0.5}});
  Start(1, {{processors, 1}});
  Start(1, {{processors, 1}});
  RunAll();
  EXPECT_NEAR(ends_[0], 1, 1e-8);
  // Two flows share 1.5 processors until second 1; then each has one.
  EXPECT_NEAR(ends_[1], 1.25, 1e-8);
  EXPECT_NEAR(ends_[2], 1.25, 1e-8);
}

TEST_F(ResourcesTest, FlowOverTwoResources_GoesAtTheScarcerOne) {
  const ResourceId link = resources_.Add(10);
  const ResourceId root = resources_.Add(12);
  const ResourceId other = resources_.Add(10);
  Start(1, {{link, 10}, {root, 10}});
  Start(1, {{other, 10}, {root, 10}});
  RunAll();
  EXPECT_NEAR(ends_[0], 20.0 / 12, 1e-8);
  EXPECT_NEAR(ends_[1], 20.0 / 12, 1e-8);
}

TEST_F(ResourcesTest, CancelledFlow_NeverEndsAndFreesItsPart) {
  const ResourceId link = resources_.Add(10);
  Start(4, {{link, 10}});
  bool called = false;
  const FlowId flow = resources_.Start(4, {{link, 10}}, [&] { called = true; });
  events_.After(FromSeconds(2), [&] { resources_.Cancel(flow); });
  RunAll();
  EXPECT_FALSE(called);
  EXPECT_NEAR(ends_[0], 5, 1e-8);
}

TEST(NoiseFactor, ManyDraws_HaveMeanOneAndTheDeviationAskedFor) {
  constexpr int kDraws = 20000;
  double sum = 0, squares = 0;
  for (int n = 0; n < kDraws; ++n) {
    const double factor = NoiseFactor(7, NoiseSource::kCompute, 1, static_cast<uint64_t>(n), 0.1);
    sum += factor;
    squares += std::log(factor) * std::log(factor);
  }
  EXPECT_NEAR(sum / kDraws, 1, 0.005);
  EXPECT_NEAR(std::sqrt(squares / kDraws), 0.1, 0.005);
}

TEST(NoiseFactor, SameArguments_GiveTheSameFactorAndOthersDoNot) {
  const double factor = NoiseFactor(1, NoiseSource::kCompute, 0, 5, 0.1);
  EXPECT_EQ(factor, NoiseFactor(1, NoiseSource::kCompute, 0, 5, 0.1));
  EXPECT_NE(factor, NoiseFactor(2, NoiseSource::kCompute, 0, 5, 0.1));
  EXPECT_NE(factor, NoiseFactor(1, NoiseSource::kUpdate, 0, 5, 0.1));
  EXPECT_NE(factor, NoiseFactor(1, NoiseSource::kCompute, 1, 5, 0.1));
  EXPECT_EQ(NoiseFactor(1, NoiseSource::kCompute, 0, 5, 0), 1);
}

}  // namespace
}  // namespace geminid::sim
