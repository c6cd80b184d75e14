#include "training/settings/parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/trainer/flags/command_line.h"
#include "training/meshes/mesh_spec.h"
#include "training/meshes/meshes.h"
#include "training/settings/mesh_choice.h"
#include "training/settings/options.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

std::string Error(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--text", "t", "--model", "llama-tiny"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto line = ParseCommandLine(arguments);
  return line.ok() ? "" : std::string(line.status().message());
}

TEST(ParseParallel, OfAxesInAnyOrder_HasTheirSizes) {
  const auto all = ParseParallel("data=3,sequence=ulysses:2,pipeline=4,zero=3");
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->pipeline, 4);
  EXPECT_EQ(all->sequence, 2);
  EXPECT_EQ(all->data, 3);
  EXPECT_TRUE(all->cuts());
  EXPECT_EQ(all->least_ranks(), 24);
  const auto one = ParseParallel("pipeline=1f1b:2");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->pipeline, 2);
  EXPECT_EQ(one->sequence, 1);
  EXPECT_FALSE(one->data.has_value());
  EXPECT_EQ(one->zero, 3);
  EXPECT_EQ(ParseParallel("zero=2,data=2")->zero, 2);
  EXPECT_EQ(ParseParallel("data=2,zero=1")->zero, 1);
  EXPECT_FALSE(all->zero_within_host);
  EXPECT_EQ(ParseParallel("zero=3:host,data=4")->zero, 3);
  EXPECT_TRUE(ParseParallel("zero=3:host,data=4")->zero_within_host);
  EXPECT_EQ(all->chunks, 1);
  const auto interleaved = ParseParallel("pipeline=interleaved:2:chunks=3");
  ASSERT_TRUE(interleaved.ok()) << interleaved.status();
  EXPECT_EQ(interleaved->pipeline, 2);
  EXPECT_EQ(interleaved->chunks, 3);
  EXPECT_EQ(interleaved->schedule, collectives::PipelineKind::kInterleaved);
  EXPECT_EQ(interleaved->least_ranks(), 2);
  const auto in_halves = ParseParallel("pipeline=zbv:4");
  ASSERT_TRUE(in_halves.ok()) << in_halves.status();
  EXPECT_EQ(in_halves->pipeline, 4);
  EXPECT_EQ(in_halves->chunks, 2);
  EXPECT_EQ(in_halves->schedule, collectives::PipelineKind::kZeroBubbleV);
  EXPECT_FALSE(all->rings());
  const auto ring = ParseParallel("sequence=ring:2");
  ASSERT_TRUE(ring.ok()) << ring.status();
  EXPECT_EQ(ring->sequence, 2);
  EXPECT_TRUE(ring->rings());
  EXPECT_FALSE(ParseParallel("sequence=ring:1")->cuts());
  const auto megatron = ParseParallel("sequence=megatron:2");
  ASSERT_TRUE(megatron.ok()) << megatron.status();
  EXPECT_EQ(megatron->tensor.mode, collectives::TensorMode::k1DSequence);
  EXPECT_EQ(megatron->tensor.size, 2);
  EXPECT_EQ(megatron->sequence, 1);
  EXPECT_FALSE(ring->cuts_model());
  const auto experts = ParseParallel("expert=4,data=2");
  ASSERT_TRUE(experts.ok()) << experts.status();
  EXPECT_EQ(experts->expert, 4);
  EXPECT_TRUE(experts->cuts_model());
  EXPECT_EQ(experts->least_ranks(), 8);
  const auto data = ParseParallel("data=2");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_FALSE(data->cuts());
}

TEST(ParseParallel, OfAuto_LeavesTheAxesOpen) {
  const auto parsed = ParseParallel("auto");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->automatic);
  EXPECT_EQ(parsed->least_ranks(), 1);
  EXPECT_FALSE(ParseParallel("auto,data=2").ok());
  EXPECT_THAT(Error({"--parallel", "auto", "--clip-norm", "0", "--update", "backward"}),
              HasSubstr("--update backward needs a --parallel that names the axes"));
}

