// Layers sharded over grids of ranks with a GPU (tensor=1d-sequence, 2d, 2.5d and 3d), on a driver
// without a GPU. Compares with the same grid on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/tools/trainer/gpu_training.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;

const Words kGpt2 = {"--model", "gpt2-tiny", "--dtype", "fp32", "--batch", "4"};
const Words kLlama = {"--model", "llama-tiny", "--dtype", "bf16", "--batch", "4"};
const Words kCuda = {"--device", "cuda"};
constexpr const char* kMeshes[] = {"tensor=1d-sequence:2", "tensor=2d:4",
                                   "tensor=2.5d:size=8:depth=2", "tensor=3d:8"};

class GpuGridTraining : public GpuTraining {
 protected:
  static Words Cut(const Words& model, const std::string& mesh, const Words& more = {}) {
    return With(With(model, {"--parallel", mesh}), more);
  }
  nlohmann::json TrainThere(const Words& model, const std::string& mesh, const Words& more = {}) {
    return Train(With(Cut(model, mesh, more), kCuda));
  }
};

TEST_P(GpuGridTraining, LayersOverAGrid_AreThoseOfTheHostsGrid) {
  const Words validated = {"--validation", "0.2"};
  for (const char* mesh : kMeshes) {
    for (const Words& model : {kGpt2, kLlama}) {
      SCOPED_TRACE(mesh + model[1]);
      const nlohmann::json there = TrainThere(model, mesh, validated);
      EXPECT_THAT(there["computes_on"].get<std::string>(), HasSubstr("not a GPU"));
      EXPECT_LT(there["loss"].back(), there["loss"].front());
      EXPECT_THAT(there["layers_add_up_by"].get<std::string>(), HasSubstr("host memory: ranks 0"));
      ExpectClose(there, Train(Cut(model, mesh, validated)),
                  model[3] == "bf16" ? kNarrow : kRounding);
    }
  }
  ExpectMemoryBack();
}

class GpuGridArenas : public GpuGridTraining {};

// The weights of a rank are more than an arena of 2 MiB.
TEST_P(GpuGridArenas, OfAnySizeAndWithWhatIsComputedAgain_GiveTheSameBits) {
  const std::vector<Words> tight = {{"--device-memory", "2MiB"}};
  const std::vector<Words> some = {{"--device-memory", "2MiB"}, {"--activations", "offload"}};
  const std::vector<Words> all = {
      {"--device-memory", "2MiB"},    {"--device-memory", "2MiB", "--activations", "keep"},
      {"--activations", "recompute"}, {"--activations", "offload"},
      {"--placement", "cpu"},         {"--optimizer-state", "host"}};
  const Words of_128 = {"--hidden", "128"}, of_192 = {"--hidden", "192"};
  for (const auto& [run, mesh, places] :
       {std::tuple(With(kLlama, With(of_128, {"--layers", "14"})), kMeshes[0], tight),
        std::tuple(With(kGpt2, With(of_192, {"--layers", "6"})), kMeshes[1], some),
        std::tuple(With(kGpt2, With(of_192, {"--layers", "5"})), kMeshes[2], tight),
        std::tuple(With(kGpt2, {"--hidden", "256", "--layers", "6"}), kMeshes[3], tight)}) {
    const nlohmann::json free = TrainThere(run, mesh, {"--steps", "2"});
    EXPECT_EQ(free["everything_fits"], true);
    for (const Words& where : LongTests() ? all : places) {
      SCOPED_TRACE(mesh + run[1] + ::testing::PrintToString(where));
      const nlohmann::json same = TrainThere(run, mesh, With({"--steps", "2"}, where));
      EXPECT_EQ(same["loss_hex"], free["loss_hex"]);
      EXPECT_EQ(same["weights_sha256"], free["weights_sha256"]);
      EXPECT_TRUE(where[0] != "--device-memory" || same["everything_fits"] == false);
    }
  }
  ExpectMemoryBack();
}

class GpuGridSizes : public GpuGridTraining {};

// What layers work in is the arena's, so a run that is refused says a size that is enough.
TEST_P(GpuGridSizes, OfArenasThatAreTooSmall_AreRefusedWithASizeThatTrains) {
  for (const char* mesh : kMeshes) {
    SCOPED_TRACE(mesh);
    const Words& model = mesh == kMeshes[0] ? kGpt2 : kLlama;
    const Words run = With(
        Cut(model, mesh, {"--steps", "1", "--activations", "recompute", "--hidden", "512"}), kCuda);
    const CommandResult small =
        RunTrainer(Arguments(With(run, {"--device-memory", "2MiB"})), environment_);
    EXPECT_EQ(small.code, 7) << small.err;
    std::smatch said;
    ASSERT_TRUE(std::regex_search(small.err, said,
                                  std::regex("this run trains with --device-memory ([^;]+);")))
        << small.err;
    const nlohmann::json report = Train(With(run, {"--device-memory", said[1]}));
    ASSERT_FALSE(report.is_null());
    EXPECT_GT(report["device_bytes_peak"]["non_model"], 0);
    EXPECT_LE(report["device_bytes_peak"]["total"], report["device_bytes_limit"]);
  }
  ExpectMemoryBack();
}

