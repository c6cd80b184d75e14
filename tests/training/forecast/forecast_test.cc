#include "training/forecast/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "training/forecast/offload_room.h"

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

// A model whose state does not fit on the device.
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

// A faster link never makes a step slower.
TEST(MakeForecast, FasterLink_IsNotSlower) {
  const Model model = Small();
  double last = 1e30;
  for (const double rate : {3e9, 12e9, 48e9}) {
    Job job = Cramped();
    job.hardware.up_bytes_per_second = rate;
    job.hardware.down_bytes_per_second = rate;
    const double seconds = Of(model, job).step_seconds;
    EXPECT_LE(seconds, last * 1.02) << rate;  // plans are heuristic, within 2 %
    last = seconds;
  }
}

TEST(Fits, AnyHostMemory_IsWhatTheForecastSays) {
  const Model model = Small();
  for (const std::uint64_t mib : {0, 128, 256, 512, 4096}) {
    Job job = Cramped();
    job.host_bytes = mib << 20;
    EXPECT_EQ(FitsWith(model, job), Of(model, job).fits()) << mib;
  }
}

// At least one gather and one reduction of 2 bytes per parameter, each (P - 1) / P in a ring.
TEST(MakeForecast, Collectives_TakeAtLeastARingsTime) {
  Job job = On("a100-80gb", 512);
  job.ranks = 8;
  const Forecast forecast = Of(*FindModel("opt-6.7b"), job);
  ASSERT_TRUE(forecast.fits());
  const double bytes = 2.0 * 2 * static_cast<double>(forecast.parameters) * 7 / 8;
  EXPECT_GE(forecast.collective_seconds, bytes / 300e9);
  EXPECT_LE(forecast.collective_seconds, 2 * bytes / 300e9);
  // Across nodes, the slowest link decides.
  job.nodes = 2;
  job.hardware.network_bytes_per_second = 25e9;
  const Forecast across = Of(*FindModel("opt-6.7b"), job);
  EXPECT_GE(across.collective_seconds, bytes / 25e9);
  EXPECT_TRUE(across.bound_by_collectives);
  EXPECT_EQ(across.step_seconds, across.collective_seconds);
}

// `job` with one of its numbers changed.
Job With(Job job, Change::Kind kind, std::uint64_t value) {
  switch (kind) {
    case Change::Kind::kDeviceBytes:
    case Change::Kind::kDeviceAndHostBytes:
      job.hardware.device_bytes = value;
      job.hardware.reserved_bytes = 0;
      break;
    case Change::Kind::kHostBytes:
      job.host_bytes = value;
      break;
    case Change::Kind::kSequences:
      job.batch.sequences = value / job.ranks;
      break;
    case Change::Kind::kSequenceLength:
      job.batch.sequence_length = value;
      break;
    case Change::Kind::kNodes:
      job.ranks = static_cast<std::uint32_t>(value) * job.ranks_per_node();
      job.nodes = static_cast<std::uint32_t>(value);
      break;
  }
  return job;
}

// The value one step closer to the original job: less memory, or more sequences.
std::uint64_t OneStepLess(Change::Kind kind, std::uint64_t value, std::uint64_t ranks) {
  switch (kind) {
    case Change::Kind::kSequences:
      return value + ranks;
    case Change::Kind::kSequenceLength:
      return value + kTokensStep;
    case Change::Kind::kNodes:
      return value - 1;
    default:
      return value - MemoryStep(value);
  }
}

// Checks that each suggested value fits and that one step less does not. Returns the kinds.
std::set<Change::Kind> CheckChanges(const Model& model, const Job& job) {
  std::set<Change::Kind> kinds;
  EXPECT_FALSE(FitsWith(model, job));
  const absl::StatusOr<std::vector<Change>> changes = FittingChanges(model, job);
  EXPECT_TRUE(changes.ok()) << changes.status();
  if (!changes.ok()) return kinds;
  for (const Change& change : *changes) {
    kinds.insert(change.kind);
    Job with = job;
    if (change.host_bytes > 0) {
      with.host_bytes = OneStepLess(Change::Kind::kHostBytes, change.host_bytes, job.ranks);
      EXPECT_FALSE(FitsWith(model, With(with, change.kind, change.value))) << change.text;
      with.host_bytes = change.host_bytes;
    }
    EXPECT_TRUE(FitsWith(model, With(with, change.kind, change.value))) << change.text;
    EXPECT_FALSE(
        FitsWith(model, With(with, change.kind, OneStepLess(change.kind, change.value, job.ranks))))
        << change.text;
  }
  return kinds;
}

