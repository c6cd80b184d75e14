// Runs whose layers are sharded over ranks, compared with runs of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/compared_runs.h"
#include "tests/tools/trainer/tensors_in_folder.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Words Cut(const std::string& axes) { return {"--parallel", axes}; }

// It has two tables, and half as many heads of keys as of queries.
const Words kLlama = {"--model", "llama-tiny"};
// Its table is also the output layer.
const Words kGpt2 = {"--model", "gpt2-tiny"};

// Optimizers that need whole tensors, with rates for such a short run.
const std::vector<std::pair<std::string, std::string>> kOfWholeTensors = {
    {"lamb", "2e-2"}, {"lars", "10"}, {"adafactor", "1"}, {"came", "1e-4"}};

// Less memory than all activations need.
const Words kLittleMemory = {"--device-memory", "512KiB"};

class TensorTraining : public ComparedRuns {
 protected:
  TensorTraining()
      : ComparedRuns(
            {"--accumulate", "2", "--context", "16", "--dtype", "fp32", "--clip-norm", "0.5"}) {}

  // Runs `flags` in several ways, and expects the same weights.
  void ExpectSameWeights(const Words& flags, const std::vector<Words>& ways) const {
    const nlohmann::json plain = RunOnce(flags);
    for (const Words& how : ways) {
      SCOPED_TRACE(testing::PrintToString(flags) + testing::PrintToString(how));
      const nlohmann::json other = Run(flags + how);
      EXPECT_EQ(other["loss_hex"], plain["loss_hex"]);
      EXPECT_EQ(other["weights_sha256"], plain["weights_sha256"]);
    }
  }
};

// A layer's use of the arena, and the result if the arena is too small.
class TensorMemory : public TensorTraining {};

// Its checkpoint also has rows and columns.
const Words kCame = {"--optimizer", "came", "--lr", "1e-4"};

class TensorCheckpoints : public TensorTraining {};
class TensorOptimizers : public TensorTraining {};

TEST_F(TensorTraining, InEveryMode_IsCloseToOneRank) {
  const Words validated = {"--validation", "0.2"};
  size_t meshes = 0;
  for (const char* axes : {"tensor=1d:2", "tensor=1d-sequence:2", "tensor=2d:4",
                           "tensor=2.5d:size=8:depth=2", "tensor=3d:8"}) {
    for (const Words& model : EachInTurn(meshes++, {kLlama, kGpt2})) {
      SCOPED_TRACE(model[1] + " " + axes);
      const nlohmann::json one = RunOnce(model + validated);
      ASSERT_FALSE(one["validation"].empty());
      ExpectNear(Run(model + validated + Cut(axes)), one);
    }
  }
}

TEST_F(TensorTraining, BesideOtherAxes_IsCloseToOneRank) {
  const nlohmann::json llama = RunOnce(kLlama);
  const nlohmann::json with_data = Run(kLlama + Cut("tensor=1d:2,data=2"));
  EXPECT_EQ(with_data["mesh"], "pipeline=1 x data=2 x sequence=1 x tensor=2");
  ExpectNear(with_data, llama);
  ExpectNear(Run(kLlama + Cut("pipeline=2,tensor=1d:2")), llama);
  const nlohmann::json gpt2 = RunOnce(kGpt2);
  for (const char* axes : {"tensor=2d:4,data=2", "pipeline=2,tensor=2d:4",
                           "pipeline=2,tensor=2.5d:size=2:depth=2,data=2"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(kGpt2 + Cut(axes)), gpt2);
  }
}

// Ranks with the same blocks have slices of the same sequences, and attend together.
TEST_F(TensorTraining, WithSequencesThatAreCutToo_IsCloseToOneRank) {
  const Words validated = {"--validation", "0.2"};
  const nlohmann::json llama = RunOnce(kLlama + validated);
  for (const char* axes : {"tensor=1d:2,sequence=ring:2", "tensor=1d-sequence:2,sequence=ring:2",
                           "tensor=2d:4,sequence=ring:2"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(kLlama + validated + Cut(axes)), llama);
  }
  const nlohmann::json gpt2 = RunOnce(kGpt2 + validated);
  for (const char* axes :
       {"tensor=1d:2,sequence=ulysses:2", "tensor=2.5d:size=2:depth=2,sequence=ulysses:2",
        "pipeline=2,tensor=2.5d:size=2:depth=2,sequence=ring:2,data=2,zero=3"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(kGpt2 + validated + Cut(axes)), gpt2);
  }
}

