// Runs whose model, sequences and batch are sharded over ranks, compared with runs of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/compared_runs.h"
#include "tests/tools/trainer/tensors_in_folder.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// It has four layers and two tables.
const Words kLlama = {"--model", "llama-tiny", "--layers", "4"};
// Its table is also the output layer.
const Words kGpt2 = {"--model", "gpt2-tiny", "--layers", "4"};
// Without clipping no sum over all parameters affects the weights.
const Words kUnclipped = {"--clip-norm", "0"};

class ParallelTraining : public ComparedRuns {
 protected:
  ParallelTraining() : ComparedRuns({"--accumulate", "4", "--context", "16"}) {}

  // Runs `flags` with several uses of memory, and expects the bits of `one`.
  void ExpectBitsInAnyMemory(const Words& flags, const nlohmann::json& one) const {
    for (const Words& how : std::vector<Words>{{"--activations", "recompute"},
                                               {"--activations", "keep"},
                                               {"--placement", "cpu"},
                                               {"--placement", "device"}}) {
      SCOPED_TRACE(testing::PrintToString(how));
      ExpectSameBits(Run(flags + how), one);
    }
  }

  // Uses the largest device, from `device_kib` down, that does not hold the whole model. The
  // workspace of its products depends on the instruction set.
  void ExpectBitsOnASmallDevice(const Words& flags, int device_kib,
                                const nlohmann::json& one) const {
    for (bool fits = true; fits; device_kib -= device_kib / 32) {
      SCOPED_TRACE(absl::StrCat(device_kib, " KiB"));
      const nlohmann::json report =
          Run(flags + Words{"--device-memory", absl::StrCat(device_kib, "KiB")});
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(report, one));
      fits = report["everything_fits"];
    }
  }

  // Two ranks have several parts of the model each.
  void ExpectBitsOfOneRank(const std::string& axes) const {
    const Words flags = kLlama + kUnclipped + Words{"--dropout", "0.1", "--validation", "0.2"};
    const Words mesh = {"--parallel", axes};
    for (const char* dtype : {"bf16", "fp32"}) {
      const Words typed = flags + Words{"--dtype", dtype};
      const nlohmann::json one = RunOnce(typed);
      const nlohmann::json two = Run(typed + mesh);
      ExpectSameBits(two, one);
      EXPECT_EQ(two["world_size"], 2);
    }
    const Words narrow = {"--dtype", "bf16"};
    ExpectBitsInAnyMemory(flags + narrow + mesh, RunOnce(flags + narrow));
  }
};

// Stages with one or several parts of the model each.
class PipelineTraining : public ParallelTraining {};
class ZeroBubbleTraining : public ParallelTraining {};
// Ranks share weights, gradients and states.
class ZeroStagesTraining : public ParallelTraining {};
// Checkpoints, and optimizers that need whole tensors.
class ParallelCheckpoints : public ParallelTraining {};
class ParallelOptimizers : public ParallelTraining {};

TEST_F(PipelineTraining, InAPipeline_HasTheBitsOfOneRank) {
  for (const char* dtype : {"bf16", "fp32"}) {
    const Words flags = kLlama + kUnclipped + Words{"--dtype", dtype};
    const nlohmann::json one = RunOnce(flags);
    const nlohmann::json two = Run(flags + Words{"--parallel", "pipeline=2"});
    ExpectSameBits(two, one);
    EXPECT_EQ(two["world_size"], 2);
    EXPECT_EQ(two["mesh"], "pipeline=2 x data=1 x sequence=1");
    ExpectSameBits(Run(flags + Words{"--parallel", "pipeline=4"}), one);
  }
}

TEST_F(PipelineTraining, InAPipeline_DoesNotDependOnMemoryNorOnMicroBatches) {
  const Words flags = kLlama + kUnclipped + Words{"--dropout", "0.1"};
  const Words pipeline = {"--parallel", "pipeline=2"};
  const nlohmann::json one = RunOnce(flags);
  ExpectBitsInAnyMemory(flags + pipeline, one);
  ExpectBitsOnASmallDevice(flags + pipeline, 512, one);
  for (const char* micro_batches : {"1", "2", "7"}) {
    SCOPED_TRACE(micro_batches);
    const Words split = flags + Words{"--update", "step", "--accumulate", micro_batches};
    ExpectSameBits(Run(split + pipeline), Run(split));
  }
}

