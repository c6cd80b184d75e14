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

bool FitsWith(const Model& model, const Job& job) {
  const absl::StatusOr<bool> fits = Fits(model, job);
  EXPECT_TRUE(fits.ok()) << fits.status();
  return fits.ok() && *fits;
}

// A model whose state does not fit on the device, and so small that the search for the fastest plan
// ends soon.
Model Small() { return *MakeMember(*FindFamily("llama-like"), 4, 512, 0); }
Job Cramped() {
  Job job = On("rtx-2060-6gb", 8);
  job.hardware.device_bytes = job.hardware.reserved_bytes + kGiB / 2;
  return job;
}

TEST(MakeForecast, TiersOfAFittingPlan_AreWithinTheirLimits) {
  const Forecast forecast = Of(Small(), Cramped());
  ASSERT_TRUE(forecast.fits());
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    EXPECT_LE(forecast.plan.tier(tier).peak, forecast.plan.tier(tier).limit);
  }
  EXPECT_GE(forecast.step_seconds, forecast.plan.step_lower_bound_seconds * (1 - 1e-9));
}

// More of anything is never slower.
TEST(MakeForecast, FasterLink_IsNotSlower) {
  const Model model = Small();
  double last = 1e30;
  for (const double rate : {3e9, 12e9, 48e9}) {
    Job job = Cramped();
    job.hardware.up_bytes_per_second = rate;
    job.hardware.down_bytes_per_second = rate;
    const double seconds = Of(model, job).step_seconds;
    EXPECT_LE(seconds, last * 1.02) << rate;  // the plan is a heuristic; 2 % is its slack
    last = seconds;
  }
}

TEST(MakeForecast, FirstFit_FitsExactlyWhereTheFastestDoesAndIsNotFaster) {
  const Model model = Small();
  for (const std::uint64_t mib : {0, 128, 256, 512, 4096}) {
    Job job = Cramped();
    job.host_bytes = mib << 20;
    const Forecast fastest = Of(model, job);
    const absl::StatusOr<Forecast> first = MakeForecast(model, job, Effort::kFirstFit);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(first->fits(), fastest.fits()) << mib;
    EXPECT_EQ(FitsWith(model, job), fastest.fits()) << mib;
    EXPECT_EQ(first->plan.lacking, fastest.plan.lacking) << mib;
    EXPECT_GE(first->step_seconds, fastest.step_seconds) << mib;
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
      EXPECT_TRUE(FitsWith(model, changed));
      changed.host_bytes -= 2 * kGiB;  // it was rounded up to a whole GiB
      EXPECT_FALSE(FitsWith(model, changed));
    }
    if (change.kind == Change::Kind::kNodes) {
      changed.nodes = changed.ranks = static_cast<std::uint32_t>(change.value);
      EXPECT_TRUE(FitsWith(model, changed));
      changed.nodes = changed.ranks = static_cast<std::uint32_t>(change.value - 1);
      EXPECT_FALSE(FitsWith(model, changed));
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
  EXPECT_TRUE(FitsWith(model, job));
  job.batch.sequence_length = length + 64;
  EXPECT_FALSE(FitsWith(model, job));
}

TEST(WhatWouldFit, WhatFits_NeedsNothing) {
  const Model model = *FindModel("gpt2");
  const Job job = On("h100-80gb", 64);
  EXPECT_TRUE(WhatWouldFit(model, job, Of(model, job))->empty());
}

// On one rank and on two, on a device that holds a part and on one that holds next to nothing.
TEST(LeastHostBytes, WasTriedAndOneExtentOfEachRankLessDoesNotFit) {
  const Model model = *FindModel("gpt2-medium");
  for (const std::uint32_t ranks : {1u, 2u}) {
    for (const std::uint64_t device_mib : {512, 2048}) {
      Job job = On("rtx-3090-24gb", 0);
      job.ranks = ranks;
      job.hardware.device_bytes = job.hardware.reserved_bytes + (device_mib << 20);
      const absl::StatusOr<std::uint64_t> least = LeastHostBytes(model, job);
      ASSERT_TRUE(least.ok()) << least.status();
      ASSERT_GT(*least, 0u);
      job.host_bytes = *least;
      EXPECT_TRUE(FitsWith(model, job)) << ranks << " ranks, " << device_mib << " MiB";
      job.host_bytes = *least - 4096 * ranks;
      EXPECT_FALSE(FitsWith(model, job)) << ranks << " ranks, " << device_mib << " MiB";
    }
  }
}

TEST(LeastHostBytes, WhereTheDeviceHoldsAll_IsNone) {
  EXPECT_EQ(*LeastHostBytes(*FindModel("gpt2"), On("h100-80gb", 0)), 0u);
}

TEST(LeastHostBytes, WhereTheDeviceIsTooSmall_IsExhausted) {
  Job job = On("rtx-2060-6gb", 0);
  job.hardware.device_bytes = job.hardware.reserved_bytes + (std::uint64_t{16} << 20);
  EXPECT_EQ(LeastHostBytes(*FindModel("gpt2"), job).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(LargestThatFits, FitsAndTheNextDoesNot) {
  const Family& family = *FindFamily("gpt2-like");
  const Job job = On("rtx-2060-6gb", 32);
  const absl::StatusOr<Model> largest = LargestThatFits(family, job);
  ASSERT_TRUE(largest.ok()) << largest.status();
  EXPECT_TRUE(FitsWith(*largest, job));
  EXPECT_FALSE(FitsWith(*MemberOfStep(family, largest->hidden / 64 + 1), job));
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
