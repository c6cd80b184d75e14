// Models with experts on a GPU, whole or spread over ranks, on a driver without a GPU. Compares
// with the same mesh on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "tests/tools/trainer/gpu_training.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

const Words kFp32 = {"--model", "mixtral-tiny", "--dtype", "fp32", "--batch", "4"};
const Words kBf16 = {"--model", "mixtral-tiny", "--dtype", "bf16", "--batch", "4"};
const Words kCuda = {"--device", "cuda"};

class GpuExpertTraining : public GpuTraining {
 protected:
  void ExpectAsOnTheHost(const Words& run) {
    SCOPED_TRACE(::testing::PrintToString(run));
    const nlohmann::json there = Train(With(run, kCuda));
    EXPECT_THAT(there["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
    EXPECT_LT(there["loss"].back(), there["loss"].front());
    ExpectClose(there, Train(run), run[3] == "bf16" ? kNarrow : kRounding);
  }
};

TEST_P(GpuExpertTraining, OnOneRank_AreThoseOfTheHost) {
  for (const Words& model : {kFp32, kBf16}) {
    for (const char* activations : {"keep", "recompute"}) {
      ExpectAsOnTheHost(With(model, {"--activations", activations, "--validation", "0.2"}));
    }
  }
  ExpectMemoryBack();
}

TEST_P(GpuExpertTraining, SpreadOverRanks_AreThoseOfTheHost) {
  for (const Words& model : {kFp32, kBf16}) {
    ExpectAsOnTheHost(With(model, {"--parallel", "expert=2", "--validation", "0.2"}));
  }
  const Words several = With(kFp32, {"--accumulate", "2", "--steps", "2"});
  for (const char* mesh : {"expert=2,data=2", "pipeline=2,expert=2"}) {
    ExpectAsOnTheHost(With(several, {"--parallel", mesh}));
  }
  ExpectMemoryBack();
}

TEST_P(GpuExpertTraining, BesideSequences_AreThoseOfTheHost) {
  for (const char* mesh : {"sequence=ulysses:2", "sequence=ring:2"}) {
    ExpectAsOnTheHost(With(kFp32, {"--balance-loss", "0", "--steps", "2", "--parallel", mesh}));
  }
  ExpectMemoryBack();
}

// The weights of a rank are more than an arena of 2 MiB.
TEST_P(GpuExpertTraining, WhateverTheArena_HasTheSameBits) {
  for (const Words& mesh : {Words{}, Words{"--parallel", "expert=2"}}) {
    SCOPED_TRACE(::testing::PrintToString(mesh));
    const Words run = With(With(kBf16, mesh), {"--layers", "12", "--experts", "8", "--steps", "2"});
    const nlohmann::json free = Train(With(run, kCuda));
    EXPECT_EQ(free["everything_fits"], true);
    const nlohmann::json tight = Train(With(With(run, kCuda), {"--device-memory", "2MiB"}));
    EXPECT_EQ(tight["everything_fits"], false);
    EXPECT_EQ(tight["loss_hex"], free["loss_hex"]);
    EXPECT_EQ(tight["weights_sha256"], free["weights_sha256"]);
    EXPECT_LE(tight["device_bytes_peak"]["total"], tight["device_bytes_limit"]);
  }
  ExpectMemoryBack();
}

class GpuExpertTrainingBesideADaemon : public GpuTrainingBesideADaemon {};

TEST_P(GpuExpertTrainingBesideADaemon, OnAGpuEach_HasTheBitsOfOneGpu) {
  const Words run = With(kBf16, {"--parallel", "expert=2", "--steps", "2"});
  const nlohmann::json two = Train(With(run, kCuda));
  EXPECT_EQ(two["device_per_rank"], nlohmann::json({0, 1}));
  const nlohmann::json one = Train(With(run, {"--device", "0"}));
  EXPECT_EQ(one["loss_hex"], two["loss_hex"]);
  EXPECT_EQ(one["weights_sha256"], two["weights_sha256"]);
  ExpectMemoryBack();
}

TEST_P(GpuExpertTrainingBesideADaemon, KilledRank_IsNamedAndEndsTheOther) {
  ExpectKilledRankEndsRun(With(With(kFp32, kCuda), {"--parallel", "expert=2"}), /*rank=*/1);
}

INSTANTIATE_TEST_SUITE_P(Products, GpuExpertTraining, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuExpertTrainingBesideADaemon,
                         ::testing::Values(Products::kLibrary), NameOf);

}  // namespace
}  // namespace geminid::trainer