// With two micro-batches, the first stage has at most both outgoing activations beside an incoming
// gradient. The second stage has one activation beside a gradient that may be outgoing. Sequences
// have 64 tokens of 64 numbers each.
TEST_F(ParallelTraining, WhatPassesBetweenStages_IsInTheLedger) {
  const auto host_bytes = [&](const char* batch) {
    const Words flags = {"--model", "gpt2-tiny", "--context", "64",         "--accumulate",
                         "2",       "--batch",   batch,       "--parallel", "pipeline=2"};
    return Run(flags)["host_bytes"].get<double>();
  };
  EXPECT_EQ(host_bytes("8") - host_bytes("4"), 4 * (3 + 2) * 64 * 64 * sizeof(float));
}

TEST_F(PipelineTraining, InterleavedInAPipeline_HasTheBitsOfOneRank) {
  const char* const axes = "pipeline=interleaved:2:chunks=2";
  ExpectBitsOfOneRank(axes);
  const Words flags = kLlama + kUnclipped + Words{"--dropout", "0.1"};
  ExpectBitsOnASmallDevice(flags + Words{"--parallel", axes}, 512, RunOnce(flags));
}

// The numbers of chunks and micro-batches are not powers of two, so means are rounded.
TEST_F(PipelineTraining, InterleavedInAPipeline_DoesNotDependOnChunksNorOnMicroBatches) {
  for (const char* micro_batches : {"2", "6"}) {
    const Words flags = {"--model", "llama-tiny", "--layers",     "6",          "--clip-norm", "0",
                         "--dtype", "fp32",       "--accumulate", micro_batches};
    const nlohmann::json one = RunOnce(flags);
    for (const char* axes :
         {"pipeline=interleaved:2:chunks=3", "pipeline=interleaved:2:chunks=2"}) {
      SCOPED_TRACE(axes);
      ExpectSameBits(Run(flags + Words{"--parallel", axes}), one);
    }
  }
}

TEST_F(ZeroBubbleTraining, InAZeroBubblePipeline_HasTheBitsOfOneRank) {
  ExpectBitsOfOneRank("pipeline=zbv:2");
  // With fewer layers, nothing is left to be evicted beside the schedule's activations.
  const Words flags = kLlama + kUnclipped + Words{"--layers", "8", "--context", "8"};
  ExpectBitsOnASmallDevice(flags + Words{"--parallel", "pipeline=zbv:2"}, 850, RunOnce(flags));
}

// The stages are uneven, and do not divide the micro-batches.
TEST_F(ZeroBubbleTraining, InAZeroBubblePipeline_DoesNotDependOnStagesNorOnMicroBatches) {
  for (const char* micro_batches : {"2", "5"}) {
    const Words flags = {"--model", "llama-tiny", "--layers",     "7",          "--clip-norm", "0",
                         "--dtype", "fp32",       "--accumulate", micro_batches};
    const nlohmann::json one = RunOnce(flags);
    for (const char* axes : {"pipeline=zbv:2", "pipeline=zbv:3"}) {
      SCOPED_TRACE(axes);
      ExpectSameBits(Run(flags + Words{"--parallel", axes}), one);
    }
  }
  const Words flags = kLlama + kUnclipped;
  for (const std::string zero : {"", ",zero=2"}) {
    ExpectSameBits(Run(flags + Words{"--parallel", "pipeline=zbv:2,data=2" + zero}),
                   RunOnce(flags + Words{"--ranks", "2"}));
  }
}

// Frozen parameters, and thin matrices beside a layer's.
TEST_F(ZeroBubbleTraining, InAZeroBubblePipeline_FineTunesWithTheBitsOfOneRank) {
  for (const Words& how :
       std::vector<Words>{{"--lora-rank", "4"}, {"--freeze", "*norm*"}, {"--freeze", "*mlp*"}}) {
    SCOPED_TRACE(testing::PrintToString(how));
    const Words flags = kLlama + kUnclipped + how;
    ExpectSameBits(Run(flags + Words{"--parallel", "pipeline=zbv:2"}), Run(flags));
  }
}

class ParallelLossScale : public ParallelTraining {};

