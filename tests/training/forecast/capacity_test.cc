// Predicts the largest models that Colossal-AI has announced for given hardware: they fit, the host
// memory that they need is as expected, and half of the memory is not enough.
#include <gtest/gtest.h>

#include "training/forecast/forecast.h"

namespace geminid::forecast {
namespace {

using planner::Tier;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

struct Claim {
  const char* name;
  const char* family;  // null: the model is in the catalogue
  const char* model;
  std::uint64_t layers, hidden, heads;
  const char* hardware;
  std::uint32_t ranks, nodes;
  Batch batch;
  double billions;
  std::uint64_t host_gib;  // host memory of a node that is enough
};

constexpr Batch kGpt2Batch = {.sequences = 4, .sequence_length = 1024};

const Claim kSingle[] = {
    {"1.5 B on an RTX 2060", nullptr, "gpt2-xl", 0, 0, 0, "rtx-2060-6gb", 1, 1, kGpt2Batch, 1.558,
     24},
    {"18 B on an RTX 3090", "gpt2-like", nullptr, 90, 4096, 16, "rtx-3090-24gb", 1, 1, kGpt2Batch,
     18.33, 256},
    {"24 B on a V100", "gpt2-like", nullptr, 30, 8192, 64, "v100-32gb", 1, 1, kGpt2Batch, 24.58,
     384},
};

const Claim kMany[] = {
    {"LLaMA-65B on 32 A100",
     nullptr,
     "llama-65b",
     0,
     0,
     0,
     "a100-80gb",
     32,
     4,
     {.sequences = 4, .sequence_length = 2048},
     65.29,
     512},
    {"GPT-3 175B on 64 A100",
     nullptr,
     "gpt3-175b",
     0,
     0,
     0,
     "a100-80gb",
     64,
     8,
     {.sequences = 2, .sequence_length = 2048},
     174.6,
     512},
};

Model ModelOf(const Claim& claim) {
  return claim.family == nullptr
             ? *FindModel(claim.model)
             : *MakeMember(*FindFamily(claim.family), claim.layers, claim.hidden, claim.heads);
}

Job JobOf(const Claim& claim) {
  Job job;
  job.hardware = *FindHardware(claim.hardware);
  job.ranks = claim.ranks;
  job.nodes = claim.nodes;
  job.host_bytes = claim.host_gib * kGiB;
  job.batch = claim.batch;
  return job;
}

bool FitsWith(const Model& model, const Job& job) {
  const absl::StatusOr<bool> fits = Fits(model, job);
  EXPECT_TRUE(fits.ok()) << fits.status();
  return fits.ok() && *fits;
}

TEST(Capacity, EveryClaim_FitsAndLeavesNoTierOverfull) {
  for (const auto& claims : {std::span<const Claim>(kSingle), std::span<const Claim>(kMany)}) {
    for (const Claim& claim : claims) {
      const Model model = ModelOf(claim);
      EXPECT_NEAR(static_cast<double>(CountParameters(model)) * 1e-9, claim.billions, 0.05)
          << claim.name;
      const Job job = JobOf(claim);
      const absl::StatusOr<Forecast> forecast = MakeForecast(model, job);
      ASSERT_TRUE(forecast.ok()) << claim.name << ": " << forecast.status();
      ASSERT_TRUE(forecast->fits()) << claim.name;
      double bytes_per_parameter = 0;
      for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
        EXPECT_LE(forecast->plan.tier(tier).peak, forecast->plan.tier(tier).limit) << claim.name;
        bytes_per_parameter += BytesPerParameter(*forecast, job, tier);
      }
      // The state alone is 12 bytes per parameter, in whichever tier.
      EXPECT_GE(bytes_per_parameter, 12) << claim.name;
      EXPECT_GT(forecast->tokens_per_second, 0) << claim.name;
    }
  }
}

// On one device, host memory must hold the part of 12 bytes of state per parameter, and of the
// gradients, that the device cannot hold. Half of that is not enough unless a disk takes the rest.
TEST(Capacity, OneDevice_NeedsHostMemoryForTheStateOrADisk) {
  for (const Claim& claim : kSingle) {
    const Model model = ModelOf(claim);
    Job job = JobOf(claim);
    const absl::StatusOr<std::uint64_t> least = LeastHostBytes(model, job);
    ASSERT_TRUE(least.ok()) << claim.name << ": " << least.status();
    const double parameters = static_cast<double>(CountParameters(model));
    const double device = static_cast<double>(job.hardware.usable_bytes());
    EXPECT_GE(static_cast<double>(*least), 12 * parameters - device) << claim.name;
    EXPECT_LE(static_cast<double>(*least), 14.5 * parameters) << claim.name;
    job.host_bytes = *least / 2;
    EXPECT_FALSE(FitsWith(model, job)) << claim.name;
    job.disk_bytes = 1000 * kGiB;
    job.disk_read_bytes_per_second = 3e9;
    job.disk_write_bytes_per_second = 2e9;
    EXPECT_TRUE(FitsWith(model, job)) << claim.name << " with a disk";
  }
}

// Many devices together hold the state. With half the memory each, and without host memory, they do
// not.
TEST(Capacity, ManyDevices_HoldTheStateButNotInHalfTheirMemory) {
  for (const Claim& claim : kMany) {
    const Model model = ModelOf(claim);
    Job job = JobOf(claim);
    job.host_bytes = 0;
    job.hardware.device_bytes /= 2;
    EXPECT_FALSE(FitsWith(model, job)) << claim.name;
  }
}

}  // namespace
}  // namespace geminid::forecast
