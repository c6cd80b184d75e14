#include "training/settings/tensor_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/training/models/tensor_models.h"
#include "tools/trainer/flags/command_line.h"
#include "training/settings/parallel.h"

namespace geminid::trainer {
namespace {

using collectives::TensorMode;
using testing::AllOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string Error(const Words& more) {
  Words arguments = {"--text", "t", "--model", "llama-tiny", "--dtype", "fp32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto line = ParseCommandLine(arguments);
  return line.ok() ? "" : std::string(line.status().message());
}

TEST(ParseParallel, OfTensor_HasItsGridBesideTheOtherAxes) {
  const auto parsed = ParseParallel("tensor=2.5d:size=8:depth=2,data=3,pipeline=2");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->tensor.mode, TensorMode::k25D);
  EXPECT_EQ(parsed->tensor.size, 8);
  EXPECT_EQ(parsed->tensor.depth, 2);
  EXPECT_TRUE(parsed->cuts());
  EXPECT_EQ(parsed->least_ranks(), 48);
  const auto mesh = MakeMesh(*parsed, 48);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->ToString(), "pipeline=2 x data=3 x sequence=1 x tensor=8");
  EXPECT_EQ(mesh->Group(9, {kTensorAxis}), (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_FALSE(ParseParallel("tensor=1d:1")->cuts());
}

TEST(ParseParallel, OfAllAxesButExperts_HasAPlaceForEachOf64Ranks) {
  const auto parsed =
      ParseParallel("pipeline=2,tensor=2.5d:size=8:depth=2,sequence=ring:2,data=2,zero=3");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->least_ranks(), 64);
  const auto mesh = MakeMesh(*parsed, 64);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->ToString(), "pipeline=2 x data=2 x sequence=2 x tensor=8");
  // Ranks that attend together have the same blocks.
  EXPECT_EQ(mesh->Group(21, {kSequenceAxis}), (std::vector<int>{21, 29}));
}

TEST(CheckTensor, WithSequencesThatAreCutToo_WantsHeadsForEachRankOfAnExchange) {
  EXPECT_EQ(Error({"--parallel", "tensor=1d:2,sequence=ring:2"}), "");
  // There are 2 key/value heads, and a tensor rank has one of them.
  EXPECT_THAT(Error({"--parallel", "tensor=1d:2,sequence=ulysses:2"}),
              HasSubstr("sequence=ulysses:2 beside tensor must divide the model's 2 key/value "
                        "heads by 4"));
}

TEST(CheckTensor, OfFamilies_RefusesWhatItDoesNotCut) {
  const auto with = [](const Words& model, const char* axes) {
    return Error(model + Words{"--parallel", axes});
  };
  const Words mistral = {"--model", "mistral-tiny"};
  EXPECT_EQ(with(mistral, "tensor=1d:2"), "");
  EXPECT_THAT(
      with(mistral, "tensor=1d:2,sequence=ring:2"),
      HasSubstr("sequence beside a sliding_window of 24 tokens does not work with tensor yet"));
  EXPECT_EQ(with(mistral + Words{"--context", "24"}, "tensor=1d:2,sequence=ring:2"), "");
  for (const Words& model : std::vector<Words>{{"--model", "qwen3-tiny"},
                                               {"--family", "opt"},
                                               {"--model", "pythia-tiny"},
                                               {"--family", "qwen2"}}) {
    SCOPED_TRACE(testing::PrintToString(model));
    EXPECT_EQ(with(model, "tensor=1d:2"), "");
    EXPECT_THAT(with(model, "tensor=2d:4"), HasSubstr("works only with tensor=1d:N yet"));
    EXPECT_THAT(with(model, "tensor=1d-sequence:2"), HasSubstr("or tensor=1d:N"));
  }
  for (const char* model : {"bert-tiny", "mixtral-tiny"}) {
    EXPECT_THAT(with({"--model", model}, "tensor=1d:2"),
                HasSubstr("does not work with tensor yet"));
  }
}

TEST(CheckTensor, OfWhatIsNotThereYet_RefusesItByName) {
  const Words cut = {"--parallel", "tensor=1d:2"};
  EXPECT_EQ(Error(cut), "");
  EXPECT_EQ(Error({"--parallel", "tensor=1d:2", "--device", "cuda"}), "");
  EXPECT_EQ(Error({"--parallel", "tensor=1d:2", "--restarts", "1", "--loss-scale", "dynamic"}), "");
  const std::vector<std::pair<Words, std::string>> mistakes = {
      {{"--lora-rank", "2"}, "--lora-rank does not work with tensor yet"},
      {{"--freeze", "*norm*"}, "--freeze does not work with tensor yet"},
      {{"--update", "backward", "--clip-norm", "0"},
       "--update backward needs a run without tensor"}};
  for (const auto& [more, words] : mistakes) {
    Words arguments = cut;
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_THAT(Error(arguments), HasSubstr(words));
  }
  EXPECT_EQ(Error(cut + Words{"--dropout", "0.1"}), "");
  EXPECT_THAT(Error({"--parallel", "tensor=2d:4", "--dropout", "0.1"}),
              HasSubstr("--dropout beside another mode than 1d does not work with tensor yet"));
  for (const char* axes :
       {"tensor=1d-sequence:2", "tensor=2d:4", "tensor=2.5d:size=8:depth=2", "tensor=3d:8",
        "tensor=1d:2,sequence=ring:2", "tensor=2d:4,sequence=ring:2"}) {
    EXPECT_EQ(Error({"--parallel", axes, "--device", "cuda", "--batch", "4"}), "") << axes;
  }
}

TEST(CheckTensor, OfAModelThatCannotBeCut_SaysWhatMustBeDivisible) {
  EXPECT_THAT(
      Error({"--parallel", "tensor=1d:4"}),
      HasSubstr("--parallel: tensor=1d must divide the model's 2 key/value heads by 4; the nearest "
                "size that fits: tensor=1d:size=2"));
  EXPECT_THAT(Error({"--parallel", "tensor=1d:3"}), HasSubstr("heads by 3; the nearest size"));
  EXPECT_EQ(Error({"--parallel", "tensor=3d:8"}), "");
}

TrainOptions Options(const ModelConfig& config, TensorMode mode, int ranks, int depth) {
  TrainOptions options;
  options.model = config;
  options.parallel.tensor = {.mode = mode, .size = ranks, .depth = depth};
  return options;
}

TEST(CheckTensorBatch, OfSequencesThatCannotBeCut_SaysByWhatTheyMustBeDivisible) {
  TrainOptions options = Options(CutGpt2(), TensorMode::k25D, 8, 2);
  options.batch = 8;
  EXPECT_EQ(CheckTensorBatch(options, 2), absl::OkStatus());
  const absl::Status status = CheckTensorBatch(options, 4);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("2 sequences (--batch over data)"), HasSubstr("divisible by 4")));
  options.batch = 1;  // of 5 tokens
  options.parallel.tensor = {.mode = TensorMode::k1DSequence, .size = 2};
  EXPECT_THAT(std::string(CheckTensorBatch(options, 1).message()),
              HasSubstr("5 tokens (--batch over data)"));
}

