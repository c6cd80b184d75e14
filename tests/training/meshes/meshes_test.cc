#include "training/meshes/meshes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "training/forecast/catalogue.h"

namespace geminid::parallel {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;
using forecast::Activations;
using testing::HasSubstr;

// Tries every tuple of sizes, and every mode and depth.
std::size_t CountByTrial(int ranks) {
  std::size_t count = 0;
  for (int pipeline = 1; pipeline <= ranks; ++pipeline) {
    for (int data = 1; pipeline * data <= ranks; ++data) {
      for (int sequence = 1; pipeline * data * sequence <= ranks; ++sequence) {
        if (ranks % (pipeline * data * sequence) != 0) continue;
        const int tensor = ranks / (pipeline * data * sequence);
        // The ways to shard a sequence times the ways to share weights.
        const std::size_t ways = (sequence == 1 ? 1 : 2) * (data * sequence == 1 ? 1 : 3);
        if (tensor == 1) {
          count += pipeline == 1 ? ways : 2 * ways;  // 1F1B and ZBV
          continue;
        }
        for (const TensorMode mode :
             {TensorMode::k1D, TensorMode::k1DSequence, TensorMode::k2D, TensorMode::k3D}) {
          if (TensorGrid::Make(mode, tensor).ok()) count += ways;
        }
        for (int depth = 2; depth <= tensor; ++depth) {
          const auto grid = TensorGrid::Make(TensorMode::k25D, tensor, depth);
          if (grid.ok() && grid->side() > 1) count += ways;
        }
      }
    }
  }
  return count;
}

TEST(MeshesOf, AreAllThatTrialFinds) {
  for (const int ranks : {1, 2, 6, 7, 8, 32, 36, 64}) {
    const std::vector<MeshSpec> meshes = MeshesOf(ranks);
    EXPECT_EQ(meshes.size(), CountByTrial(ranks)) << ranks;
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      EXPECT_EQ(meshes[i].ranks(), ranks);
      EXPECT_EQ(std::count(meshes.begin(), meshes.end(), meshes[i]), 1);
      EXPECT_EQ(GridOf(meshes[i]).ranks(), meshes[i].tensor);
    }
  }
}

std::string Refusal(const char* model, const MeshSpec& mesh, std::uint64_t sequence = 1024) {
  const absl::Status status = CheckMesh(*forecast::FindModel(model), sequence, mesh);
  return std::string(status.message());
}

TEST(CheckMesh, WhatDoesNotDivide_IsNamed) {
  EXPECT_THAT(Refusal("gpt2", {.pipeline = 13}), HasSubstr("pipeline=13 needs a layer for each"));
  EXPECT_THAT(Refusal("gpt2", {.sequence = 5}),
              HasSubstr("sequence=ulysses:5 must divide the model's 12 heads by 5"));
  EXPECT_THAT(Refusal("gpt2", {.sequence = 2, .tensor = 4}),
              HasSubstr("sequence=ulysses:2 beside tensor must divide the model's 12 heads by 8"));
  EXPECT_THAT(Refusal("gpt2", {.sequence = 4}, 1022), HasSubstr("1022 tokens of a sequence by 4"));
  EXPECT_THAT(Refusal("gpt2", {.tensor = 5}), HasSubstr("12 heads by 5"));
  EXPECT_THAT(
      Refusal("gpt2", {.tensor_mode = TensorMode::k1DSequence, .tensor = 4}, 1022),
      HasSubstr("tensor=1d-sequence must divide the model's 1022 tokens of a sequence by 4"));
  EXPECT_THAT(Refusal("gpt2", {.tensor_mode = TensorMode::k2D, .tensor = 25}),
              HasSubstr("12 heads by 5"));
  EXPECT_THAT(Refusal("opt-350m", {.tensor = 2}), HasSubstr("leave the axis out"));
}