TEST(ParseParallel, OfAMistake_SaysWhichAndWhatWouldBeRight) {
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"", "'' is not AXIS=SIZE"},
      {"pipeline", "'pipeline' is not AXIS=SIZE"},
      {"pipeline=2,", "'' is not AXIS=SIZE"},
      {"pipe=2",
       "there is no axis 'pipe'; the axes are pipeline, tensor, sequence, expert, data and zero"},
      {"pipeline=two", "pipeline two: it must be"},
      {"pipeline=0", "pipeline 0: it must be"},
      {"data=-1", "data -1: it must be"},
      {"data=2000", "data=2000 is for 2000 ranks; a run has at most 1024"},
      {"data=2,data=2", "data appears twice"},
      {"pipeline=zbv:2:chunks=2", "it takes the number of stages alone"},
      {"pipeline=interleaved:2", "it needs stages and chunks"},
      {"pipeline=gpipe:2", "pipeline has no schedule 'gpipe'"},
      {"sequence=2", "sequence is '2'; it must be ulysses:N, ring:N, or megatron:N"},
      {"sequence=ring:x", "sequence x: it must be"},
      {"sequence=megatron:2,tensor=1d:2", "tensor is given, too; leave one of the two out"},
      {"sequence=ulysses:x", "sequence x: it must be"},
      {"tensor=2", "tensor has no mode '2'; the modes are 1d, 1d-sequence, 2d, 2.5d, 3d"},
      {"tensor=2d:size=5", "5 ranks do not make a 2d grid; the nearest that do are 4 or 9"},
      {"tensor=1d:2000", "is for 2000 ranks"},
      {"expert=two", "expert two: it must be"},
      {"expert=64,data=64", "is for 4096 ranks"},
      {"zero=0", "zero is '0'; it must be 3"},
      {"zero=3:node", "zero is '3:node'; it must be 3, "},
      {"zero=2:host", "with 2 each rank holds all weights between updates"},
      {"pipeline=1000,data=1000", "has more than 65536 ranks"}};
  for (const auto& [text, words] : mistakes) {
    const auto parsed = ParseParallel(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_TRUE(absl::IsInvalidArgument(parsed.status()));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(words)) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("--parallel")) << text;
  }
}

// The error that geminictl plan reports for a mesh before it looks at a cluster.
std::string PlannersError(const TrainOptions& options, const std::string& text) {
  const auto parsed = parallel::ParseMesh(text);
  if (!parsed.ok()) return std::string(parsed.status().message());
  const absl::Status status = parallel::CheckMeshInWords(ForecastModelOf(options.model),
                                                         options.model.context, parsed->mesh);
  return std::string(status.message());
}

TEST(ParallelMistakes, InTheTrainerAndInThePlanner_AreSaidInTheSameWords) {
  const auto line = ParseCommandLine({"--text", "t", "--model", "llama-tiny", "--dtype", "fp32"});
  ASSERT_TRUE(line.ok()) << line.status();
  for (const char* text : {"pipeline",
                           "pipe=2",
                           "auto,data=2",
                           "pipeline=two",
                           "pipeline=gpipe:2",
                           "pipeline=interleaved:2",
                           "pipeline=interleaved:2:chunks=1",
                           "pipeline=2:chunks=2",
                           "pipeline=64",
                           "data=-1",
                           "data=2,data=2",
                           "sequence=2",
                           "sequence=ring:x",
                           "sequence=ring:3",
                           "sequence=megatron:2,tensor=1d:2",
                           "sequence=megatron:3",
                           "sequence=ulysses:5",
                           "tensor=2",
                           "tensor=2d",
                           "tensor=2d:size=5",
                           "tensor=1d:3",
                           "tensor=1d:4",
                           "tensor=1d-sequence:3",
                           "tensor=2d:9",
                           "tensor=3d:27",
                           "expert=two",
                           "zero=0",
                           "zero=1:host",
                           "pipeline=1000,data=1000"}) {
    const std::string planners = PlannersError(*line->options, text);
    EXPECT_THAT(planners, testing::StartsWith("--parallel: ")) << text;
    EXPECT_EQ(Error({"--dtype", "fp32", "--parallel", text}), planners) << text;
  }
}