TEST_F(ParallelLossScale, WithALossScaleOfAPowerOfTwo_HasTheBitsOfNone) {
  size_t meshes = 0;
  for (const char* axes :
       {"pipeline=2", "pipeline=interleaved:2:chunks=2", "pipeline=zbv:2", "sequence=ring:2"}) {
    const Words flags = kLlama + Words{"--dtype", "bf16", "--parallel", axes};
    const nlohmann::json none = Run(flags);
    for (const Words& scale : EachInTurn(meshes++, {{"dynamic"}, {"256"}})) {
      SCOPED_TRACE(absl::StrCat(axes, " with ", scale[0]));
      const nlohmann::json scaled = Run(flags + Words{"--loss-scale"} + scale);
      ExpectSameBits(scaled, none);
      EXPECT_EQ(scaled["overflowed_steps"], 0);
    }
  }
}

// Scales one unit of an MLP by 2^110, and its use by 2^-110. Only the gradient of this use changes,
// by the same factor, on any rank that has it.
void EnlargeGradientsOfOneUnit(const std::string& folder, int layer) {
  constexpr uint64_t kUnit = 3;
  constexpr int kExponent = 110;
  std::string file = FileText(folder + "/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const auto header = nlohmann::json::parse(file.substr(8, length));
  const auto scale = [&](const std::string& name, bool row, int exponent) {
    const auto& tensor = header[absl::StrCat("model.layers.", layer, ".mlp.", name, ".weight")];
    const uint64_t rows = tensor["shape"][0], columns = tensor["shape"][1];
    const uint64_t begin = 8 + length + tensor["data_offsets"][0].get<uint64_t>();
    for (uint64_t i = 0; i < (row ? columns : rows); ++i) {
      const uint64_t element = row ? kUnit * columns + i : i * columns + kUnit;
      float value = 0;
      std::memcpy(&value, file.data() + begin + sizeof(value) * element, sizeof(value));
      value = std::ldexp(value, exponent);
      std::memcpy(file.data() + begin + sizeof(value) * element, &value, sizeof(value));
    }
  };
  scale("up_proj", /*row=*/true, kExponent);
  scale("down_proj", /*row=*/false, -kExponent);
  std::ofstream(folder + "/model.safetensors", std::ios::binary) << file;
}

TEST_F(ParallelLossScale, WhereOneRankOverflows_AllRanksLeaveOutTheStep) {
  const std::string folder = folder_ / "weights";
  const Words model = kLlama + kUnclipped + Words{"--dtype", "fp32"};
  for (const int layer : {0, 3}) {
    fs::remove_all(folder);
    Run(model + Words{"--steps", "1", "--export", folder});
    EnlargeGradientsOfOneUnit(folder, layer);
    const Words loads = model + Words{"--load", folder, "--steps", "1"};
    const Words large = loads + Words{"--loss-scale", "4294967296"};
    const nlohmann::json one = Run(large);
    EXPECT_EQ(one["overflowed_steps"], 1);
    for (const char* axes : {"pipeline=2", "pipeline=interleaved:2:chunks=2,data=2", "tensor=1d:2",
                             "pipeline=2,tensor=1d:2"}) {
      SCOPED_TRACE(absl::StrCat(axes, ", layer ", layer));
      const nlohmann::json cut = Run(large + Words{"--parallel", axes});
      EXPECT_EQ(cut["overflowed_steps"], 1);
      EXPECT_EQ(cut["weights_sha256"], one["weights_sha256"]);
    }
    // The overflow comes from the scale: without the scale the step is made.
    const nlohmann::json small = Run(loads + Words{"--parallel", "pipeline=2"});
    EXPECT_EQ(small["overflowed_steps"], 0);
    EXPECT_NE(small["weights_sha256"], one["weights_sha256"]);
  }
}

// The weights grow until they and all gradients are not finite.
TEST_F(ParallelLossScale, WithGradientsThatOverflow_LeavesOutTheSameStepsAsOneRank) {
  size_t meshes = 0;
  for (const char* axes : {"pipeline=interleaved:2:chunks=2,data=2", "pipeline=2"}) {
    for (const Words& model : EachInTurn(meshes++, {kLlama, kGpt2})) {
      SCOPED_TRACE(model[1] + " " + axes);
      const Words flags = model + kUnclipped + Words{"--loss-scale",   "dynamic", "--dtype", "fp32",
                                                     "--steps",        "12",      "--lr",    "1e3",
                                                     "--weight-decay", "100"};
      const nlohmann::json one = RunOnce(flags);
      EXPECT_GT(one["overflowed_steps"], 1);
      EXPECT_LT(one["overflowed_steps"], 11);
      const nlohmann::json cut = Run(flags + Words{"--parallel", axes});
      EXPECT_EQ(cut["overflowed_steps"], one["overflowed_steps"]);
      EXPECT_EQ(cut["final_loss_scale"], one["final_loss_scale"]);
    }
  }
}

TEST_F(PipelineTraining, InPipelinesOfSeveralRanks_HasTheBitsOfThoseRanks) {
  const Words flags = kLlama + kUnclipped;
  ExpectSameBits(Run(flags + Words{"--parallel", "pipeline=2,data=2"}),
                 RunOnce(flags + Words{"--ranks", "2"}));
  ExpectSameBits(Run(flags + Words{"--parallel", "pipeline=interleaved:2:chunks=2,data=2"}),
                 RunOnce(flags + Words{"--ranks", "2"}));
  // An axis without a size has the remaining ranks.
  ExpectSameBits(Run(flags + Words{"--ranks", "4", "--parallel", "pipeline=2"}),
                 Run(flags + Words{"--parallel", "data=2"}));
}

TEST_F(ParallelTraining, OverAnyAxes_IsCloseToOneRank) {
  size_t meshes = 0;
  for (const char* axes :
       {"data=2", "pipeline=2", "sequence=ulysses:2", "sequence=ring:2", "pipeline=2,data=2",
        "pipeline=2,sequence=ulysses:2", "sequence=ulysses:2,data=2", "pipeline=2,sequence=ring:2",
        "sequence=ring:2,data=2", "sequence=ring:4", "pipeline=interleaved:2:chunks=2",
        "pipeline=interleaved:2:chunks=2,sequence=ring:2", "pipeline=zbv:2",
        "pipeline=zbv:2,sequence=ulysses:2"}) {
    for (const Words& model : EachInTurn(meshes++, {kLlama, kGpt2})) {
      SCOPED_TRACE(model[1] + " " + axes);
      const Words flags = model + Words{"--dtype", "fp32", "--clip-norm", "0.5"};
      ExpectNear(Run(flags + Words{"--parallel", axes}), RunOnce(flags));
    }
  }
}

// The optimizer does not make large steps of small gradients, whose rounding would show.
TEST_F(ParallelTraining, OverAnyAxes_HasWeightsCloseToThoseOfOneRank) {
  const std::string folder = folder_ / "weights";
  const auto weights = [&](const Words& flags) {
    fs::remove_all(folder);
    Run(flags + Words{"--dtype", "fp32", "--optimizer", "sgd", "--lr", "0.3", "--export", folder});
    return TensorsInFolder(folder);
  };
  std::map<Words, NamedTensors> of_one;
  for (const Words& model : {kLlama, kGpt2}) of_one[model] = weights(model);
  size_t meshes = 0;
  for (const char* axes : {"pipeline=2,sequence=ulysses:2", "pipeline=2,data=2", "sequence=ring:2",
                           "pipeline=zbv:2"}) {
    for (const Words& model : EachInTurn(meshes++, {kLlama, kGpt2})) {
      SCOPED_TRACE(model[1] + " " + axes);
      const NamedTensors cut = weights(model + Words{"--parallel", axes});
      ASSERT_EQ(cut.size(), of_one[model].size());
      for (const auto& [name, values] : of_one[model]) {
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(cut.at(name)[i], values[i], 1e-6) << name << '[' << i << ']';
        }
      }
    }
  }
}