TEST_F(TensorTraining, WithSequencesThatAreCutToo_DoesNotDependOnMemoryNorOnThreads) {
  for (const std::string axes : {"tensor=1d:2,sequence=ring:2", "tensor=1d:2,sequence=ulysses:2"}) {
    ExpectSameWeights(kGpt2 + Cut(axes),
                      {{"--activations", "recompute"}, kLittleMemory, {"--threads", "2"}});
  }
}

// All ranks drop the same elements of the residual stream.
TEST_F(TensorTraining, WithDropout_IsCloseToOneRank) {
  const Words drops = kGpt2 + Words{"--dropout", "0.1"};
  const nlohmann::json one = RunOnce(drops);
  EXPECT_NE(one["loss_hex"], RunOnce(kGpt2)["loss_hex"]);
  for (const char* axes : {"tensor=1d:2", "pipeline=2,tensor=1d:2,data=2"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(drops + Cut(axes)), one);
  }
}

// ZeRO's stages apply to the ranks with the same blocks.
TEST_F(TensorTraining, InEachOfZerosStages_IsThatOfTheThirdAndReceivesLess) {
  for (const std::string axes : {"tensor=1d:2,data=2", "pipeline=2,tensor=1d:2,data=2"}) {
    SCOPED_TRACE(axes);
    const nlohmann::json third = Run(kLlama + Cut(axes));
    const nlohmann::json second = Run(kLlama + Cut(axes + ",zero=2"));
    const nlohmann::json first = Run(kLlama + Cut(axes + ",zero=1"));
    EXPECT_EQ(second["loss_hex"], third["loss_hex"]);
    EXPECT_EQ(second["weights_sha256"], third["weights_sha256"]);
    ExpectNear(first, third);
    EXPECT_LT(second["received_bytes"], third["received_bytes"]);
    EXPECT_LT(first["received_bytes"], second["received_bytes"]);
  }
}

TEST_F(TensorTraining, OfOneMesh_DoesNotDependOnMemoryNorOnThreads) {
  ExpectSameWeights(
      kGpt2 + Cut("tensor=2d:4"),
      {{"--activations", "recompute"}, {"--placement", "cpu"}, kLittleMemory, {"--threads", "2"}});
}

TEST_F(TensorTraining, ThatOffloadsActivations_HasTheBitsOfKeepingThem) {
  // Less memory than all activations of six layers need.
  const std::vector<std::pair<std::string, std::string>> meshes = {
      {"tensor=1d:2", "2MiB"}, {"tensor=2d:4,sequence=ring:2", "1MiB"}};
  for (const auto& [axes, memory] : meshes) {
    for (const char* dtype : {"fp32", "bf16"}) {
      SCOPED_TRACE(axes + " " + dtype);
      const Words run = kLlama + Cut(axes) + Words{"--layers", "6", "--dtype", dtype};
      const nlohmann::json keeps = Run(run + Words{"--activations", "keep"});
      const nlohmann::json offloads =
          Run(run + Words{"--activations", "offload", "--device-memory", memory});
      EXPECT_EQ(offloads["activations"], "offload");
      EXPECT_GT(offloads["activation_bytes"], 0);
      EXPECT_EQ(offloads["loss_hex"], keeps["loss_hex"]);
      EXPECT_EQ(offloads["weights_sha256"], keeps["weights_sha256"]);
    }
  }
}

// Each rank has blocks of norms, rows and columns, and some blocks are on several ranks. Each
// optimizer runs in each mesh, with one model or the other.
TEST_F(TensorOptimizers, WithOptimizersOfWholeTensors_IsCloseToOneRank) {
  size_t models = 0;
  for (const auto& [optimizer, rate] : kOfWholeTensors) {
    const Words rule = {"--optimizer", optimizer, "--lr", rate, "--accumulate", "1"};
    for (const char* axes : {"tensor=1d:2", "tensor=2d:4", "tensor=2.5d:size=8:depth=2",
                             "tensor=3d:8", "pipeline=2,tensor=1d-sequence:2,data=2"}) {
      for (const Words& model : EachInTurn(models++, {kLlama, kGpt2})) {
        SCOPED_TRACE(optimizer + " " + model[1] + " " + axes);
        ExpectNear(Run(model + rule + Cut(axes)), RunOnce(model + rule));
      }
    }
  }
}