TEST(CheckMesh, InZeroBubblePipelines_TakesTwoPartsOfWholeLayersInEachStage) {
  const auto zbv = [](MeshSpec mesh) {
    mesh.schedule = collectives::PipelineKind::kZeroBubbleV;
    return mesh;
  };
  EXPECT_EQ(Refusal("gpt2", zbv({.pipeline = 6})), "");
  EXPECT_THAT(Refusal("gpt2", zbv({.pipeline = 8})), HasSubstr("16 in all, and the model has 12"));
  EXPECT_THAT(Refusal("gpt2", zbv({.pipeline = 2, .tensor = 2})),
              HasSubstr("does not work with tensor yet"));
  EXPECT_THAT(Refusal("mixtral-8x7b", zbv({.pipeline = 2})), HasSubstr("models with experts"));
  EXPECT_THAT(Refusal("gpt2", zbv({.pipeline = 1})), HasSubstr("at least 2 stages"));
}

std::string InWords(const char* model, const MeshSpec& mesh, std::uint64_t sequence = 1024) {
  const absl::Status status = CheckMeshInWords(*forecast::FindModel(model), sequence, mesh);
  return std::string(status.message());
}

// gpt2 has 12 heads and width 768.
TEST(CheckMeshInWords, WhatDoesNotFit_NamesTheNearestSizesThatDo) {
  EXPECT_THAT(InWords("gpt2", {.tensor = 5}),
              HasSubstr("by 5; the nearest sizes that fit: tensor=1d:size=4 and tensor=1d:size=6"));
  EXPECT_THAT(InWords("gpt2", {.data = 2, .tensor = 5, .within_host = true}),
              HasSubstr("by 5; the nearest sizes that fit: tensor=1d:size=4 and tensor=1d:size=6"));
  EXPECT_THAT(InWords("gpt2", {.tensor_mode = TensorMode::k2D, .tensor = 25}),
              HasSubstr("heads by 5; the nearest size that fits: tensor=2d:size=16"));
  EXPECT_THAT(InWords("gpt2", {.pipeline = 2, .data = 2, .sequence = 5}, 60),
              HasSubstr("; the nearest sizes that fit: sequence=ulysses:4 and sequence=ulysses:6"));
  EXPECT_THAT(
      InWords("gpt2", {.sequence = 5, .sequence_mode = SequenceMode::kRing}, 1024),
      HasSubstr("ring:5 must divide the model's 1024 tokens of a sequence by 10; the nearest "
                "sizes that fit: sequence=ring:4 and sequence=ring:8"));
  EXPECT_THAT(InWords("gpt2", {.sequence = 2}, 1023),
              HasSubstr("by 2; the nearest size that fits: sequence=ulysses:3"));
  EXPECT_THAT(InWords("gpt2", {.sequence = 2}, 1021),
              HasSubstr("by 2; no size near it fits: leave the axis out"));
  EXPECT_THAT(InWords("opt-350m", {.tensor = 2}), testing::EndsWith("leave the axis out"));
  EXPECT_EQ(InWords("gpt2", {.pipeline = 13}), Refusal("gpt2", {.pipeline = 13}));
  EXPECT_EQ(InWords("gpt2", {.tensor = 4}), "");
}

TEST(CheckSpread, OfRanksThatDoNotDivideTheExperts_NamesTheNearestThatDo) {
  EXPECT_TRUE(CheckSpread(4, 8).ok());
  EXPECT_EQ(std::string(CheckSpread(3, 8).message()),
            "--parallel: expert=3 must divide the model's 8 experts by 3; the nearest sizes that "
            "fit: expert=2 and expert=4");
}

TEST(CheckMesh, PublishedModels_CanBeCut) {
  EXPECT_EQ(Refusal("gpt3-175b", {.pipeline = 8, .tensor = 8}), "");
  EXPECT_EQ(Refusal("gpt3-175b", {.tensor_mode = TensorMode::k2D, .tensor = 64}), "");
  EXPECT_EQ(Refusal("gpt3-175b", {.tensor_mode = TensorMode::k3D, .tensor = 64}), "");
  EXPECT_EQ(Refusal("llama-65b", {.sequence = 8, .tensor = 8}), "");
}