TEST_F(ParallelTraining, OfATiedTable_KeepsBothCopiesAlike) {
  // The export has the first stage's copy. Validation also uses the last stage's.
  const Words flags = kGpt2 + Words{"--dtype", "fp32", "--validation", "0.2"};
  const nlohmann::json one = RunOnce(flags);
  const nlohmann::json two = Run(flags + Words{"--parallel", "pipeline=2,data=2"});
  ASSERT_FALSE(one["validation"].empty());
  ExpectNear(two, one);
}

// Each stage has whole tensors, and a table at both ends counts once. Each optimizer runs in each
// mesh, with one model or the other.
TEST_F(ParallelOptimizers, WithOptimizersOfWholeTensors_IsCloseToOneRank) {
  size_t models = 0;
  for (const auto& [optimizer, rate] : {std::pair("lamb", "2e-2"), std::pair("lars", "10"),
                                        std::pair("adafactor", "1"), std::pair("came", "1e-4")}) {
    const Words rule = {"--dtype",     "fp32",    "--accumulate", "2",
                        "--optimizer", optimizer, "--lr",         rate};
    for (const char* axes :
         {"pipeline=2", "pipeline=2,data=2,zero=2", "pipeline=interleaved:2:chunks=2",
          "pipeline=zbv:2", "pipeline=2,sequence=ring:2"}) {
      for (const Words& model : EachInTurn(models++, {kLlama, kGpt2})) {
        SCOPED_TRACE(std::string(optimizer) + " " + model[1] + " " + axes);
        ExpectNear(Run(model + rule + Words{"--parallel", axes}), RunOnce(model + rule));
      }
    }
  }
}