// Two optimizers have norms, and two have rows and columns. Of each pair, one takes the first
// of two ways and the other the second.
TEST_F(TensorOptimizers, WithOptimizersOfWholeTensors_DoesNotDependOnMemoryNorOnThreads) {
  size_t rules = 0;
  for (const auto& [optimizer, rate] : kOfWholeTensors) {
    std::vector<Words> ways = {{"--optimizer-state", "device"}};
    for (const std::vector<Words>& more :
         {EachInTurn(rules, {{"--placement", "cpu"}, kLittleMemory}),
          EachInTurn(rules, {{"--threads", "2"}, {"--update-threads", "3"}})}) {
      ways.insert(ways.end(), more.begin(), more.end());
    }
    ++rules;
    ExpectSameWeights(kLlama + Words{"--optimizer", optimizer, "--lr", rate} + Cut("tensor=2d:4"),
                      ways);
  }
}

TEST_F(TensorTraining, InBfloat16_IsCloseToOneRank) {
  constexpr double kNarrow = 0x1p-10;  // of losses, over four steps; bf16 has 8 digits
  size_t meshes = 0;
  for (const char* axes :
       {"tensor=1d-sequence:2", "tensor=2d:4", "tensor=2.5d:size=8:depth=2", "tensor=3d:8",
        "pipeline=2,tensor=1d:2,data=2", "tensor=1d:2,zero=1", "tensor=1d:2,sequence=ring:2"}) {
    for (const Words& model : EachInTurn(meshes++, {kLlama, kGpt2})) {
      SCOPED_TRACE(model[1] + " " + axes);
      const Words flags = model + Words{"--dtype", "bf16"};
      const nlohmann::json one = RunOnce(flags);
      const nlohmann::json cut = Run(flags + Cut(axes));
      ASSERT_FALSE(one.is_null());
      ASSERT_EQ(cut["loss"].size(), 4);
      for (size_t step = 0; step < 4; ++step) {
        const double loss = one["loss"][step];
        EXPECT_NEAR(cut["loss"][step].get<double>(), loss, kNarrow * loss) << step;
      }
    }
  }
  const Words again = kGpt2 + Words{"--dtype", "bf16"} + Cut("tensor=1d:2");
  EXPECT_EQ(Run(again)["weights_sha256"], RunOnce(again)["weights_sha256"]);
}

TEST_F(TensorTraining, InBfloat16_DoesNotDependOnMemoryNorOnThreads) {
  ExpectSameWeights(
      kGpt2 + Words{"--dtype", "bf16"} + Cut("tensor=2d:4"),
      {{"--activations", "recompute"}, {"--placement", "cpu"}, kLittleMemory, {"--threads", "2"}});
}

// The optimizer does not make large steps of small gradients, whose rounding would show.
TEST_F(TensorCheckpoints, Exported_HasWeightsCloseToThoseOfOneRank) {
  const std::string folder = folder_ / "weights";
  for (const auto& [model, axes] : {std::pair(kLlama, "tensor=2.5d:size=8:depth=2"),
                                    std::pair(kGpt2, "pipeline=2,tensor=1d:2")}) {
    const Words exports = model + Words{"--optimizer", "sgd", "--lr", "0.3", "--export", folder};
    fs::remove_all(folder);
    Run(exports);
    const NamedTensors one = TensorsInFolder(folder);
    fs::remove_all(folder);
    Run(exports + Cut(axes));
    SCOPED_TRACE(axes);
    ExpectNearTensors(TensorsInFolder(folder), one);
    // The loaded values are the same on one rank and in a mesh.
    const Words loads = model + Words{"--load", folder, "--steps", "1", "--warmup-steps", "0"};
    ExpectNear(Run(loads + Cut("tensor=3d:8")), Run(loads));
  }
}