forecast::Job JobOf(std::uint32_t ranks, std::uint64_t sequences) {
  forecast::Job job;
  job.ranks = ranks;
  job.batch = {.sequences = sequences, .sequence_length = 512};
  return job;
}

TEST(MicroBatchOf, IsTheBatchOfAllRanksCutOverDataAndPasses) {
  const forecast::Job job = JobOf(8, 3);  // 24 sequences
  const auto batch = MicroBatchOf(job, {.mesh = {.data = 2, .tensor = 4}, .micro_batches = 4});
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->sequences, 3u);
  EXPECT_EQ(batch->sequence_length, 512u);
  EXPECT_THAT(
      std::string(MicroBatchOf(job, {.mesh = {.data = 8}, .micro_batches = 2}).status().message()),
      HasSubstr("24 sequences of a step are not divisible by data=8 x 2 micro-batches"));
  const MeshSpec cube = {.tensor_mode = TensorMode::k3D, .tensor = 8};
  EXPECT_THAT(std::string(MicroBatchOf(job, {.mesh = cube, .micro_batches = 4}).status().message()),
              HasSubstr("a micro-batch has 6 sequences; tensor=3d:size=8 needs a multiple of 4"));
  EXPECT_TRUE(MicroBatchOf(job, {.mesh = cube, .micro_batches = 6}).ok());
}

TEST(MicroBatchOf, InZeroBubblePipelines_TakesTwoOrMoreAndNotTooMany) {
  const MeshSpec mesh = {.pipeline = 8, .schedule = collectives::PipelineKind::kZeroBubbleV};
  const forecast::Job job = JobOf(8, 512);
  const auto refusal = [&](std::uint64_t micro_batches) {
    const auto batch = MicroBatchOf(job, {.mesh = mesh, .micro_batches = micro_batches});
    return std::string(batch.status().message());
  };
  EXPECT_THAT(refusal(1), HasSubstr("at least 2 micro-batches in a step"));
  EXPECT_EQ(refusal(2), "");
  EXPECT_EQ(refusal(256), "");
  EXPECT_THAT(refusal(512), HasSubstr("planned with at most 256 micro-batches"));
}

TEST(SettingsOf, AreAllDivisorsWithBothKindsOfActivations) {
  forecast::Job job = JobOf(8, 3);
  const std::vector<Setting> settings = SettingsOf(job, {.data = 2, .tensor = 4});
  ASSERT_EQ(settings.size(), 12u);  // 1, 2, 3, 4, 6 and 12 micro-batches
  EXPECT_EQ(settings[0].activations, Activations::kRecompute);
  EXPECT_EQ(settings[1].activations, Activations::kKeep);
  EXPECT_EQ(settings[11].micro_batches, 12u);
  EXPECT_EQ(SettingsOf(job, {.data = 2, .tensor = 4}, 3).size(), 2u);
  EXPECT_TRUE(SettingsOf(job, {.data = 2, .tensor = 4}, 5).empty());
  job.activations = Activations::kKeep;
  EXPECT_EQ(SettingsOf(job, {.data = 2, .tensor = 4}).size(), 6u);
  job.activations.reset();
  EXPECT_EQ(SettingsOf(job, {.pipeline = 2, .tensor = 4}).size(), 16u);  // divisors of 24
}

TEST(Nearest, ChangesFewAxesAndThoseLittle) {
  const MeshSpec mesh = {.pipeline = 3, .data = 2};
  const auto near = Nearest(mesh, {{.data = 8}, {.pipeline = 8}, {.pipeline = 4, .data = 2}}, 2);
  ASSERT_EQ(near.size(), 2u);
  EXPECT_EQ(near[0], (MeshSpec{.pipeline = 4, .data = 2}));
  EXPECT_EQ(near[1], (MeshSpec{.pipeline = 8}));
}

}  // namespace
}  // namespace geminid::parallel