// Other stages add the norms of their tensors in another order.
TEST_F(ParallelCheckpoints, WithOptimizersOfWholeTensors_GoesOnInAnotherMesh) {
  for (const auto& [optimizer, rate] : {std::pair("lamb", "2e-2"), std::pair("came", "1e-4")}) {
    const Words flags = kGpt2 + Words{"--dtype", "fp32", "--optimizer", optimizer, "--lr", rate};
    const nlohmann::json straight = RunOnce(flags);
    const Words saves = flags + Words{"--save", run_, "--save-every", "2"};
    for (const auto& [before, after] :
         {std::pair("pipeline=2,data=2", "data=1"), std::pair("data=2", "pipeline=zbv:2"),
          std::pair("pipeline=interleaved:2:chunks=2", "pipeline=4")}) {
      SCOPED_TRACE(std::string(optimizer) + " " + before + " " + after);
      fs::remove_all(run_);
      Run(saves + Words{"--parallel", before});
      fs::remove_all(run_ + "/step-000000004");
      const nlohmann::json rest = Run(saves + Words{"--parallel", after, "--resume"});
      ASSERT_EQ(rest["loss"].size(), 2);
      const double loss = straight["loss"][3];
      EXPECT_NEAR(rest["loss"][1].get<double>(), loss, kRounding * loss);
    }
  }
}

TEST_F(ParallelTraining, Validated_HasTheLossOfOneRank) {
  const Words flags = kLlama + kUnclipped + Words{"--validation", "0.2"};
  const nlohmann::json one = RunOnce(flags);
  ASSERT_FALSE(one["validation"].empty());
  EXPECT_EQ(Run(flags + Words{"--parallel", "pipeline=2"})["validation"], one["validation"]);
}

TEST_F(ParallelCheckpoints, SavedInOneMesh_GoesOnInAnother) {
  const Words flags = kLlama + kUnclipped + Words{"--save", run_, "--save-every", "2"};
  const nlohmann::json one = RunOnce(kLlama + kUnclipped);
  const std::vector<std::pair<Words, Words>> meshes = {
      {{"--parallel", "pipeline=2"}, {}},
      {{}, {"--parallel", "pipeline=2"}},
      {{"--parallel", "pipeline=4"}, {"--parallel", "pipeline=2"}},
      {{"--parallel", "pipeline=interleaved:2:chunks=2"}, {"--parallel", "pipeline=2"}},
      {{"--parallel", "pipeline=2"}, {"--parallel", "pipeline=interleaved:2:chunks=2"}},
      {{"--parallel", "pipeline=zbv:2"}, {"--parallel", "pipeline=2"}},
      {{}, {"--parallel", "pipeline=zbv:2"}}};
  for (const auto& [before, after] : meshes) {
    fs::remove_all(run_);
    Run(flags + before);
    fs::remove_all(run_ + "/step-000000004");
    const nlohmann::json rest = Run(flags + after + Words{"--resume"});
    EXPECT_EQ(rest["first_step"], 2);
    EXPECT_EQ(rest["weights_sha256"], one["weights_sha256"]);
  }
  const Words tied = kGpt2 + Words{"--dtype", "fp32"};
  const nlohmann::json straight = RunOnce(tied);
  fs::remove_all(run_);
  const Words saves = tied + Words{"--save", run_, "--save-every", "2"};
  Run(saves + Words{"--parallel", "pipeline=2,data=2"});
  fs::remove_all(run_ + "/step-000000004");
  for (const char* after : {"sequence=ulysses:2", "sequence=ring:2", "data=1"}) {
    fs::remove_all(run_ + "/step-000000004");
    const nlohmann::json rest = Run(saves + Words{"--parallel", after, "--resume"});
    ASSERT_EQ(rest["loss"].size(), 2);
    EXPECT_NEAR(rest["loss"][1].get<double>(), straight["loss"][3].get<double>(), 1e-4);
  }
}

