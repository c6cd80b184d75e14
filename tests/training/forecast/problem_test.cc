#include "training/forecast/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "daemon/planner/tiers/validate.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/hf_config.h"
#include "training/forecast/trainer_layout.h"

namespace geminid::forecast {
namespace {

using planner::TierProblem;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

Job A100s(std::uint32_t ranks) {
  Job job;
  job.hardware = *FindHardware("a100-40gb");
  job.ranks = ranks;
  job.host_bytes = 512 * kGiB;
  job.batch = {.sequences = 4, .sequence_length = 1024};
  return job;
}

TierProblem Problem(const std::string& model, const Job& job) {
  absl::StatusOr<TierProblem> problem = MakeProblem(*FindModel(model), job);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return problem.ok() ? *problem : TierProblem{};
}

TEST(MakeProblem, EveryModelOfTheCatalogue_MakesAValidProblem) {
  for (const CatalogueEntry& entry : Catalogue()) {
    const TierProblem problem = Problem(entry.model.name, A100s(8));
    const absl::Status status = planner::ValidateTrace(problem.trace);
    EXPECT_TRUE(status.ok()) << entry.model.name << ": " << status;
    EXPECT_EQ(problem.trace.moments.size(), 4 * entry.model.layers + 3);
    EXPECT_EQ(problem.optimizer.size(), problem.trace.chunks.size());
    EXPECT_EQ(problem.activations.size(), 2 * entry.model.layers);
  }
}

// They have fp32 norms, and each sublayer begins a chunk.
TEST(MakeProblem, OfAWholeModel_HasTheChunksOfTheTrainer) {
  Job job = A100s(2);
  const Model model = *FindTrainerModel("mixtral-20m");
  job.batch.sequence_length = model.context;
  const zero::Layout layout = *TrainerLayout(model, job.optimizer, job.ranks);
  const TierProblem problem = *MakeProblem(model, job);
  ASSERT_EQ(problem.trace.chunks.size(), layout.chunks.size());
  std::set<zero::DataType> types;
  for (std::size_t c = 0; c < layout.chunks.size(); ++c) {
    const zero::ChunkShape& chunk = layout.chunks[c];
    types.insert(chunk.type);
    EXPECT_EQ(problem.trace.chunks[c].transfer_bytes * 2, chunk.bytes());
    EXPECT_EQ(problem.optimizer[c].state_bytes() * 2, 12 * chunk.elements);
    EXPECT_EQ(problem.optimizer[c].gradient_bytes * 2, chunk.bytes());
  }
  EXPECT_EQ(types.size(), 2u);
}

// 12 bytes of state for each parameter, sharded over the ranks, plus padding. Gradients have 2
// bytes, and 4 of the norms, whose chunks have no remainder.
TEST(MakeProblem, State_Is12BytesPerParameterAndLittlePadding) {
  for (const std::uint32_t ranks : {1u, 4u, 64u}) {
    const TierProblem problem = Problem("gpt2-xl", A100s(ranks));
    std::uint64_t parameters = 0, norms = 0, state = 0, gradients = 0;
    for (std::size_t i = 0; i < problem.optimizer.size(); ++i) {
      const planner::OptimizerItem& item = problem.optimizer[i];
      const planner::Chunk& chunk = problem.trace.chunks[i];
      parameters += item.parameters;
      norms += item.remainder_bytes == 0 ? item.parameters : 0;
      state += item.state_bytes();
      gradients += item.gradient_bytes;
      EXPECT_EQ(chunk.transfer_bytes, item.weight_bytes);
      EXPECT_EQ(chunk.size_bytes, (chunk.transfer_bytes * ranks + 4095) / 4096 * 4096);
    }
    EXPECT_EQ(state, 12 * parameters);
    EXPECT_EQ(gradients, 2 * (parameters + norms));
    EXPECT_GT(norms, 0u);
    EXPECT_LT(norms, parameters / 100);
    const double exact = static_cast<double>(CountParameters(*FindModel("gpt2-xl")));
    EXPECT_GE(static_cast<double>(parameters) * ranks, exact);
    EXPECT_LE(static_cast<double>(parameters) * ranks, 1.02 * exact);
  }
}

// Each chunk is used in forward and backward, and becomes a gradient once, at its last use.
TEST(MakeProblem, EveryChunk_LeavesOnceAfterItsLastUse) {
  for (const char* name : {"gpt2", "opt-350m", "llama-7b", "palm-8b"}) {
    const TierProblem problem = Problem(name, A100s(4));
    std::vector<int> left(problem.trace.chunks.size(), 0);
    std::vector<int> uses(problem.trace.chunks.size(), 0);
    for (const planner::MomentTrace& moment : problem.trace.moments) {
      for (const planner::Use& use : moment.uses) {
        EXPECT_EQ(left[use.chunk], 0) << name << ": used after it left";
        ++uses[use.chunk];
        left[use.chunk] += use.invalidates ? 1 : 0;
      }
    }
    for (std::size_t i = 0; i < left.size(); ++i) {
      EXPECT_EQ(left[i], 1) << name << " chunk " << i;
      EXPECT_GE(uses[i], 1) << name << " chunk " << i;
    }
  }
}

TEST(MakeProblem, Activations_NestAsBackwardUndoesForward) {
  const TierProblem problem = Problem("gpt2", A100s(1));
  const std::uint32_t moments = static_cast<std::uint32_t>(problem.trace.moments.size());
  for (const planner::ActivationItem& input : problem.activations) {
    EXPECT_EQ(input.produced + input.consumed, moments - 1);
    EXPECT_EQ(input.bytes, 2u * 4 * 1024 * 768);
    EXPECT_FALSE(input.can_recompute || input.can_offload);
  }
}

// Recomputing keeps a sublayer's input and computes the rest again before its backward. What is
// kept or offloaded is what the trainer saves.
TEST(MakeProblem, Activations_TakeTheBytesOfTheTrainerOrTheTimeOfTheForwardPass) {
  const Model model = *FindModel("gpt2");
  Job job = A100s(1);
  const TierProblem recomputed = Problem("gpt2", job);
  EXPECT_EQ(recomputed.most_activation_places, 0u);
  for (const Activations how : {Activations::kKeep, Activations::kOffload}) {
    job.activations = how;
    const TierProblem saved = Problem("gpt2", job);
    EXPECT_EQ(saved.most_activation_places > 0, job.offloads());
    ASSERT_EQ(saved.activations.size(), recomputed.activations.size());
    for (std::size_t i = 0; i < saved.activations.size(); ++i) {
      const planner::ActivationItem& item = saved.activations[i];
      const Operator part = i % 2 == 0 ? Operator::kAttention : Operator::kMlp;
      EXPECT_EQ(item.bytes, TrainerSavedBytes(model, part, job.batch));
      EXPECT_EQ(item.consumed, recomputed.activations[i].consumed);
      EXPECT_FALSE(item.can_recompute);
      EXPECT_EQ(item.can_offload, job.offloads());
      const auto seconds = [&](const TierProblem& problem, planner::Moment moment) {
        return problem.trace.moments[moment].compute_seconds;
      };
      EXPECT_EQ(seconds(saved, item.produced), seconds(recomputed, item.produced));
      EXPECT_DOUBLE_EQ(seconds(saved, item.consumed) + seconds(saved, item.produced),
                       seconds(recomputed, item.consumed));
    }
  }
}

// Large batches compute at the achieved rate: 6 N operations per token plus those of attention.
TEST(MakeProblem, StepOfALargeBatch_TakesTheTimeOfItsOperations) {
  Job job = A100s(1);
  job.activations = Activations::kKeep;
  const TierProblem problem = Problem("gpt2-xl", job);
  double seconds = 0;
  for (const planner::MomentTrace& moment : problem.trace.moments) {
    seconds += moment.compute_seconds;
  }
  const double tokens = 4096;
  const double multiplied = 12.0 * 48 * 1600 * 1600 + 50257.0 * 1600;
  const double operations = 6 * tokens * multiplied + 7 * tokens * 1024 * 1600 * 48;
  const double at_rate = operations / (312e12 * 0.54);
  EXPECT_GE(seconds, at_rate);
  EXPECT_LE(seconds, 1.05 * at_rate);  // the embedding's two moments are memory-bound
}

TEST(MakeProblem, SameQuestion_SameTrace) {
  const TierProblem a = Problem("llama-7b", A100s(8));
  const TierProblem b = Problem("llama-7b", A100s(8));
  EXPECT_EQ(planner::TraceHash(a.trace), planner::TraceHash(b.trace));
}

TEST(MakeMachine, NodeMemory_IsSharedByItsRanks) {
  Job job = A100s(16);
  job.nodes = 2;
  const planner::Machine machine = MakeMachine(job);
  EXPECT_EQ(machine.ranks_on_node, 8u);
  EXPECT_EQ(machine.world_size, 16u);
  EXPECT_EQ(machine.host_bytes, 64 * kGiB);
  EXPECT_TRUE(planner::ValidateMachine(machine).ok());
}

TEST(ValidateSetup, WhatIsWrong_IsNamed) {
  const auto error = [](auto change) {
    Job job = A100s(4);
    change(&job);
    return std::string(Validate(job).message());
  };
  EXPECT_THAT(error([](Job* s) { s->nodes = 3; }), HasSubstr("4 ranks on 3 nodes"));
  EXPECT_THAT(error([](Job* s) { s->ranks = 0; }), HasSubstr("0 ranks"));
  EXPECT_THAT(error([](Job* s) { s->batch.sequences = 0; }), HasSubstr("0 sequences"));
  EXPECT_THAT(error([](Job* s) { s->hardware.flops = 0; }), HasSubstr("compute rate is 0"));
  EXPECT_THAT(error([](Job* s) { s->hardware.device_bytes = kGiB / 2; }),
              HasSubstr("nothing is left"));
  EXPECT_THAT(error([](Job* s) { s->disk_bytes = 1; }), HasSubstr("read rate of the disk"));
}

Model Configured(const std::string& json) {
  const absl::StatusOr<Model> model = ModelFromHuggingFace(json);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : Model{};
}

const char kSmallT5[] = R"({"model_type": "t5", "num_layers": 2, "num_decoder_layers": 3,
                            "d_model": 512, "num_heads": 8, "d_kv": 64, "d_ff": 2048})";

