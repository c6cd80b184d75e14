#include "tools/forecast/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace geminid::forecast {
namespace {

using planner::Tier;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

Job On(const char* hardware, std::uint64_t host_gib) {
  Job job;
  job.hardware = *FindHardware(hardware);
  job.host_bytes = host_gib * kGiB;
  job.batch = {.sequences = 1, .sequence_length = 1024};
  return job;
}

Forecast Of(const Model& model, const Job& job) {
  absl::StatusOr<Forecast> forecast = MakeForecast(model, job);
  EXPECT_TRUE(forecast.ok()) << forecast.status();
  return forecast.ok() ? *std::move(forecast) : Forecast{};
}

TEST(MakeForecast, SmallModelOnALargeDevice_NeedsNoHost) {
  const Forecast forecast = Of(*FindModel("gpt2"), On("h100-80gb", 1));
  EXPECT_TRUE(forecast.fits());
  EXPECT_TRUE(forecast.plan.everything_on_device);
  EXPECT_EQ(forecast.collective_seconds, 0);
  EXPECT_DOUBLE_EQ(forecast.tokens_per_second, 1024 / forecast.step_seconds);
}

TEST(MakeForecast, TiersOfAFittingPlan_AreWithinTheirLimits) {
  const Forecast forecast = Of(*FindModel("gpt2-xl"), On("rtx-2060-6gb", 32));
  ASSERT_TRUE(forecast.fits());
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    EXPECT_LE(forecast.plan.tier(tier).peak, forecast.plan.tier(tier).limit);
  }
  EXPECT_GE(forecast.step_seconds, forecast.plan.step_lower_bound_seconds * (1 - 1e-9));
}

// More of anything is never slower.
TEST(MakeForecast, FasterLink_IsNotSlower) {
  const Model model = *FindModel("gpt2-xl");
  double last = 1e30;
  for (const double rate : {3e9, 6e9, 12e9, 24e9, 48e9}) {
    Job job = On("rtx-2060-6gb", 32);
    job.hardware.up_bytes_per_second = rate;
    job.hardware.down_bytes_per_second = rate;
    const double seconds = Of(model, job).step_seconds;
    EXPECT_LE(seconds, last * 1.02) << rate;  // the plan is a heuristic; 2 % is its slack
    last = seconds;
  }
}

// One gather and one reduction of 2 bytes per parameter at least, a ring's (P - 1) / P each.
TEST(MakeForecast, Collectives_TakeAtLeastARingsTime) {
  Job job = On("a100-80gb", 512);
  job.ranks = 8;
  const Forecast forecast = Of(*FindModel("opt-6.7b"), job);
  ASSERT_TRUE(forecast.fits());
  const double bytes = 2.0 * 2 * static_cast<double>(forecast.parameters) * 7 / 8;
  EXPECT_GE(forecast.collective_seconds, bytes / 300e9);
  EXPECT_LE(forecast.collective_seconds, 2 * bytes / 300e9);
  // Across nodes the slowest link counts.
  job.nodes = 2;
  job.hardware.network_bytes_per_second = 25e9;
  const Forecast across = Of(*FindModel("opt-6.7b"), job);
  EXPECT_GE(across.collective_seconds, bytes / 25e9);
  EXPECT_TRUE(across.bound_by_collectives);
  EXPECT_EQ(across.step_seconds, across.collective_seconds);
}

TEST(WhatWouldFit, EachChange_IsTheSmallestThatFits) {
  const Model model = *FindModel("opt-6.7b");
  Job job = On("rtx-3090-24gb", 16);
  const Forecast forecast = Of(model, job);
  ASSERT_FALSE(forecast.fits());
  const absl::StatusOr<std::vector<Change>> changes = WhatWouldFit(model, job, forecast);
  ASSERT_TRUE(changes.ok()) << changes.status();
  std::set<Change::Kind> kinds;
  for (const Change& change : *changes) {
    kinds.insert(change.kind);
    Job changed = job;
    if (change.kind == Change::Kind::kHostBytes) {
      changed.host_bytes = change.value;
      EXPECT_TRUE(Of(model, changed).fits());
      changed.host_bytes -= 2 * kGiB;  // it was rounded up to a whole GiB
      EXPECT_FALSE(Of(model, changed).fits());
    }
    if (change.kind == Change::Kind::kNodes) {
      changed.nodes = changed.ranks = static_cast<std::uint32_t>(change.value);
      EXPECT_TRUE(Of(model, changed).fits());
      changed.nodes = changed.ranks = static_cast<std::uint32_t>(change.value - 1);
      EXPECT_FALSE(Of(model, changed).fits());
    }
  }
  EXPECT_TRUE(kinds.contains(Change::Kind::kHostBytes));
  EXPECT_TRUE(kinds.contains(Change::Kind::kDiskBytes));
  EXPECT_TRUE(kinds.contains(Change::Kind::kNodes));
}

TEST(WhatWouldFit, TooLongASequence_IsShortened) {
  const Model model = *FindModel("gpt2-xl");
  Job job = On("rtx-2060-6gb", 64);
  job.batch = {.sequences = 1, .sequence_length = 1 << 20};
  const Forecast forecast = Of(model, job);
  ASSERT_FALSE(forecast.fits());
  std::uint64_t length = 0;
  const absl::StatusOr<std::vector<Change>> changes = WhatWouldFit(model, job, forecast);
  ASSERT_TRUE(changes.ok()) << changes.status();
  for (const Change& change : *changes) {
    if (change.kind == Change::Kind::kSequenceLength) length = change.value;
  }
  ASSERT_GT(length, 0u);
  job.batch.sequence_length = length;
  EXPECT_TRUE(Of(model, job).fits());
  job.batch.sequence_length = length + 64;
  EXPECT_FALSE(Of(model, job).fits());
}

TEST(WhatWouldFit, WhatFits_NeedsNothing) {
  const Model model = *FindModel("gpt2");
  const Job job = On("h100-80gb", 64);
  EXPECT_TRUE(WhatWouldFit(model, job, Of(model, job))->empty());
}

TEST(LeastHostBytes, IsEnoughAndTheNextLessIsNot) {
  const Model model = *FindModel("opt-6.7b");
  Job job = On("rtx-3090-24gb", 0);
  const absl::StatusOr<std::uint64_t> least = LeastHostBytes(model, job);
  ASSERT_TRUE(least.ok()) << least.status();
  job.host_bytes = *least;
  EXPECT_TRUE(Of(model, job).fits());
  job.host_bytes = *least - *least / 128;
  EXPECT_FALSE(Of(model, job).fits());
}

TEST(LargestThatFits, FitsAndTheNextDoesNot) {
  const Family& family = *FindFamily("gpt2-like");
  const Job job = On("rtx-2060-6gb", 32);
  const absl::StatusOr<Model> largest = LargestThatFits(family, job);
  ASSERT_TRUE(largest.ok()) << largest.status();
  EXPECT_TRUE(Of(*largest, job).fits());
  EXPECT_FALSE(Of(*MemberOfStep(family, largest->hidden / 64 + 1), job).fits());
  // Bounded by 12 bytes of state per parameter over both memories.
  EXPECT_LE(12 * CountParameters(*largest), job.host_bytes + job.hardware.usable_bytes());
}

TEST(LargestThatFits, WithoutRoomForTheSmallest_IsNotFound) {
  Job job = On("rtx-2060-6gb", 0);
  job.hardware.device_bytes = job.hardware.reserved_bytes + (std::uint64_t{1} << 20);
  EXPECT_EQ(LargestThatFits(*FindFamily("gpt2-like"), job).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace geminid::forecast