TEST_F(ParallelTraining, InARing_DoesNotDependOnMemory) {
  // Three heads, which 2 does not divide.
  const Words flags = {"--model", "gpt2-tiny", "--layers", "2",          "--hidden",
                       "96",      "--heads",   "3",        "--parallel", "sequence=ring:2"};
  const nlohmann::json kept = Run(flags + Words{"--activations", "keep"});
  ExpectSameBits(Run(flags + Words{"--activations", "recompute"}), kept);
  ExpectSameBits(Run(flags + Words{"--placement", "cpu"}), kept);
}

// The bits also agree with clipping, because gradients are added in the same order.
TEST_F(ZeroStagesTraining, InTheSecondStage_HasTheBitsOfTheThirdAndReceivesLess) {
  for (const Words& model : {kLlama, kGpt2}) {
    for (const std::string axes : {"data=2", "pipeline=2,data=2", "sequence=ulysses:2",
                                   "pipeline=interleaved:2:chunks=2,data=2"}) {
      SCOPED_TRACE(axes);
      const nlohmann::json third = RunOnce(model + Words{"--parallel", axes});
      const nlohmann::json second = RunOnce(model + Words{"--parallel", axes + ",zero=2"});
      ExpectSameBits(second, third);
      EXPECT_EQ(third["zero_stage"], 3);
      EXPECT_EQ(second["zero_stage"], 2);
      EXPECT_LT(second["received_bytes"], third["received_bytes"]);
    }
  }
}

// A stage has both of its parts in one chunk. Each part's micro-batches add to its gradients, and
// the weights of a part stay during the other part's backward pass.
TEST_F(ZeroStagesTraining, InterleavedInTheSecondStage_ReceivesWeightsOnceAStep) {
  const Words flags = kLlama + Words{"--dtype", "fp32", "--parallel",
                                     "pipeline=interleaved:2:chunks=2,data=2,zero=2", "--steps"};
  const nlohmann::json few = RunOnce(flags + Words{"4"});
  const nlohmann::json many = Run(flags + Words{"6"});
  ASSERT_EQ(few["chunks"], 1);
  const uint64_t chunk = sizeof(float) * few["chunk_elements"].get<uint64_t>();
  constexpr uint64_t kStages = 2, kParts = 2, kMicroBatches = 4, kSteps = 6 - 4;
  // Half of a chunk goes to each of the two ranks that share it.
  EXPECT_EQ(many["received_bytes"].get<uint64_t>() - few["received_bytes"].get<uint64_t>(),
            kSteps * kStages * (1 + kParts * kMicroBatches) * chunk);
}

nlohmann::json TrafficOf(const nlohmann::json& report, const char* axis, const char* operation) {
  for (const nlohmann::json& row : report["traffic"]) {
    if (row["axis"] == axis && row["operation"] == operation) return row;
  }
  ADD_FAILURE() << "no " << operation << " along " << axis;
  return {{"calls", 0}, {"bytes_sent", 0}, {"bytes_received", 0}, {"partners", 0}};
}

// The traffic of two more steps than four.
TEST_F(ParallelTraining, TrafficOfEachAxis_IsItsClosedForm) {
  const Words flags =
      kLlama + Words{"--dtype", "fp32", "--parallel", "pipeline=2,data=2,zero=2", "--steps"};
  const nlohmann::json few = RunOnce(flags + Words{"4"}), many = Run(flags + Words{"6"});
  const auto more = [&](const char* axis, const char* operation, const char* field) {
    return TrafficOf(many, axis, operation)[field].get<uint64_t>() -
           TrafficOf(few, axis, operation)[field].get<uint64_t>();
  };
  constexpr uint64_t kStages = 2, kMicroBatches = 4, kSteps = 6 - 4;
  // Each token's activation goes from the first stage to the last, and its gradient goes back.
  const uint64_t boundary = sizeof(float) * few["tokens_per_step"].get<uint64_t>() *
                            few["model"]["hidden"].get<uint64_t>();
  EXPECT_EQ(more("pipeline", "Send", "bytes_sent"), kSteps * 2 * boundary);
  EXPECT_EQ(more("pipeline", "Receive", "bytes_received"), kSteps * 2 * boundary);
  EXPECT_EQ(more("pipeline", "Receive", "calls"), kSteps * kMicroBatches);
  EXPECT_EQ(TrafficOf(many, "pipeline", "Send")["partners"], 1);
  // Half of a chunk goes to each of the two ranks that share it: once for weights, and once per
  // micro-batch for gradients.
  ASSERT_EQ(few["chunks"], 1);
  const uint64_t chunk = sizeof(float) * few["chunk_elements"].get<uint64_t>();
  EXPECT_EQ(more("data", "AllGather", "bytes_received"), kSteps * kStages * chunk);
  EXPECT_EQ(more("data", "ReduceScatter", "bytes_received"),
            kSteps * kStages * kMicroBatches * chunk);
  EXPECT_EQ(TrafficOf(many, "data", "ReduceScatter")["partners"], 1);
  // The loss, the norm and the ranks' agreements are a few numbers.
  EXPECT_LT(more("all ranks", "AllReduce", "bytes_received"), kSteps * 4096);
  EXPECT_EQ(TrafficOf(many, "all ranks", "AllReduce")["partners"], 3);
}