// The chain has two look-ups, encoder layers of two operators and decoder layers of three. Each
// moment except the output layer's occurs twice.
TEST(MakeProblem, EncoderAndDecoder_AreOneChainOfMoments) {
  const TierProblem problem = *MakeProblem(Configured(kSmallT5), A100s(1));
  const absl::Status status = planner::ValidateTrace(problem.trace);
  EXPECT_TRUE(status.ok()) << status;
  const std::size_t forward = 2 + 2 * 2 + 3 * 3;
  EXPECT_EQ(problem.trace.moments.size(), 2 * forward + 1);
  // Each operator has an activation. The encoder's output is one more, from its last moment on
  // until its backward.
  ASSERT_EQ(problem.activations.size(), 2 * 2 + 3 * 3 + 1);
  const planner::ActivationItem& output = problem.activations[2 * 2];
  EXPECT_EQ(output.bytes, 2u * 4 * 1024 * 512);
  EXPECT_EQ(output.produced, 4u);
  EXPECT_EQ(output.consumed, problem.trace.moments.size() - 5);
  EXPECT_FALSE(output.can_recompute || output.can_offload);
  // The tied table stays gathered until all three operators have added to its gradient.
  const planner::ChunkIndex table = problem.trace.moments[0].uses[0].chunk;
  const auto& last = problem.trace.moments.back().uses;
  EXPECT_TRUE(std::any_of(last.begin(), last.end(), [&](const planner::Use& use) {
    return use.chunk == table && use.invalidates;
  }));
}