TEST_F(TensorCheckpoints, SavedInOneMesh_GoesOnInAnother) {
  struct Case {
    Words model, before, after;
  };
  for (const Case& c : {Case{kLlama, Cut("tensor=1d:2"), {}},
                        Case{kLlama, Cut("pipeline=2,tensor=1d-sequence:2"), Cut("tensor=3d:8")},
                        Case{kGpt2, Cut("tensor=2d:4,data=2"), Cut("data=2")},
                        Case{kGpt2, Cut("tensor=1d:2,sequence=ring:2"), Cut("sequence=ulysses:2")},
                        Case{kGpt2, {}, Cut("tensor=2.5d:size=8:depth=2")},
                        Case{kLlama + kCame, Cut("pipeline=2,tensor=1d:2"), Cut("data=2")},
                        Case{kGpt2 + kCame, Cut("tensor=2d:4"), Cut("pipeline=2")}}) {
    SCOPED_TRACE(testing::PrintToString(c.before) + testing::PrintToString(c.after));
    const nlohmann::json straight = RunOnce(c.model);
    const Words saves = c.model + Words{"--save", run_, "--save-every", "2"};
    fs::remove_all(run_);
    const nlohmann::json first = Run(saves + c.before);
    // No step is left, so the values read are the values saved.
    const nlohmann::json read = Run(saves + c.after + Words{"--resume"});
    EXPECT_EQ(read["first_step"], 4);
    EXPECT_EQ(read["weights_sha256"], first["weights_sha256"]);
    fs::remove_all(run_ + "/step-000000004");
    const nlohmann::json rest = Run(saves + c.after + Words{"--resume"});
    ASSERT_EQ(rest["loss"].size(), 2);
    for (size_t i = 0; i < 2; ++i) {
      const double loss = straight["loss"][i + 2], norm = straight["gradient_norm"][i + 2];
      EXPECT_NEAR(rest["loss"][i].get<double>(), loss, kRounding * loss);
      EXPECT_NEAR(rest["gradient_norm"][i].get<double>(), norm, kRounding * norm);
    }
  }
}

TEST_F(TensorMemory, OfFourRanks_HasAQuarterOfTheStateOnEach) {
  const Words model = {"--model", "llama-3m", "--steps", "2"};
  const double one = Run(model)["model_state_bytes_per_rank"][0];
  const nlohmann::json cut = Run(model + Cut("tensor=2d:4"));
  ASSERT_EQ(cut["model_state_bytes_per_rank"].size(), 4);
  for (const double bytes : cut["model_state_bytes_per_rank"]) {
    EXPECT_NEAR(bytes, one / 4, 0.05 * one);  // the tolerance is for padding
  }
}

// How a mode shards the residual stream: a rank has [tokens / tokens, features / features].
struct CutOfStream {
  const char* axes;
  double tokens;
  double features;
  double ranks;
};

// The arena holds activations beside the model, and is charged as a whole. The difference of two
// numbers of layers leaves only what grows with them.
TEST_F(TensorMemory, ActivationsOfALayer_AreTheClosedFormsInTheLedger) {
  constexpr double kTokens = 4 * 16, kHidden = 64, kHeads = 4;
  const auto bytes_of_layer = [&](const char* axes, const char* activations) {
    std::array<double, 2> peaks;
    for (size_t i = 0; i < peaks.size(); ++i) {
      const nlohmann::json report =
          Run(Words{"--family", "gpt2", "--layers", i == 0 ? "2" : "4", "--hidden", "64", "--heads",
                    "4", "--context", "16", "--accumulate", "1", "--steps", "1", "--activations",
                    activations} +
              Cut(axes));
      peaks[i] = report["device_bytes_peak"]["non_model"];
    }
    return (peaks[1] - peaks[0]) / 2;
  };
  for (const CutOfStream& cut : {CutOfStream{"tensor=1d:2", 1, 1, 2},
                                 {"tensor=1d-sequence:2", 2, 1, 2},
                                 {"tensor=2d:4", 2, 2, 4},
                                 {"tensor=2.5d:size=8:depth=2", 4, 2, 8},
                                 {"tensor=3d:8", 4, 2, 8}}) {
    SCOPED_TRACE(cut.axes);
    const double stream = kTokens / cut.tokens * kHidden / cut.features;
    // The inputs of the attention and the MLP sublayer are kept, whatever is recomputed.
    const double inputs = sizeof(float) * 2 * stream;
    // Both norms with a mean and a deviation for each row, but in 1D; queries, keys, values, what
    // attention gives and a sum for each head; what the MLP has inside.
    const double norms =
        std::string(cut.axes) == "tensor=1d:2" ? 0 : 2 * stream + 4 * kTokens / cut.tokens;
    const double kept = sizeof(float) * (norms + kTokens * (4 * kHidden + kHeads) / cut.ranks +
                                         kTokens * 4 * kHidden / cut.ranks);
    EXPECT_EQ(bytes_of_layer(cut.axes, "recompute"), inputs);
    EXPECT_EQ(bytes_of_layer(cut.axes, "keep"), inputs + kept);
  }
}