TEST_F(ZeroStagesTraining, InTheSecondStage_DoesNotDependOnMemory) {
  const Words flags = kLlama + Words{"--dropout", "0.1"};
  const nlohmann::json third = RunOnce(flags + Words{"--parallel", "data=2"});
  for (const Words& how : std::vector<Words>{{"--activations", "recompute"},
                                             {"--placement", "device"},
                                             {"--optimizer-state", "host"},
                                             {"--device-memory", "1MiB"}}) {
    SCOPED_TRACE(testing::PrintToString(how));
    const nlohmann::json second = Run(flags + Words{"--parallel", "data=2,zero=2"} + how);
    ExpectSameBits(second, third);
    EXPECT_TRUE(how[0] != "--device-memory" || second["everything_fits"] == false);
  }
}

// One rank adds the same numbers in the same order, and one micro-batch is its own sum.
TEST_F(ZeroStagesTraining, InTheFirstStageWithOneSumAlone_HasTheBitsOfTheThird) {
  for (const Words& how : std::vector<Words>{{"data=1", "--dtype", "fp32"},
                                             {"pipeline=2", "--dtype", "fp32"},
                                             {"pipeline=interleaved:2:chunks=2", "--dtype", "fp32"},
                                             {"pipeline=zbv:2", "--dtype", "fp32"},
                                             {"data=2", "--accumulate", "1", "--batch", "8"}}) {
    SCOPED_TRACE(testing::PrintToString(how));
    const Words flags = kLlama + Words(how.begin() + 1, how.end()) + Words{"--parallel"};
    ExpectSameBits(Run(flags + Words{how[0] + ",zero=1"}), Run(flags + Words{how[0]}));
  }
}

// Gradients are reduced with the last micro-batch of any part.
TEST_F(ZeroStagesTraining, OfSeveralPartsInTheFirstStage_ReceivesGradientsOnceAStep) {
  const Words flags = kLlama + Words{"--dtype", "fp32", "--parallel"};
  for (const std::string axes :
       {"pipeline=interleaved:2:chunks=2,data=2", "pipeline=zbv:2,data=2"}) {
    SCOPED_TRACE(axes);
    const nlohmann::json first = RunOnce(flags + Words{axes + ",zero=1"});
    const nlohmann::json second = RunOnce(flags + Words{axes + ",zero=2"});
    ExpectNear(first, second);
    EXPECT_LT(first["received_bytes"], second["received_bytes"]);
  }
  const std::string axes = "pipeline=interleaved:2:chunks=2,data=2,zero=1";
  const nlohmann::json few = RunOnce(flags + Words{axes, "--steps", "4"});
  const nlohmann::json many = Run(flags + Words{axes, "--steps", "6"});
  ASSERT_EQ(few["chunks"], 1);
  const uint64_t chunk = sizeof(float) * few["chunk_elements"].get<uint64_t>();
  constexpr uint64_t kStages = 2, kWeightsAndGradients = 2, kSteps = 6 - 4;
  EXPECT_EQ(many["received_bytes"].get<uint64_t>() - few["received_bytes"].get<uint64_t>(),
            kSteps * kStages * kWeightsAndGradients * chunk);
}

