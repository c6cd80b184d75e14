// The families' particular features, in runs that are divided over ranks: sliding windows, biases
// of queries and keys, norms of heads, scaled rotary positions, parallel blocks. Compares with runs
// of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/trainer/compared_runs.h"
#include "tests/tools/trainer/tensors_in_folder.h"

namespace geminid::trainer {
namespace {

using nlohmann::json;

// Its window is half a sequence.
const Words kMistral = {"--model", "mistral-tiny"};
const Words kQwen2 = {"--model", "llama-tiny", "--family", "qwen2"};
// Its positions begin with row 2 of their table, and the token table is also the output layer.
const Words kOpt = {"--model", "gpt2-tiny", "--family", "opt"};
// In its blocks attention and MLP have the same input.
const Words kPythia = {"--model", "pythia-tiny"};
// Its heads together are wider than the residual stream, and it has one table.
const Words kQwen3 = {"--model", "qwen3-tiny"};

// An encoder that predicts masked tokens and has a table at both ends.
const Words kBert = {"--model", "bert-tiny"};

Words Cut(const std::string& axes) { return {"--parallel", axes}; }

class FamilyTraining : public ComparedRuns {
 protected:
  FamilyTraining()
      : ComparedRuns({"--accumulate", "4", "--context", "48", "--layers", "4", "--dtype", "fp32"}) {
  }

  // The flags that load a model of `flags` with this scaling of rotary positions.
  Words Scaled(const Words& flags, const json& scaling) const {
    const std::string folder = made_here_ / "scaled";
    std::filesystem::remove_all(folder);
    Run(flags + Words{"--steps", "1", "--export", folder});
    json config = json::parse(std::ifstream(folder + "/config.json"));
    config["rope_scaling"] = scaling;
    std::ofstream(folder + "/config.json") << config.dump();
    return {"--load", folder};
  }