// An MLP's elements on one rank in the backward pass, by the header of layer_scratch.h: those that
// are always there, and those of its mode. Biases and statistics are not included.
double MlpBackwardElements(const CutOfStream& cut, double tokens, double hidden) {
  const std::string axes = cut.axes;
  const double inner = tokens * 4 * hidden / cut.ranks;
  const double weights =
      4 * hidden * hidden / (axes.find("2.5d") == std::string::npos ? cut.ranks : 4);
  // The inputs of both sublayers, the norm's output, and two gradients; both matrices transposed,
  // and their gradients; and the MLP's kept activations.
  const double there = 5 * tokens / cut.tokens * hidden / cut.features + 4 * weights + inner;
  const double within = 2 * inner;  // what the second layer takes, and its gradient
  if (axes == "tensor=1d-sequence:2") return there + within + tokens * hidden;
  if (axes == "tensor=3d:8") {
    return there + within + 2 * (2 * inner + weights + tokens * hidden / cut.ranks);
  }
  return there + within + 3 * inner + 2 * weights;
}

// The peak of the arena is that of this moment, and has nothing beside it but norms and biases. In
// 1D layers work in what whole layers do.
TEST_F(TensorTraining, WhatALayerWorksIn_IsInTheLedger) {
  for (const CutOfStream& cut : {CutOfStream{"tensor=1d-sequence:2", 2, 1, 2},
                                 {"tensor=2d:4", 2, 2, 4},
                                 {"tensor=2.5d:size=8:depth=2", 4, 2, 8},
                                 {"tensor=3d:8", 4, 2, 8}}) {
    SCOPED_TRACE(cut.axes);
    const nlohmann::json report =
        Run(Words{"--family", "gpt2", "--layers", "1", "--hidden", "64", "--heads", "4",
                  "--context", "64", "--steps", "1", "--activations", "recompute"} +
            Cut(cut.axes));
    ASSERT_FALSE(report.is_null());
    const double peak = report["device_bytes_peak"]["non_model"];
    const double expected = sizeof(float) * MlpBackwardElements(cut, 4 * 64, 64);
    EXPECT_GE(peak, expected);
    EXPECT_LE(peak, 1.1 * expected);
  }
}

// A device that is too small for a layer's scratch refuses it by name. A device that runs the
// layers does not hold more than its memory.
TEST_F(TensorMemory, OnADeviceThatIsTooSmall_SaysWhatFindsNoRoom) {
  constexpr double kKib = 1024;
  for (const auto& [axes, refused, runs] :
       {std::tuple("tensor=1d-sequence:2", 1024, 1536), std::tuple("tensor=2d:4", 512, 768)}) {
    SCOPED_TRACE(axes);
    const auto on = [](int kib) {
      return Words{"--activations", "recompute", "--device-memory", std::to_string(kib) + "KiB"};
    };
    const CommandResult small =
        RunTrainer(Words{"--text", text_, "--dtype", "fp32", "--batch", "4", "--accumulate", "2",
                         "--threads", "1", "--steps", "1"} +
                   kGpt2 + Cut(axes) + on(refused));
    EXPECT_EQ(small.code, 7) << small.err;
    EXPECT_THAT(small.err,
                testing::AllOf(HasSubstr("B): "), HasSubstr("more than the device arena"),
                               HasSubstr("this run trains with --device-memory ")));
    const nlohmann::json report = Run(kGpt2 + Words{"--context", "64"} + Cut(axes) + on(runs));
    ASSERT_FALSE(report.is_null());
    EXPECT_LE(report["device_bytes_peak"]["total"].get<double>(), runs * kKib);
  }
}

TEST_F(TensorTraining, OfProcesses_HasTheBitsOfThreads) {
  const Words flags = kLlama + Cut("tensor=2d:4");
  const nlohmann::json threads = RunOnce(flags);
  const CommandResult processes = RunTrainer(Arguments(flags));
  ASSERT_EQ(processes.code, 0) << processes.err;
  ExpectSameBits(Report(), threads);
}

TEST_F(TensorTraining, OfSequencesThatCannotBeCut_IsRefusedBeforeItBegins) {
  const CommandResult result =
      RunTrainer(Words{"--text", text_, "--dtype", "fp32", "--batch", "4"} + kLlama +
                 Cut("tensor=3d:8,data=2"));
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("2 sequences (--batch over data)"),
                                         HasSubstr("divisible by 4")));
  EXPECT_THAT(result.err, testing::Not(HasSubstr("rank ")));
}

}  // namespace
}  // namespace geminid::trainer