TEST(CheckParallel, OfWhatACutModelCannotDo_RefusesItByName) {
  for (const char* axes : {"pipeline=2", "sequence=ulysses:2", "sequence=ring:2"}) {
    EXPECT_EQ(Error({"--parallel", axes, "--loss-scale", "dynamic"}), "");
  }
  for (const char* axes :
       {"pipeline=2", "sequence=ulysses:2", "sequence=ring:2", "pipeline=2,sequence=ring:2",
        "pipeline=2,tensor=1d:2", "pipeline=2,tensor=2d:4", "tensor=2d:4,sequence=ring:2"}) {
    EXPECT_EQ(Error({"--parallel", axes, "--device", "cuda"}), "");
  }
  for (const char* axes : {"pipeline=2", "tensor=1d:2", "pipeline=2,tensor=2d:4"}) {
    EXPECT_EQ(Error({"--parallel", axes, "--optimizer", "lamb"}), "");
  }
  EXPECT_THAT(Error({"--parallel", "pipeline=2", "--clip-norm", "0", "--update", "backward"}),
              HasSubstr("--update backward needs a run without a pipeline"));
  for (const char* axes : {"sequence=ulysses:2", "sequence=ring:2"}) {
    EXPECT_THAT(Error({"--parallel", axes, "--dropout", "0.1"}), HasSubstr("--dropout"));
  }
  EXPECT_THAT(Error({"--parallel", "zero=2", "--placement", "cpu"}),
              HasSubstr("zero=2 keeps weights on the device"));
  EXPECT_EQ(Error({"--parallel", "pipeline=interleaved:2:chunks=2,zero=1", "--layers", "4",
                   "--accumulate", "4"}),
            "");
  for (const char* axes : {"data=2", "pipeline=2", "sequence=ulysses:2", "sequence=ring:2"}) {
    EXPECT_EQ(Error({"--parallel", axes, "--restarts", "1"}), "") << axes;
  }
}

TEST(CheckParallel, OfAPipelineInHalves_SaysWhatDoesNotGoWithIt) {
  const auto with = [](const std::string& axes, std::vector<std::string> words) {
    words.insert(words.end(), {"--parallel", axes});
    return Error(words);
  };
  const std::vector<std::string> four = {"--layers", "4", "--accumulate", "3"};
  EXPECT_EQ(with("pipeline=zbv:2", four), "");
  EXPECT_EQ(with("pipeline=zbv:2,data=2,zero=2", four), "");
  EXPECT_EQ(with("pipeline=zbv:2,sequence=ring:2", four), "");
  EXPECT_EQ(with("pipeline=zbv:2,zero=1", four), "");
  EXPECT_THAT(
      with("pipeline=zbv:2,tensor=1d:2", {"--layers", "4", "--accumulate", "4", "--dtype", "fp32"}),
      HasSubstr("pipeline=zbv does not work with tensor yet"));
  EXPECT_THAT(with("pipeline=zbv:1", four), HasSubstr("pipeline=zbv needs at least 2 stages"));
  EXPECT_THAT(with("pipeline=zbv:2", {"--layers", "4", "--accumulate", "1"}),
              HasSubstr("give --accumulate 2 or more"));
  EXPECT_THAT(with("pipeline=zbv:2", {"--layers", "3", "--accumulate", "2"}),
              HasSubstr("a layer for each chunk of each stage, 4 in all, and the model has 3; take "
                        "fewer stages, or pipeline=2 alone"));
  EXPECT_THAT(
      with("pipeline=zbv:2", {"--model", "mixtral-tiny", "--layers", "4", "--accumulate", "2"}),
      HasSubstr("pipeline=zbv does not support models with experts yet"));
}

// Attention over whole sequences supports windows; attention over slices does not.
TEST(CheckParallel, OfARingBesideASlidingWindow_NamesTheWindow) {
  const auto with = [](const char* axes, const char* context) {
    return Error({"--model", "mistral-tiny", "--parallel", axes, "--context", context});
  };
  EXPECT_EQ(with("sequence=ulysses:2", "64"), "");
  EXPECT_THAT(with("sequence=ring:2", "64"),
              HasSubstr("sequence=ring does not yet support a sliding_window of 24 tokens"));
  EXPECT_EQ(with("sequence=ring:2", "24"), "");  // no sequence exceeds the window
}

TEST(CheckParallel, OfWhatIsIncomplete_NamesWhatIsMissing) {
  EXPECT_THAT(Error({"--parallel", "tensor=2.5d:size=8"}),
              HasSubstr("or give a depth, as in tensor=2.5d:size=8:depth=2"));
  EXPECT_THAT(Error({"--parallel", "auto,data=2"}),
              HasSubstr("auto chooses every axis, and 'data=2' gives some"));
}

TEST(CheckParallel, OfSpreadExpertsInAPipeline_WantsATableForEachEnd) {
  const auto line = ParseCommandLine({"--text", "t", "--model", "mixtral-tiny", "--accumulate", "2",
                                      "--parallel", "pipeline=2,expert=2"});
  ASSERT_TRUE(line.ok()) << line.status();
  TrainOptions options = *line->options;
  EXPECT_EQ(CheckParallel(options), absl::OkStatus());
  options.model.tied = true;
  EXPECT_THAT(std::string(CheckParallel(options).message()),
              HasSubstr("whose token table is its output layer"));
}

