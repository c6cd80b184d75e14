#include "training/forecast/problem.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "training/forecast/catalogue.h"
#include "training/forecast/hf_config.h"
#include "training/forecast/trainer_layout.h"

namespace geminid::forecast {
namespace {

using planner::HierarchyProblem;
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

HierarchyProblem Problem(const std::string& model, const Job& job) {
  absl::StatusOr<HierarchyProblem> problem = MakeProblem(*FindModel(model), job);
  EXPECT_TRUE(problem.ok()) << problem.status();
  return problem.ok() ? *problem : HierarchyProblem{};
}

TEST(MakeProblem, EveryModelOfTheCatalogue_MakesAValidProblem) {
  for (const CatalogueEntry& entry : Catalogue()) {
    const HierarchyProblem problem = Problem(entry.model.name, A100s(8));
    const absl::Status status = planner::ValidateTrace(problem.trace);
    EXPECT_TRUE(status.ok()) << entry.model.name << ": " << status;
    EXPECT_EQ(problem.trace.moments.size(), 4 * entry.model.layers + 3);
    EXPECT_EQ(problem.optimizer.size(), problem.trace.chunks.size());
    EXPECT_EQ(problem.activations.size(), 4 * entry.model.layers);
  }
}

// They have fp32 norms, and each sublayer begins a chunk.
TEST(MakeProblem, ForTheEngine_HasTheChunksOfTheTrainer) {
  Job job = A100s(2);
  job.only_executable = true;
  const Model model = *FindTrainerModel("mixtral-20m");
  job.batch.sequence_length = model.context;
  const zero::Layout layout = *TrainerLayout(model, job.optimizer, job.ranks);
  const HierarchyProblem problem = *MakeProblem(model, job);
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

// 12 bytes of state and 2 of gradient for each parameter, sharded over the ranks, plus padding.
TEST(MakeProblem, State_Is12BytesPerParameterAndLittlePadding) {
  for (const std::uint32_t ranks : {1u, 4u, 64u}) {
    const HierarchyProblem problem = Problem("gpt2-xl", A100s(ranks));
    std::uint64_t parameters = 0, state = 0, gradients = 0, weights = 0;
    for (std::size_t i = 0; i < problem.optimizer.size(); ++i) {
      parameters += problem.optimizer[i].parameters;
      state += problem.optimizer[i].state_bytes();
      gradients += problem.optimizer[i].gradient_bytes;
      weights += problem.trace.chunks[i].size_bytes;
      EXPECT_EQ(problem.trace.chunks[i].transfer_bytes * ranks, problem.trace.chunks[i].size_bytes);
    }
    EXPECT_EQ(state, 12 * parameters);
    EXPECT_EQ(gradients, 2 * parameters);
    EXPECT_EQ(weights, 2 * parameters * ranks);
    const double exact = static_cast<double>(CountParameters(*FindModel("gpt2-xl")));
    EXPECT_GE(static_cast<double>(parameters) * ranks, exact);
    EXPECT_LE(static_cast<double>(parameters) * ranks, 1.02 * exact);
  }
}

// Each chunk is used in forward and backward, and becomes a gradient once, at its last use.
TEST(MakeProblem, EveryChunk_LeavesOnceAfterItsLastUse) {
  for (const char* name : {"gpt2", "opt-350m", "llama-7b", "palm-8b"}) {
    const HierarchyProblem problem = Problem(name, A100s(4));
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
  const HierarchyProblem problem = Problem("gpt2", A100s(1));
  const std::uint32_t moments = static_cast<std::uint32_t>(problem.trace.moments.size());
  for (std::size_t i = 0; i < problem.activations.size(); i += 2) {
    const planner::ActivationItem& input = problem.activations[i];
    const planner::ActivationItem& rest = problem.activations[i + 1];
    EXPECT_EQ(input.produced + input.consumed, moments - 1);
    EXPECT_EQ(rest.produced, input.produced);
    EXPECT_EQ(rest.consumed, input.consumed);
    EXPECT_EQ(input.bytes, 2u * 4 * 1024 * 768);
    EXPECT_FALSE(input.can_recompute);
    EXPECT_GT(rest.bytes, input.bytes);
    EXPECT_DOUBLE_EQ(rest.recompute_seconds, problem.trace.moments[rest.produced].compute_seconds);
  }
}

TEST(MakeProblem, KeepingAll_TakesTheBytesOfBothOrOfTheTrainerAndNoTimeAgain) {
  Job job = A100s(1);
  const HierarchyProblem planned = Problem("gpt2", job);
  job.activations = Activations::kKeep;
  for (const bool only_executable : {false, true}) {
    job.only_executable = only_executable;
    const HierarchyProblem kept = Problem("gpt2", job);
    ASSERT_EQ(2 * kept.activations.size(), planned.activations.size());
    for (std::size_t i = 0; i < kept.activations.size(); ++i) {
      const Operator part = i % 2 == 0 ? Operator::kAttention : Operator::kMlp;
      const std::uint64_t both =
          planned.activations[2 * i].bytes + planned.activations[2 * i + 1].bytes;
      EXPECT_EQ(kept.activations[i].bytes,
                only_executable ? TrainerSavedBytes(*FindModel("gpt2"), part, job.batch) : both);
      EXPECT_LE(kept.activations[i].bytes, both);
      EXPECT_EQ(kept.activations[i].consumed, planned.activations[2 * i].consumed);
      EXPECT_FALSE(kept.activations[i].can_recompute);
      EXPECT_FALSE(kept.activations[i].can_offload);
    }
    for (std::size_t i = 0; i < kept.trace.moments.size(); ++i) {
      EXPECT_EQ(kept.trace.moments[i].compute_seconds, planned.trace.moments[i].compute_seconds);
      EXPECT_EQ(kept.trace.moments[i].workspace_bytes, planned.trace.moments[i].workspace_bytes);
    }
  }
}

TEST(MakeProblem, RecomputingAlways_KeepsInputsAndTakesTheirTime) {
  Job job = A100s(1);
  const HierarchyProblem planned = Problem("gpt2", job);
  job.activations = Activations::kRecompute;
  const HierarchyProblem recomputed = Problem("gpt2", job);
  const auto seconds = [](const HierarchyProblem& problem) {
    double sum = 0;
    for (const planner::MomentTrace& moment : problem.trace.moments) sum += moment.compute_seconds;
    return sum;
  };
  double again = 0;
  ASSERT_EQ(2 * recomputed.activations.size(), planned.activations.size());
  for (std::size_t i = 0; i < recomputed.activations.size(); ++i) {
    again += planned.activations[2 * i + 1].recompute_seconds;
    EXPECT_EQ(recomputed.activations[i].bytes, planned.activations[2 * i].bytes);
    EXPECT_EQ(recomputed.activations[i].consumed, planned.activations[2 * i].consumed);
    EXPECT_FALSE(recomputed.activations[i].can_recompute);
    EXPECT_FALSE(recomputed.activations[i].can_offload);
  }
  EXPECT_NEAR(seconds(recomputed), seconds(planned) + again, 1e-12);
}

// Large batches compute at the achieved rate: 6 N operations per token plus those of attention.
TEST(MakeProblem, StepOfALargeBatch_TakesTheTimeOfItsOperations) {
  const Job job = A100s(1);
  const HierarchyProblem problem = Problem("gpt2-xl", job);
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
  const HierarchyProblem a = Problem("llama-7b", A100s(8));
  const HierarchyProblem b = Problem("llama-7b", A100s(8));
  EXPECT_EQ(planner::TraceHash(a.trace), planner::TraceHash(b.trace));
}

TEST(MakeMachine, NodeMemory_IsSharedByItsRanks) {
  Job job = A100s(16);
  job.nodes = 2;
  job.disk_bytes = 800 * kGiB;
  job.disk_read_bytes_per_second = 6e9;
  job.disk_write_bytes_per_second = 4e9;
  const planner::Machine machine = MakeMachine(job);
  EXPECT_EQ(machine.ranks_on_node, 8u);
  EXPECT_EQ(machine.world_size, 16u);
  EXPECT_EQ(machine.host_bytes, 64 * kGiB);
  EXPECT_EQ(machine.disk_bytes, 100 * kGiB);
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
  const HierarchyProblem problem = *MakeProblem(Configured(kSmallT5), A100s(1));
  const absl::Status status = planner::ValidateTrace(problem.trace);
  EXPECT_TRUE(status.ok()) << status;
  const std::size_t forward = 2 + 2 * 2 + 3 * 3;
  EXPECT_EQ(problem.trace.moments.size(), 2 * forward + 1);
  // Each operator has two activations. The encoder's output is one more, from its last moment on
  // until its backward.
  ASSERT_EQ(problem.activations.size(), 2 * (2 * 2 + 3 * 3) + 1);
  const planner::ActivationItem& output = problem.activations[2 * 2 * 2];
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
    const HierarchyProblem problem = *MakeProblem(Configured(json), A100s(2));
    const absl::Status status = planner::ValidateHierarchyProblem(problem);
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
