// Runs of models with experts: neither the experts' places nor the run's mesh change a bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/compared_runs.h"
#include "tests/tools/trainer/tensors_in_folder.h"

namespace geminid::trainer {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

class ExpertTraining : public ComparedRuns {
 protected:
  ExpertTraining() : ComparedRuns({"--model", "mixtral-tiny", "--context", "16"}) {}

  CommandResult RunFor(const Words& more) const { return RunTrainer(Arguments(more)); }
};

// Experts are spread over ranks.
class SpreadExpertTraining : public ExpertTraining {};

TEST_F(ExpertTraining, LowersTheLossAndReportsTheShape) {
  const json report = Run({"--steps", "40"});
  const std::vector<double> losses = report["loss"];
  EXPECT_NEAR(losses.front(), std::log(256.0), 0.2);
  EXPECT_LT(losses.back(), losses.front() - 1);
  EXPECT_EQ(report["model"]["family"], "mixtral");
  EXPECT_EQ(report["model"]["experts"], 4);
  EXPECT_EQ(report["model"]["experts_per_token"], 2);
  EXPECT_EQ(report["model"]["balance_loss"], 0.02);
}

TEST_F(ExpertTraining, WhereverExpertsAre_HasTheSameBits) {
  for (const char* dtype : {"bf16", "fp32"}) {
    const Words flags = {"--dtype", dtype, "--layers", "4", "--experts", "8"};
    const json unlimited = RunOnce(flags);
    for (const Words& where : std::vector<Words>{{"--placement", "device"},
                                                 {"--placement", "cpu"},
                                                 {"--activations", "recompute"},
                                                 {"--activations", "keep"},
                                                 {"--update", "step"},
                                                 {"--threads", "2"}}) {
      SCOPED_TRACE(testing::PrintToString(where));
      ExpectSameBits(Run(flags + where), unlimited);
    }
  }
}

// The weights take 2.0 MB, of which 1.6 MB are experts. Experts are loaded when needed and evicted
// again.
TEST_F(ExpertTraining, InLessMemoryThanItsWeights_HasTheBitsOfUnlimited) {
  const Words flags = {"--layers", "4", "--experts", "8", "--batch", "1"};
  const json unlimited = RunOnce(flags);
  const uint64_t weight_bytes = 2 * unlimited["parameters"].get<uint64_t>();
  const json limited = Run(flags + Words{"--device-memory", "1MiB"});
  ExpectSameBits(limited, unlimited);
  EXPECT_LT(limited["device_bytes_limit"].get<uint64_t>(), weight_bytes);
  EXPECT_LE(limited["device_bytes_peak"]["total"].get<uint64_t>(),
            limited["device_bytes_limit"].get<uint64_t>());
  // All weights for the forward and backward pass of each step, except those that could stay.
  const uint64_t passes = 2 * 4 * weight_bytes;
  EXPECT_GT(limited["h2d_bytes"].get<uint64_t>(), passes / 4);
}

TEST_F(ExpertTraining, OverRanks_IsCloseToOneAndDoesNotDependOnMemory) {
  const Words flags = {"--dtype", "fp32", "--clip-norm", "0.5", "--balance-loss", "0.5"};
  const json one = RunOnce(flags);
  const json two = Run(flags + Words{"--ranks", "2"});
  ExpectNear(two, one);
  ExpectSameBits(Run(flags + Words{"--ranks", "2", "--placement", "cpu"}), two);
}

// The dropped tokens depend only on their sequence.
TEST_F(ExpertTraining, WithACapacity_DropsTokensAndIsTheSameOverRanks) {
  const Words flags = {"--dtype", "fp32", "--clip-norm", "0.5", "--expert-capacity", "0.8"};
  const json one = RunOnce(flags);
  EXPECT_EQ(one["model"]["expert_capacity"], 0.8);
  EXPECT_NE(one["weights_sha256"],
            Run({"--dtype", "fp32", "--clip-norm", "0.5"})["weights_sha256"]);
  ExpectNear(Run(flags + Words{"--ranks", "2"}), one);
  ExpectNear(Run(flags + Words{"--parallel", "expert=2"}), one);
  ExpectSameBits(Run(flags + Words{"--placement", "cpu"}), one);
  const CommandResult refused =
      RunFor(flags + Words{"--parallel", "sequence=ulysses:2", "--balance-loss", "0"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--expert-capacity is of whole sequences"));
}

TEST_F(ExpertTraining, InEachOfZerosStages_IsThatOfTheThirdWhateverTheMemory) {
  const Words flags = {"--dtype", "fp32", "--layers", "4", "--accumulate", "2", "--parallel"};
  const json third = Run(flags + Words{"data=2"});
  const json second = Run(flags + Words{"data=2,zero=2"});
  ExpectSameBits(second, third);
  EXPECT_LT(second["received_bytes"], third["received_bytes"]);
  // Too little memory for all weights beside their gradients.
  const json limited = Run(flags + Words{"data=2,zero=2", "--device-memory", "3MiB"});
  ExpectSameBits(limited, third);
  // The first step has no plan, and may gather again what has left the device meanwhile.
  EXPECT_GE(limited["received_bytes"], second["received_bytes"]);
  EXPECT_LT(limited["received_bytes"], third["received_bytes"]);
  const json first = Run(flags + Words{"data=2,zero=1"});
  ExpectNear(first, third);
  EXPECT_LT(first["received_bytes"], second["received_bytes"]);
}

TEST_F(ExpertTraining, InAPipeline_HasTheBitsOfOneRank) {
  const Words flags = {"--layers",     "4", "--clip-norm", "0",
                       "--accumulate", "4", "--update",    "step"};
  ExpectSameBits(Run(flags + Words{"--parallel", "pipeline=2"}), Run(flags));
}

TEST_F(ExpertTraining, WithCutSequences_IsCloseToOneRank) {
  const Words flags = {"--dtype", "fp32", "--balance-loss", "0"};
  ExpectNear(Run(flags + Words{"--parallel", "sequence=ulysses:2"}), Run(flags));
  const CommandResult refused = RunFor({"--parallel", "sequence=ulysses:2"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--balance-loss 0"));
}

TEST_F(ExpertTraining, SavedAndResumedOnOtherRanks_GoesOnWithTheSameBits) {
  const json straight = RunOnce({});
  const Words saves = {"--save", run_, "--save-every", "2"};
  Run(saves);
  fs::remove_all(run_ + "/step-000000004");
  const json rest = Run(saves + Words{"--resume"});
  EXPECT_EQ(rest["first_step"], 2);
  EXPECT_EQ(rest["weights_sha256"], straight["weights_sha256"]);
}

TEST_F(ExpertTraining, OfAFrozenExpert_KeepsItAsItWasAndTrainsTheOthers) {
  const auto weights = [&](const Words& more) {
    fs::remove_all(run_);
    Run(more + Words{"--dtype", "fp32", "--export", run_});
    return TensorsInFolder(run_);
  };
  const NamedTensors first = weights({"--steps", "1", "--lr", "0"});
  const NamedTensors last = weights({"--freeze", "*.experts.1.*,*.gate.*"});
  ASSERT_EQ(first.size(), last.size());
  for (const auto& [name, values] : first) {
    const bool frozen =
        name.find(".experts.1.") != std::string::npos || name.find(".gate.") != std::string::npos;
    EXPECT_EQ(last.at(name) == values, frozen) << name;
  }
}

TEST_F(ExpertTraining, SpreadOverRanks_IsCloseToOneRank) {
  for (const char* clip : {"0", "0.3"}) {
    const Words flags = {"--dtype",      "fp32", "--clip-norm",    clip,
                         "--validation", "0.2",  "--balance-loss", "0.5"};
    const json one = RunOnce(flags);
    for (const char* axes : {"expert=2", "expert=4", "expert=2,data=2"}) {
      SCOPED_TRACE(axes);
      ExpectNear(Run(flags + Words{"--parallel", axes}), one);
    }
  }
}

// The optimizer does not make large steps of small gradients, whose rounding would show.
TEST_F(SpreadExpertTraining, SpreadOverRanks_HasWeightsCloseToThoseOfOneRank) {
  const auto weights = [&](const Words& more) {
    fs::remove_all(run_);
    Run(Words{"--dtype", "fp32", "--optimizer", "sgd", "--lr", "0.3", "--accumulate", "2",
              "--export", run_} +
        more);
    return TensorsInFolder(run_);
  };
  const NamedTensors one = weights({});
  for (const char* axes : {"expert=2", "expert=2,data=2"}) {
    const NamedTensors spread = weights({"--parallel", axes});
    ASSERT_EQ(spread.size(), one.size());
    for (const auto& [name, values] : one) {
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(spread.at(name)[i], values[i], 1e-6) << axes << ' ' << name << '[' << i << ']';
      }
    }
  }
}

TEST_F(SpreadExpertTraining, SpreadOverRanks_DoesNotDependOnMemory) {
  for (const char* dtype : {"bf16", "fp32"}) {
    const Words flags = {"--layers", "4",   "--experts",  "8",
                         "--dtype",  dtype, "--parallel", "expert=2"};
    const json unlimited = RunOnce(flags);
    EXPECT_EQ(unlimited["mesh"], "pipeline=1 x data=1 x sequence=1 x expert=2");
    EXPECT_EQ(unlimited["activations"], "recompute");
    for (const Words& where :
         std::vector<Words>{{"--placement", "cpu"}, {"--device-memory", "2MiB"}}) {
      SCOPED_TRACE(testing::PrintToString(where));
      ExpectSameBits(Run(flags + where), unlimited);
    }
  }
}

// Each stage's experts are spread over its own ranks.
TEST_F(SpreadExpertTraining, SpreadInAPipeline_IsCloseToOneRankAndDoesNotDependOnMemory) {
  const Words flags = {"--dtype",     "fp32", "--layers",       "4",   "--accumulate", "4",
                       "--clip-norm", "0.3",  "--balance-loss", "0.5", "--validation", "0.2",
                       "--dropout",   "0.1"};
  const json one = RunOnce(flags);
  for (const std::string axes :
       {"pipeline=2,expert=2", "pipeline=interleaved:2:chunks=2,expert=2",
        "pipeline=2,expert=2,data=2,zero=2", "pipeline=2,expert=2,zero=1"}) {
    SCOPED_TRACE(axes);
    ExpectNear(Run(flags + Words{"--parallel", axes}), one);
  }
  const Words spread = flags + Words{"--parallel", "pipeline=2,expert=2"};
  const json unlimited = Run(spread);
  EXPECT_EQ(unlimited["mesh"], "pipeline=2 x data=1 x sequence=1 x expert=2");
  ExpectSameBits(Run(spread + Words{"--placement", "cpu"}), unlimited);
}

TEST_F(SpreadExpertTraining, SpreadInEachOfZerosStages_IsThatOfTheThird) {
  const Words flags = {"--dtype", "fp32", "--layers", "4", "--accumulate", "2", "--parallel"};
  const json third = Run(flags + Words{"expert=2,data=2"});
  const json second = Run(flags + Words{"expert=2,data=2,zero=2"});
  ExpectSameBits(second, third);
  EXPECT_LT(second["received_bytes"], third["received_bytes"]);
  const json first = Run(flags + Words{"expert=2,data=2,zero=1"});
  ExpectNear(first, third);
  EXPECT_LT(first["received_bytes"], second["received_bytes"]);
}

TEST_F(SpreadExpertTraining, SpreadWithALossScaleOfAPowerOfTwo_HasTheBitsOfNone) {
  const Words flags = {"--clip-norm", "0.3", "--parallel", "expert=2"};
  const json scaled = Run(flags + Words{"--loss-scale", "256"});
  ExpectSameBits(scaled, Run(flags));
  EXPECT_EQ(scaled["overflowed_steps"], 0);
}

// The weights grow until they and all gradients are not finite.
TEST_F(SpreadExpertTraining, SpreadWithGradientsThatOverflow_LeavesOutTheSameStepsAsOneRank) {
  const Words flags = {"--loss-scale", "dynamic", "--dtype", "fp32", "--steps",        "12",
                       "--clip-norm",  "0",       "--lr",    "1e3",  "--weight-decay", "100"};
  const json one = RunOnce(flags);
  EXPECT_GT(one["overflowed_steps"], 1);
  EXPECT_LT(one["overflowed_steps"], 11);
  const json spread = Run(flags + Words{"--parallel", "expert=2"});
  EXPECT_EQ(spread["overflowed_steps"], one["overflowed_steps"]);
  EXPECT_EQ(spread["final_loss_scale"], one["final_loss_scale"]);
}

TEST_F(SpreadExpertTraining, SavedSpread_GoesOnInAnyMesh) {
  const Words flags = {"--dtype", "fp32", "--save", run_, "--save-every", "2"};
  const json straight = RunOnce({"--dtype", "fp32"});
  const Words spread = {"--parallel", "expert=2"}, wider = {"--parallel", "expert=2,data=2"};
  const Words staged = {"--parallel", "pipeline=2,expert=2"};
  for (const auto& [before, after] :
       std::vector<std::pair<Words, Words>>{{spread, {}},
                                            {{}, spread},
                                            {spread, wider},
                                            {staged, spread},
                                            {wider, staged},
                                            {wider, {"--parallel", "pipeline=2"}}}) {
    SCOPED_TRACE(testing::PrintToString(before) + testing::PrintToString(after));
    fs::remove_all(run_);
    Run(flags + before);
    fs::remove_all(run_ + "/step-000000004");
    const json rest = Run(flags + after + Words{"--resume"});
    EXPECT_EQ(rest["first_step"], 2);
    const double loss = straight["loss"][3];
    EXPECT_NEAR(rest["loss"][1].get<double>(), loss, 2e-5 * loss);
  }
}

// A rate of zero changes no weight. So one rank that reads a spread run's checkpoint has its
// weights.
TEST_F(SpreadExpertTraining, SavedSpread_HasTheBitsOfItsWeightsOnOneRank) {
  for (const char* dtype : {"fp32", "bf16"}) {
    fs::remove_all(run_);
    const Words flags = {"--dtype", dtype, "--save", run_};
    const json spread = Run(flags + Words{"--parallel", "expert=2,data=2"});
    const json one =
        Run(flags + Words{"--resume", "--steps", "5", "--lr", "0", "--warmup-steps", "0"});
    ASSERT_FALSE(spread.is_null() || one.is_null());
    EXPECT_EQ(one["first_step"], 4);
    EXPECT_EQ(one["weights_sha256"], spread["weights_sha256"]);
  }
}

TEST_F(SpreadExpertTraining, SpreadWithAFrozenExpertAndDropout_IsCloseToOneRank) {
  const Words flags = {"--dtype", "fp32", "--freeze", "*.experts.1.*,*.gate.*", "--dropout", "0.1"};
  ExpectNear(Run(flags + Words{"--parallel", "expert=2"}), Run(flags));
}

// Tensors that all ranks have count once. The ranks of an expert know the whole expert.
TEST_F(SpreadExpertTraining, SpreadWithOptimizersOfWholeTensors_IsCloseToOneRank) {
  size_t rules = 0;
  for (const auto& [optimizer, rate] : {std::pair("lamb", "2e-2"), std::pair("lars", "10"),
                                        std::pair("adafactor", "1"), std::pair("came", "1e-4")}) {
    const Words flags = {"--dtype", "fp32",         "--optimizer", optimizer,      "--lr",
                         rate,      "--accumulate", "2",           "--validation", "0.2"};
    std::vector<Words> meshes = EachInTurn(rules++, {{"expert=2"}, {"pipeline=2,expert=2"}});
    meshes.push_back({"expert=2,data=2"});
    for (const Words& axes : meshes) {
      SCOPED_TRACE(std::string(optimizer) + " " + axes[0]);
      ExpectNear(Run(flags + Words{"--parallel"} + axes), RunOnce(flags));
    }
  }
}

// Without the balance loss, experts that are chosen early are chosen more and more.
TEST_F(ExpertTraining, TheBalanceLoss_ChangesTheRun) {
  EXPECT_NE(Run({"--balance-loss", "0"})["weights_sha256"],
            Run({"--balance-loss", "1"})["weights_sha256"]);
}

TEST_F(ExpertTraining, OfProcesses_HasTheBitsOfThreads) {
  const Words flags = {"--dtype", "fp32", "--parallel", "expert=2"};
  const json threads = RunOnce(flags);
  const CommandResult processes = RunFor(flags);
  ASSERT_EQ(processes.code, 0) << processes.err;
  ExpectSameBits(Report(), threads);
}

TEST_F(ExpertTraining, WhatExpertsCannotDoYet_IsRefusedInWords) {
  for (const auto& [words, why] : std::vector<std::pair<Words, const char*>>{
           {{"--lora-rank", "2"}, "adapters do not support models with experts yet"},
           {{"--parallel", "expert=3"}, "must divide the model's 4 experts by 3"},
           {{"--parallel", "expert=2,pipeline=4"}, "a layer for each stage"},
           {{"--parallel", "expert=2,pipeline=zbv:2", "--layers", "4"}, "models with experts"},
           {{"--parallel", "expert=2,tensor=1d:2"}, "does not support tensor or sequence yet"},
           {{"--parallel", "expert=2,sequence=ring:2"}, "does not support tensor or sequence yet"},
           {{"--parallel", "expert=2", "--update", "backward"},
            "a run without distributed experts"},
           {{"--parallel", "expert=2", "--activations", "keep"}, "--activations keep"},
           {{"--parallel", "expert=4,data=2"}, "--batch 4: it cannot be divided among 8 ranks"},
           {{"--parallel", "expert=2", "--model", "llama-tiny"}, "family has none"},
           {{"--experts-per-token", "5"}, "experts for each token is 5"},
           {{"--model", "llama-tiny", "--experts", "4"}, "use the mixtral family"}}) {
    const CommandResult result = RunFor(words);
    EXPECT_EQ(result.code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
  }
}

}  // namespace
}  // namespace geminid::trainer