TEST(MakeProblem, ModelsOfOtherFamilies_MakeValidProblemsInWhichEveryChunkLeavesOnce) {
  for (const char* json : {kSmallT5,
                           R"({"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 512,
                               "num_attention_heads": 8, "intermediate_size": 2048})",
                           R"({"model_type": "vit", "num_hidden_layers": 2, "hidden_size": 512,
                               "num_attention_heads": 8, "intermediate_size": 2048})",
                           R"({"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 512,
                               "num_attention_heads": 8, "intermediate_size": 1024,
                               "vocab_size": 32000})",
                           R"({"model_type": "gemma2", "num_hidden_layers": 2, "hidden_size": 512,
                               "num_attention_heads": 8, "head_dim": 64, "vocab_size": 32000,
                               "intermediate_size": 1024})"}) {
    const TierProblem problem = *MakeProblem(Configured(json), A100s(2));
    const absl::Status status = planner::ValidateTierProblem(problem);
    EXPECT_TRUE(status.ok()) << json << status;
    std::vector<int> left(problem.trace.chunks.size(), 0);
    for (const planner::MomentTrace& moment : problem.trace.moments) {
      for (const planner::Use& use : moment.uses) left[use.chunk] += use.invalidates ? 1 : 0;
    }
    EXPECT_EQ(left, std::vector<int>(left.size(), 1)) << json;
  }
}

}  // namespace
}  // namespace geminid::forecast