TEST(CheckParallel, OfAModelThatCannotBeCutSo_SaysWhatDoesNotDivide) {
  EXPECT_THAT(Error({"--parallel", "pipeline=64"}),
              testing::AllOf(HasSubstr("pipeline=64"), HasSubstr("a layer for each stage")));
  const std::string interleaved = "pipeline=interleaved:2:chunks=2";
  const std::vector<std::string> four = {"--layers", "4", "--accumulate"};
  const auto with = [&](std::vector<std::string> words, const std::string& micro_batches) {
    words.insert(words.end(), {micro_batches, "--parallel", interleaved});
    return Error(words);
  };
  EXPECT_EQ(with(four, "4"), "");
  EXPECT_THAT(with(four, "3"),
              testing::AllOf(HasSubstr("must divide --accumulate, 3"), HasSubstr("stages, 2")));
  EXPECT_THAT(with({"--layers", "3", "--accumulate"}, "4"),
              HasSubstr("a layer for each chunk of each stage, 4 in all, and the model has 3; take "
                        "fewer stages, or pipeline=2 alone"));
  EXPECT_THAT(Error({"--parallel", "pipeline=interleaved:1:chunks=2"}), HasSubstr("2 stages"));
  EXPECT_THAT(Error({"--parallel", "sequence=ulysses:5"}),
              testing::AllOf(HasSubstr("sequence=ulysses:5"), HasSubstr("heads")));
  EXPECT_THAT(Error({"--parallel", "sequence=ulysses:2", "--context", "63"}),
              HasSubstr("63 tokens of a sequence by 2"));
  // A ring supports any number of heads, but needs two chunks for each rank.
  EXPECT_EQ(Error({"--parallel", "sequence=ring:5", "--context", "60"}), "");
  EXPECT_THAT(Error({"--parallel", "sequence=ring:3", "--context", "63"}),
              HasSubstr("sequence=ring:3 must divide the model's 63 tokens of a sequence by 6"));
  EXPECT_THAT(Error({"--model", "mixtral-20m", "--parallel", "expert=3"}),
              HasSubstr("; the nearest sizes that fit: expert=2 and expert=4"));
}

TEST(MakeMesh, WithoutAnAxisOfData_GivesItWhatIsLeft) {
  const auto mesh = MakeMesh({.pipeline = 2, .sequence = 2}, 8);
  ASSERT_TRUE(mesh.ok()) << mesh.status();
  EXPECT_EQ(mesh->ToString(), "pipeline=2 x data=2 x sequence=2");
  EXPECT_EQ(mesh->Group(5, {kSequenceAxis}), (std::vector<int>{4, 5}));
  EXPECT_EQ(mesh->Group(5, {kDataAxis, kSequenceAxis}), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(mesh->Group(5, {kPipelineAxis}), (std::vector<int>{1, 5}));
  EXPECT_EQ(MakeMesh({}, 3)->ToString(), "pipeline=1 x data=3 x sequence=1");
}

TEST(MakeMesh, OfRanksThatDoNotFit_SaysHowManyWould) {
  for (const int ranks : {1, 3, 5}) {
    const auto mesh = MakeMesh({.pipeline = 2, .data = 2}, ranks);
    ASSERT_FALSE(mesh.ok()) << ranks;
    EXPECT_THAT(std::string(mesh.status().message()),
                testing::AllOf(HasSubstr("--parallel"), HasSubstr("pipeline=2 x data=2"),
                               HasSubstr(" 4 ranks")))
        << ranks;
  }
  EXPECT_FALSE(MakeMesh({.pipeline = 2}, 3).ok());
}

TEST(RanksOf, WithoutALauncher_AreThoseAskedForOrThoseNeeded) {
  TrainOptions options;
  EXPECT_EQ(RanksOf(options, 1), 1);
  options.parallel = {.pipeline = 2, .sequence = 3};
  EXPECT_EQ(RanksOf(options, 1), 6);
  options.ranks = 12;
  EXPECT_EQ(RanksOf(options, 1), 12);
  EXPECT_EQ(RanksOf(options, 24), 24);
}

}  // namespace
}  // namespace geminid::trainer