class GpuGridMeshes : public GpuGridTraining {};

TEST_P(GpuGridMeshes, WithOtherAxes_AreThoseOfTheHost) {
  const Words several = {"--accumulate", "2", "--steps", "2"};
  for (const auto& [model, mesh] :
       {std::pair(kGpt2, "tensor=2d:4,data=2"), std::pair(kGpt2, "tensor=1d-sequence:2,zero=1"),
        std::pair(kLlama, "pipeline=2,tensor=1d-sequence:2"),
        std::pair(kLlama, "pipeline=2,tensor=2d:4")}) {
    SCOPED_TRACE(mesh);
    const Words run = With(model, several);
    ExpectClose(TrainThere(run, mesh), Train(Cut(run, mesh)),
                model == kLlama ? kNarrow : kRounding);
  }
  ExpectMemoryBack();
}

TEST_P(GpuGridMeshes, Checkpoints_GoOnInAnyMeshOnEitherDevice) {
  const Words there = {"--device", "cuda", "--parallel", "tensor=2d:4"};
  const Words host = {"--parallel", "tensor=2d:4"};
  const std::string saved = folder_ / "saved";
  const nlohmann::json straight = Train(With(kGpt2, kCuda));
  for (const auto& [before, after] :
       {std::pair(there, kCuda), std::pair(there, host), std::pair(kCuda, there)}) {
    SCOPED_TRACE(::testing::PrintToString(before) + ", then " + ::testing::PrintToString(after));
    std::filesystem::remove_all(saved);
    const Words saves = With(kGpt2, {"--save", saved, "--save-every", "2"});
    const nlohmann::json first = Train(With(saves, before));
    // No step is left, so the values read are the values saved.
    EXPECT_EQ(Train(With(With(saves, after), {"--resume"}))["weights_sha256"],
              first["weights_sha256"]);
    std::filesystem::remove_all(saved + "/step-000000003");
    const nlohmann::json rest = Train(With(With(saves, after), {"--resume"}));
    ASSERT_EQ(rest["first_step"], 2);
    ASSERT_EQ(rest["loss"].size(), 1u);
    const double loss = straight["loss"][2];
    EXPECT_NEAR(rest["loss"][0].get<double>(), loss, kRounding * loss);
  }
  ExpectMemoryBack();
}

class GpuGridTrainingBesideADaemon : public GpuTrainingBesideADaemon {
 protected:
  GpuGridTrainingBesideADaemon() : GpuTrainingBesideADaemon(/*devices=*/4) {}
};

TEST_P(GpuGridTrainingBesideADaemon, OnAGpuEach_ExchangesByNcclWithTheBitsOfOneGpu) {
  for (const char* mesh : {"tensor=2d:4", "tensor=1d-sequence:4"}) {
    for (const Words& model : {kGpt2, kLlama}) {
      if (mesh[7] == '1' && model == kLlama) continue;  // it has two key/value heads
      SCOPED_TRACE(mesh + model[1]);
      // More than fits into one message to each rank.
      const Words run = With(model, {"--parallel", mesh, "--context", "32", "--steps", "2"});
      const auto before = node_.calls("ncclBroadcast") + node_.calls("ncclAllGather");
      const nlohmann::json each = Train(With(run, kCuda));
      EXPECT_EQ(each["device_per_rank"], nlohmann::json({0, 1, 2, 3}));
      EXPECT_EQ(each["layers_add_up_by"], "nccl");
      EXPECT_GT(node_.calls("ncclBroadcast") + node_.calls("ncclAllGather"), before);
      const nlohmann::json one = Train(With(run, {"--device", "0"}));
      EXPECT_EQ(one["device_per_rank"], nlohmann::json({0, 0, 0, 0}));
      EXPECT_THAT(one["layers_add_up_by"].get<std::string>(), HasSubstr("host memory: ranks 0"));
      EXPECT_EQ(one["loss_hex"], each["loss_hex"]);
      EXPECT_EQ(one["weights_sha256"], each["weights_sha256"]);
    }
  }
  ExpectMemoryBack();
}

TEST_P(GpuGridTrainingBesideADaemon, KilledRank_IsNamedAndEndsTheOthersWithinTwoSeconds) {
  for (const Words& where : std::vector<Words>{kCuda, {"--device", "0"}}) {
    SCOPED_TRACE(where[1]);
    ExpectKilledRankEndsRun(With(With(kGpt2, where), {"--parallel", "tensor=2d:4"}), /*rank=*/3);
  }
}

INSTANTIATE_TEST_SUITE_P(Products, GpuGridTraining, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuGridArenas, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuGridSizes, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuGridMeshes, ::testing::ValuesIn(QuickProducts()), NameOf);
INSTANTIATE_TEST_SUITE_P(Products, GpuGridTrainingBesideADaemon,
                         ::testing::Values(Products::kLibrary), NameOf);

}  // namespace
}  // namespace geminid::trainer
