// Layers sharded over ranks with a GPU (tensor=1d:N), on a driver without a GPU. Compares with one
// rank there, and with the same sharding on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/tools/trainer/gpu_training.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

const Words kGpt2 = {"--model", "gpt2-tiny", "--dtype", "fp32"};
const Words kLlama = {"--model", "llama-tiny", "--dtype", "bf16"};
const Words kCuda = {"--device", "cuda"};

class GpuTensorTraining : public GpuTraining {
 protected:
  nlohmann::json TrainThere(const Words& model, const std::string& mesh, const Words& more = {}) {
    return Train(With(With(With(model, kCuda), {"--parallel", mesh}), more));
  }
};

// Results that do not depend on the products' kernels (QuickProducts).
class GpuTensorMeshes : public GpuTensorTraining {};

TEST_P(GpuTensorTraining, LayersOverTwoRanks_AreThoseOfOneRankAndOfTheHostsCut) {
  const Words validated = {"--validation", "0.2"};
  for (const Words& model : {kGpt2, kLlama}) {
    const bool narrow = model[3] == "bf16";
    const nlohmann::json cut = TrainThere(model, "tensor=1d:2", validated);
    EXPECT_THAT(cut["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
    EXPECT_LT(cut["loss"].back(), cut["loss"].front());
    EXPECT_EQ(cut["device_per_rank"], nlohmann::json({0, 0}));
    const double tolerance = narrow ? kNarrow : kRounding;
    ExpectClose(cut, Train(With(With(model, kCuda), validated)), tolerance);
    ExpectClose(cut, Train(With(With(model, {"--parallel", "tensor=1d:2"}), validated)), tolerance);
  }
  ExpectMemoryBack();
}

TEST_P(GpuTensorTraining, WhateverTheArenaAndWhatIsComputedAgain_HasTheSameBits) {
  const std::vector<Words> tight = {{"--device-memory", "2MiB"}};
  const std::vector<Words> few = {{"--placement", "cpu"}, {"--device-memory", "2MiB"}};
  const std::vector<Words> many = {{"--placement", "cpu"},
                                   {"--device-memory", "2MiB"},
                                   {"--device-memory", "2MiB", "--activations", "keep"},
                                   {"--activations", "recompute"},
                                   {"--optimizer-state", "host"}};
  // A rank has at least 2.4 MB of weights.
  std::vector<std::tuple<Words, const char*, std::vector<Words>>> runs = {{kGpt2, "6", many},
                                                                          {kLlama, "14", few}};
  if (!LongTests()) {
    runs = GetParam() == Products::kLibrary
               ? decltype(runs){{kGpt2, "6", many}, {kLlama, "14", tight}}
               : decltype(runs){{kGpt2, "6", few}};
  }
  for (const auto& [model, layers, places] : runs) {
    const Words run =
        With(model, {"--layers", layers, "--hidden", "128", "--batch", "1", "--steps", "2"});
    const nlohmann::json free = TrainThere(run, "tensor=1d:2");
    EXPECT_EQ(free["everything_fits"], true);
    for (const Words& where : places) {
      SCOPED_TRACE(model[1] + ::testing::PrintToString(where));
      const nlohmann::json same = TrainThere(run, "tensor=1d:2", where);
      EXPECT_EQ(same["loss_hex"], free["loss_hex"]);
      EXPECT_EQ(same["weights_sha256"], free["weights_sha256"]);
      EXPECT_TRUE(where[0] != "--device-memory" || same["everything_fits"] == false);
    }
  }
  ExpectMemoryBack();
}

TEST_P(GpuTensorMeshes, OfFamiliesWithNormsOrJoinedWeightsOfHeads_AreThoseOfOneRank) {
  for (const char* name : {"qwen3-tiny", "pythia-tiny"}) {
    SCOPED_TRACE(name);
    const Words model = {"--model", name, "--dtype", "fp32"};
    ExpectClose(TrainThere(model, "tensor=1d:2"), Train(With(model, kCuda)), kRounding);
  }
  ExpectMemoryBack();
}

TEST_P(GpuTensorMeshes, BesideOtherAxes_AreThoseOfOneRank) {
  const Words several = {"--accumulate", "2", "--batch", "4", "--steps", "2"};
  const Words gpt2 = With(kGpt2, several);
  const nlohmann::json one = Train(With(gpt2, kCuda));
  for (const char* mesh : {"tensor=1d:2,data=2", "tensor=1d:2,data=2,zero=1",
                           "pipeline=2,tensor=1d:2", "tensor=1d:2,sequence=ulysses:2"}) {
    SCOPED_TRACE(mesh);
    ExpectClose(TrainThere(gpt2, mesh), one, kRounding);
  }
  const Words llama = With(kLlama, several);
  ExpectClose(TrainThere(llama, "pipeline=2,tensor=1d:2,data=2"), Train(With(llama, kCuda)),
              kNarrow);
  ExpectMemoryBack();
}

// The ranks that save share layers on GPUs, or on the host, or one rank has whole layers.
TEST_P(GpuTensorMeshes, Checkpoints_GoOnInAnyMeshOnEitherDevice) {
  struct Place {
    const char* name;
    Words words;
  };
  const Place there = {"cut, on GPUs", {"--device", "cuda", "--parallel", "tensor=1d:2"}};
  const Place host = {"cut, on the host", {"--parallel", "tensor=1d:2"}};
  const Place one = {"one GPU", kCuda};
  const std::string saved = folder_ / "saved";
  const nlohmann::json straight = Train(With(kGpt2, one.words));
  for (const auto& [before, after] : {std::pair(there, one), std::pair(there, host),
                                      std::pair(host, there), std::pair(one, there)}) {
    SCOPED_TRACE(std::string(before.name) + ", then " + after.name);
    std::filesystem::remove_all(saved);
    const Words saves = With(kGpt2, {"--save", saved, "--save-every", "2"});
    const nlohmann::json first = Train(With(saves, before.words));
    // No step is left, so the values read are the values saved.
    const nlohmann::json read = Train(With(With(saves, after.words), {"--resume"}));
    EXPECT_EQ(read["weights_sha256"], first["weights_sha256"]);
    std::filesystem::remove_all(saved + "/step-000000003");
    const nlohmann::json rest = Train(With(With(saves, after.words), {"--resume"}));
    ASSERT_EQ(rest["first_step"], 2);
    ASSERT_EQ(rest["loss"].size(), 1u);
    const double loss = straight["loss"][2];
    EXPECT_NEAR(rest["loss"][0].get<double>(), loss, kRounding * loss);
  }
}

class GpuTensorTrainingBesideADaemon : public GpuTrainingBesideADaemon {};

TEST_P(GpuTensorTrainingBesideADaemon, OnAGpuEach_AddsUpByNcclWithTheBitsOfOneGpu) {
  for (const Words& model : {kGpt2, kLlama}) {
    // More than fits into one message to each rank.
    const Words cut = With(
        model, {"--parallel", "tensor=1d:2", "--batch", "8", "--context", "32", "--steps", "2"});
    const auto before = node_.calls("ncclSend");
    const nlohmann::json two = Train(With(cut, kCuda));
    EXPECT_EQ(two["device_per_rank"], nlohmann::json({0, 1}));
    EXPECT_GT(node_.calls("ncclSend"), before);
    EXPECT_EQ(two["layers_add_up_by"], "nccl");
    const nlohmann::json one = Train(With(cut, {"--device", "0"}));
    EXPECT_EQ(one["device_per_rank"], nlohmann::json({0, 0}));
    EXPECT_THAT(one["layers_add_up_by"].get<std::string>(), HasSubstr("host memory: ranks 0 and"));
    EXPECT_EQ(one["loss_hex"], two["loss_hex"]);
    EXPECT_EQ(one["weights_sha256"], two["weights_sha256"]);
    if (model == kLlama && !LongTests()) continue;
    const nlohmann::json tight = Train(With(With(cut, kCuda), {"--device-memory", "2MiB"}));
    EXPECT_EQ(tight["weights_sha256"], two["weights_sha256"]);
  }
  ExpectMemoryBack();
}

TEST_P(GpuTensorTrainingBesideADaemon, KilledRank_IsNamedAndEndsTheOtherWithinTwoSeconds) {
  for (const Words& where : std::vector<Words>{kCuda, {"--device", "0"}}) {
    SCOPED_TRACE(where[1]);
    ExpectKilledRankEndsRun(With(With(kGpt2, where), {"--parallel", "tensor=1d:2"}), /*rank=*/1);
  }
}

// All ranks go on after the last step that any of them had committed.
TEST_P(GpuTensorTrainingBesideADaemon, KilledRankOfARunWithRestarts_CostsAStartAndNoBit) {
  const auto cut = [](const std::string& steps) {
    return With(With(kGpt2, kCuda), {"--parallel", "tensor=1d:2", "--restarts", "1",
                                     "--weights-hash", "always", "--steps", steps});
  };
  TrainerProcess run(Arguments(cut("1000000")), /*columns=*/400, environment_);
  ASSERT_TRUE(run.WaitForStep(2)) << run.output();
  const std::vector<pid_t> ranks = run.Children("geminid-train: rank 1");
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  ASSERT_TRUE(run.WaitFor("start 2: ", "\x1b[Kstep ")) << run.output();
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 128 + SIGINT) << run.output();
  const nlohmann::json got = Report();
  EXPECT_EQ(got["weights_sha256"], Train(cut(got["steps_done"].dump()))["weights_sha256"]);
  ExpectMemoryBack();
}

// A daemon with one device of each kind. Ranks get them in turn.
class GpuTensorTrainingOnBoth : public GpuTrainingBesideADaemon {
 protected:
  GpuTensorTrainingOnBoth()
      : GpuTrainingBesideADaemon(/*devices=*/1, /*instances=*/0, "host:0=64MiB,cuda:1=64MiB") {}
};

TEST_P(GpuTensorTrainingOnBoth, RanksWithoutAGpuBesideOneWith_AreRefusedOnAll) {
  const CommandResult result =
      RunTrainer(Arguments(With(kGpt2, {"--parallel", "tensor=1d:2"})), environment_);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("2 ranks share layers, and 1 of them would compute on a GPU"));
  ExpectMemoryBack();
}

INSTANTIATE_TEST_SUITE_P(Products, GpuTensorTrainingOnBoth, ::testing::Values(Products::kLibrary),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuTensorTraining,
                         ::testing::Values(Products::kOwnKernels, Products::kLibrary), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuTensorMeshes, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuTensorTrainingBesideADaemon,
                         ::testing::Values(Products::kLibrary), NameOf);

}  // namespace
}  // namespace geminid::trainer