// The first stage rounds sums of gradients at another place.
TEST_F(ZeroStagesTraining, InTheFirstStage_IsCloseToTheThirdAndReceivesLeast) {
  const Words flags = kLlama + Words{"--dtype", "fp32", "--parallel"};
  const nlohmann::json third = RunOnce(flags + Words{"data=2"});
  const nlohmann::json second = RunOnce(flags + Words{"data=2,zero=2"});
  const nlohmann::json first = RunOnce(flags + Words{"data=2,zero=1"});
  ExpectNear(first, third);
  EXPECT_EQ(first["zero_stage"], 1);
  // Gradients are reduced once, not four times, in each of four steps. Each rank gets half of the
  // model.
  const uint64_t model =
      sizeof(float) * first["chunks"].get<uint64_t>() * first["chunk_elements"].get<uint64_t>();
  EXPECT_EQ(second["received_bytes"].get<uint64_t>() - first["received_bytes"].get<uint64_t>(),
            4 * (4 - 1) * model);
  const Words saves = flags + Words{"data=2,zero=1", "--save", run_, "--save-every", "2"};
  Run(saves);
  fs::remove_all(run_ + "/step-000000004");
  EXPECT_EQ(Run(saves + Words{"--resume"})["weights_sha256"], first["weights_sha256"]);
}

TEST_F(ParallelCheckpoints, SavedInOneStage_GoesOnInAnother) {
  const Words flags = kLlama + Words{"--save", run_, "--save-every", "2"};
  const nlohmann::json straight = RunOnce(kLlama + Words{"--ranks", "2"});
  for (const auto& [before, after] : {std::pair{"zero=2", "zero=3"}, {"zero=3", "zero=2"}}) {
    SCOPED_TRACE(before);
    fs::remove_all(run_);
    const Words ranks = {"--ranks", "2", "--parallel"};
    Run(flags + ranks + Words{before});
    fs::remove_all(run_ + "/step-000000004");
    const nlohmann::json rest = Run(flags + ranks + Words{after, "--resume"});
    EXPECT_EQ(rest["first_step"], 2);
    EXPECT_EQ(rest["weights_sha256"], straight["weights_sha256"]);
  }
}

// The chosen mesh depends on the machine, but has the bits of the same mesh given by flags.
TEST_F(ParallelTraining, WithTheMeshLeftToIt_HasTheBitsOfTheMeshItChose) {
  const Words flags = kLlama + Words{"--ranks", "2"};
  const nlohmann::json chosen = Run(flags + Words{"--parallel", "auto"});
  ASSERT_FALSE(chosen.is_null());
  const int batch = chosen["batch"];
  const int accumulate = chosen["accumulate"];
  EXPECT_EQ(batch * accumulate, 16);
  const nlohmann::json best = chosen["mesh_choice"]["planned"][0];
  EXPECT_EQ(best["micro_batches"], accumulate);
  EXPECT_EQ(chosen["activations"], best["activations"] == "kept" ? "keep" : "recompute");
  EXPECT_EQ(chosen["place"]["ranks"], 2);
  ExpectSameBits(Run(flags + Words{"--batch", std::to_string(batch), "--accumulate",
                                   std::to_string(accumulate), "--update", "step", "--parallel",
                                   best["mesh"].get<std::string>()}),
                 chosen);
}

TEST_F(ParallelTraining, OfProcesses_HasTheBitsOfThreads) {
  for (const char* axes : {"pipeline=2,data=2", "sequence=ring:2"}) {
    SCOPED_TRACE(axes);
    const Words flags = kLlama + Words{"--parallel", axes};
    const nlohmann::json threads = RunOnce(flags);
    const CommandResult processes = RunTrainer(Arguments(flags));
    ASSERT_EQ(processes.code, 0) << processes.err;
    ExpectSameBits(Report(), threads);
  }
}

TEST_F(ParallelTraining, OfRanksThatDoNotFit_IsRefusedWithThoseThatWould) {
  const CommandResult result = RunTrainer(
      Words{"--text", text_, "--ranks", "3", "--parallel", "pipeline=2,data=1"} + kLlama);
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("--parallel: the mesh pipeline=2 x data=1 x sequence=1 has 2 "
                                    "ranks and the job 3"));
  const CommandResult batch = RunTrainer(
      Words{"--text", text_, "--batch", "3", "--parallel", "pipeline=2,data=2"} + kLlama);
  EXPECT_EQ(batch.code, 2) << batch.err;
  EXPECT_THAT(batch.err, HasSubstr("--batch 3: it cannot be divided among 2 ranks"));
}

}  // namespace
}  // namespace geminid::trainer