TEST(FittingChanges, EachChange_IsTheSmallestThatFits) {
  using Kind = Change::Kind;
  Job host_is_short = On("rtx-3090-24gb", 16);
  EXPECT_THAT(CheckChanges(*FindModel("opt-6.7b"), host_is_short),
              ::testing::UnorderedElementsAre(Kind::kDeviceBytes, Kind::kHostBytes, Kind::kNodes));
  Job device_is_short = On("rtx-2060-6gb", 64);
  device_is_short.batch = {.sequences = 64, .sequence_length = 4096};
  EXPECT_THAT(
      CheckChanges(*FindModel("gpt2-xl"), device_is_short),
      ::testing::UnorderedElementsAre(Kind::kDeviceBytes, Kind::kSequences, Kind::kSequenceLength));
  // For a small arena, the search takes small steps.
  Job tiny = On("rtx-2060-6gb", 64);
  tiny.hardware.reserved_bytes = 0;
  tiny.hardware.device_bytes = 64 << 10;
  tiny.batch = {.sequences = 2, .sequence_length = 64};
  EXPECT_THAT(CheckChanges(*FindModel("gpt2-tiny"), tiny), ::testing::Contains(Kind::kDeviceBytes));
}

TEST(FittingChanges, DeviceAndHostAreShort_BothAreNamedTogether) {
  Job job = On("rtx-2060-6gb", 64);
  job.hardware.reserved_bytes = 0;
  job.hardware.device_bytes = 1 << 20;
  job.host_bytes = 1 << 20;
  job.batch = {.sequences = 1, .sequence_length = 1024};
  EXPECT_THAT(CheckChanges(*FindModel("gpt2"), job),
              ::testing::Contains(Change::Kind::kDeviceAndHostBytes));
  job.host_bytes = 64 * kGiB;
  EXPECT_THAT(CheckChanges(*FindModel("gpt2"), job),
              ::testing::Not(::testing::Contains(Change::Kind::kDeviceAndHostBytes)));
}

TEST(FittingChanges, TooLongASequence_IsShortened) {
  Job job = On("rtx-2060-6gb", 64);
  job.batch = {.sequences = 1, .sequence_length = 1 << 20};
  EXPECT_THAT(CheckChanges(*FindModel("gpt2-xl"), job),
              ::testing::Contains(Change::Kind::kSequenceLength));
}

// The batch is larger than any plan can name.
TEST(FittingChanges, AnyBatch_IsAnsweredWithTheLargestThatFits) {
  const Model model = *FindModel("llama-7b");
  Job job = On("a100-80gb", 512);
  job.batch = {.sequences = 100'000, .sequence_length = 2048};
  const absl::Status status = MakeForecast(model, job).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("smaller batch"));
  EXPECT_THAT(CheckChanges(model, job), ::testing::Contains(Change::Kind::kSequences));
}

// --- the engine's own decisions ---