TEST(TensorElements, OfAGrid_AreTheModelsOverItsRanksButForWhatIsRepeatedAndPadded) {
  // By hand: a layer has 4 h^2 + 2 h i in matrices, 9 h + i in norms and biases. Tables and 2 h
  // follow.
  const uint64_t h = 72, i = 144, matrices = 4 * h * h + 2 * h * i;
  const ModelPart whole = WholeModel(CutGpt2());
  // A line of two: halves, but all of the norms and of the second layers' biases.
  EXPECT_EQ(TensorElements(Options(CutGpt2(), TensorMode::k1D, 2, 1), whole),
            2 * (matrices / 2 + 4 * h + (3 * h + i) / 2 + 2 * h) + (38 / 2 + 8 / 2) * h + 2 * h);
  // A square of four: a quarter of everything, with tables of 40 and 8 words.
  EXPECT_EQ(TensorElements(Options(CutGpt2(), TensorMode::k2D, 4, 1), whole),
            (2 * (matrices + 9 * h + i) + (40 + 8) * h + 2 * h) / 4);
  // Two depths of this square have the same blocks each.
  EXPECT_EQ(TensorElements(Options(CutGpt2(), TensorMode::k25D, 8, 2), whole),
            TensorElements(Options(CutGpt2(), TensorMode::k2D, 4, 1), whole));
}

}  // namespace
}  // namespace geminid::trainer