  const base::TemporaryFolder made_here_;
};

TEST_F(FamilyTraining, InAPipelineOrOverData_IsThatOfOneRank) {
  for (const Words& model : {kMistral, kQwen2, kQwen3, kOpt, kPythia, kBert}) {
    SCOPED_TRACE(testing::PrintToString(model));
    const Words unclipped = model + Words{"--clip-norm", "0"};
    const json one = RunOnce(unclipped);
    const json staged = Run(unclipped + Cut("pipeline=2"));
    if (model == kMistral || model == kQwen2 || model == kPythia) {
      ExpectSameBits(staged, one);
    } else {  // the gradients of both ends' tables are added
      ExpectNear(staged, one);
    }
    ExpectNear(Run(unclipped + Cut("data=2")), one);
  }
  for (const Words& model : {kQwen2, kPythia}) {
    const Words unclipped = model + Words{"--clip-norm", "0"};
    ExpectSameBits(Run(unclipped + Cut("pipeline=zbv:2")), RunOnce(unclipped));
  }
}

TEST_F(FamilyTraining, HoweverMemoryIsUsed_HasTheSameBits) {
  for (const Words& model : {kMistral, kQwen3, kPythia, kBert}) {
    const json one = RunOnce(model);
    for (const Words& how : std::vector<Words>{{"--activations", "recompute"},
                                               {"--activations", "keep"},
                                               {"--activations", "offload"},
                                               {"--placement", "cpu"}}) {
      SCOPED_TRACE(testing::PrintToString(model + how));
      ExpectSameBits(Run(model + how), one);
    }
  }
}

TEST_F(FamilyTraining, WithCutSequences_IsCloseToOneRank) {
  for (const Words& model : {kMistral, kQwen2, kQwen3, kPythia, kBert}) {
    SCOPED_TRACE(testing::PrintToString(model));
    ExpectNear(Run(model + Cut("sequence=ulysses:2")), RunOnce(model));
  }
  for (const Words& model : {kQwen2, kQwen3, kOpt, kPythia}) {
    SCOPED_TRACE(testing::PrintToString(model));
    ExpectNear(Run(model + Cut("sequence=ring:2")), RunOnce(model));
  }
}

TEST_F(FamilyTraining, WithCutLayers_IsCloseToOneRank) {
  const json one = RunOnce(kMistral);
  for (const char* axes : {"tensor=1d:2", "tensor=2d:4"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(kMistral + Cut(axes)), one);
  }
  for (const Words& model : {kQwen2, kQwen3, kOpt, kPythia}) {
    SCOPED_TRACE(testing::PrintToString(model));
    const Words validated = model + Words{"--validation", "0.2"};
    const json whole = RunOnce(validated);
    ExpectNear(Run(validated + Cut("tensor=1d:2")), whole);
    ExpectNear(Run(validated + Cut("pipeline=2,tensor=1d:2")), whole);
  }
}

// Norms of heads are the same on each rank, and their gradients are sums over the ranks.
TEST_F(FamilyTraining, WithCutLayers_ExportsTheWeightsOfOneRankAndChangesNoBitByMemory) {
  for (const Words& model : {kQwen2, kQwen3, kOpt, kPythia}) {
    SCOPED_TRACE(testing::PrintToString(model));
    const std::string whole = made_here_ / "whole", sharded = made_here_ / "sharded";
    const Words descends = model + Words{"--optimizer", "sgd", "--lr", "0.3"};
    Run(descends + Words{"--export", whole});
    const Words cut = descends + Cut("tensor=1d:2");
    const json one = Run(cut + Words{"--export", sharded});
    ExpectNearTensors(TensorsInFolder(sharded), TensorsInFolder(whole));
    for (const Words& how : std::vector<Words>{
             {"--activations", "recompute"}, {"--activations", "keep"}, {"--placement", "cpu"}}) {
      ExpectSameBits(Run(cut + how), one);
    }
    std::filesystem::remove_all(whole);
    std::filesystem::remove_all(sharded);
  }
}

// The masked tokens depend only on the sample and the seed.
TEST_F(FamilyTraining, OfMaskedTokens_GoesOnWithTheSameBitsAndMeasuresTheSameLoss) {
  const Words model = kBert + Words{"--validation", "0.1", "--dropout", "0.1"};
  const json whole = Run(model);
  ASSERT_FALSE(Run(model + Words{"--steps", "2", "--save", run_}).is_null());
  const json rest = Run(model + Words{"--save", run_, "--resume"});
  EXPECT_EQ(rest["loss_hex"][1], whole["loss_hex"][3]);
  EXPECT_EQ(rest["weights_sha256"], whole["weights_sha256"]);
  EXPECT_EQ(rest["validation"].back()["loss"], whole["validation"].back()["loss"]);
  for (const char* const axes : {"data=2,zero=1", "data=2,zero=2", "data=4"}) {
    ExpectNear(Run(kBert + Cut(axes)), RunOnce(kBert));
  }
  EXPECT_NE(Run(kBert + Words{"--seed", "2"})["loss_hex"], RunOnce(kBert)["loss_hex"]);
  const json bf16 = Run(kBert + Words{"--dtype", "bf16"});
  ExpectSameBits(Run(kBert + Words{"--dtype", "bf16", "--activations", "offload"}), bf16);
}

TEST_F(FamilyTraining, WithAWindow_IsNotThatWithout) {
  const json windowed = RunOnce(kMistral);
  const json whole = RunOnce({"--model", "llama-tiny"});
  EXPECT_EQ(windowed["parameters"], whole["parameters"]);
  EXPECT_NE(windowed["loss_hex"], whole["loss_hex"]);
}

// The positions of sharded sequences and layers are scaled, too.
TEST_F(FamilyTraining, WithScaledRotaryPositions_IsCloseToOneRankInEveryMesh) {
  const json yarn = {
      {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  const Words scaled = Scaled({"--model", "llama-tiny"}, yarn);
  const json one = Run(scaled);
  for (const char* axes : {"tensor=1d:2", "sequence=ring:2", "sequence=ulysses:2"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(scaled + Cut(axes)), one);
  }
  const Words plain = Scaled({"--model", "llama-tiny"}, nullptr);
  EXPECT_NE(Run(plain)["loss_hex"], one["loss_hex"]);
}

}  // namespace
}  // namespace geminid::trainer