TEST(Decisions, WithRecomputation_AreThoseOfTheEngine) {
  for (const std::uint64_t mib : {512, 1024, 2048, 4096}) {
    Job job = On("rtx-2060-6gb", 16);
    job.hardware.device_bytes = job.hardware.reserved_bytes + (mib << 20);
    job.disk_bytes = 1000 * kGiB;
    job.disk_read_bytes_per_second = job.disk_write_bytes_per_second = 3e9;
    const Forecast forecast = Of(*FindModel("gpt2"), job);
    ASSERT_TRUE(forecast.fits()) << mib;
    EXPECT_FALSE(forecast.plan.disk.used);
    EXPECT_EQ(forecast.plan.traffic.activations_down, 0u);
    EXPECT_EQ(forecast.plan.traffic.state_up, 0u);
    for (const planner::OptimizerPlace place : forecast.plan.decisions.optimizer) {
      EXPECT_NE(place, planner::OptimizerPlace::kStreamed);
    }
    // In the order of first use, chunks with state on the device come first.
    bool on_host = false;
    std::set<planner::ChunkIndex> seen;
    for (const planner::MomentTrace& moment : forecast.problem.trace.moments) {
      for (const planner::Use& use : moment.uses) {
        if (!seen.insert(use.chunk).second) continue;
        const planner::OptimizerPlace place = forecast.plan.decisions.optimizer[use.chunk];
        if (place == planner::OptimizerPlace::kHost) on_host = true;
        EXPECT_FALSE(on_host && place == planner::OptimizerPlace::kDevice) << mib;
      }
    }
    EXPECT_EQ(seen.size(), forecast.plan.decisions.optimizer.size());
    for (const planner::ActivationPlace place : forecast.plan.decisions.activations) {
      EXPECT_NE(place, planner::ActivationPlace::kOffload);
    }
  }
}

// State that moves to the device still occupies its host memory, unless all state starts there.
TEST(Decisions, StateOnTheDevice_LeavesNoRoomOnTheHost) {
  Job job = On("rtx-2060-6gb", 16);
  const Model model = *FindModel("gpt2-medium");
  job.hardware.device_bytes = job.hardware.reserved_bytes + 3 * kGiB;
  const Forecast some = Of(model, job);
  ASSERT_TRUE(some.fits());
  EXPECT_EQ(some.state_mode, StateMode::kAuto);
  EXPECT_GT(UpdatedWeightBytes(some), 0u);
  EXPECT_GE(some.plan.tier(Tier::kHost).peak, 14 * some.parameters);
  job.hardware.device_bytes = job.hardware.reserved_bytes + 12 * kGiB;
  job.host_bytes = 0;
  const Forecast all = Of(model, job);
  ASSERT_TRUE(all.fits());
  EXPECT_EQ(all.state_mode, StateMode::kDevice);
  EXPECT_EQ(all.plan.tier(Tier::kHost).peak, 0u);
}

// The places take what the trainer's working set leaves of the device. The other activations are in
// host memory, and are copied there and back.
TEST(Decisions, OffloadedActivations_LeaveTheDeviceButForTheirPlaces) {
  const Model model = *FindModel("gpt2-medium");
  Job job = On("rtx-2060-6gb", 64);
  job.batch.sequences = 8;
  job.hardware.device_bytes = job.hardware.reserved_bytes + 2 * kGiB;
  job.activations = Activations::kKeep;
  EXPECT_FALSE(FitsWith(model, job));
  job.activations = Activations::kOffload;
  const Forecast forecast = Of(model, job);
  ASSERT_TRUE(forecast.fits());
  const std::vector<planner::ActivationItem>& items = forecast.problem.activations;
  const std::uint32_t places = forecast.plan.decisions.activation_places;
  EXPECT_GE(places, kFewestPlaces);
  ASSERT_LT(places, items.size());
  std::uint64_t leaving = 0, largest = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    largest = std::max(largest, items[i].bytes);
    if (i + places < items.size()) leaving += items[i].bytes;
  }
  EXPECT_EQ(forecast.plan.tier(Tier::kHost).of(planner::Owner::kActivations), leaving);
  EXPECT_EQ(forecast.plan.tier(Tier::kDevice).of(planner::Owner::kActivations), places * largest);
  EXPECT_EQ(forecast.plan.traffic.activations_down, leaving);
  EXPECT_EQ(forecast.plan.traffic.activations_up, leaving);
  EXPECT_GE(forecast.plan.tier(Tier::kHost).peak, 14 * forecast.parameters + leaving);
  // A step is shorter than with recomputation, as the link is idle otherwise.
  job.activations = Activations::kRecompute;
  EXPECT_LT(forecast.step_seconds, Of(model, job).step_seconds);
}

// On one rank and on two; on a device that holds a part, and on one that holds almost nothing.
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
  // At most 12 bytes of state per parameter fit into both memories.
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
