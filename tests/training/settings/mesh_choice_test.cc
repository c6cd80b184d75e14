#include "training/settings/mesh_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/trainer/flags/command_line.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

TrainOptions Options(const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"--text",     "t",    "--model",      "llama-20m",
                                        "--batch",    "8",    "--accumulate", "2",
                                        "--parallel", "auto", "--clip-norm",  "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto line = ParseCommandLine(arguments);
  EXPECT_TRUE(line.ok()) << line.status();
  return *line->options;
}

// Ranks of one host whose exchanges are as fast as copies.
RanksPlace Place(int ranks) {
  return {.ranks = ranks,
          .device_bytes = uint64_t{4} << 30,
          .host_bytes = uint64_t{64} << 30,
          .operations_per_second = 1e11,
          .copied_bytes_per_second = 1e10,
          .link_bytes_per_second = 1e10,
          .peer_bytes_per_second = 1e10,
          .peer_message_seconds = 1e-5};
}

MeshChoice Chosen(const TrainOptions& options, const RanksPlace& place) {
  const auto choice = ChooseMesh(options, place);
  EXPECT_TRUE(choice.ok()) << choice.status();
  return choice.value_or(MeshChoice());
}

// The elements of the tensors that the planner uses for the model.
uint64_t PlannedElements(const ModelConfig& config) {
  uint64_t elements = 0;
  for (const forecast::Tensor& tensor : forecast::Tensors(ForecastModelOf(config))) {
    elements += tensor.elements();
  }
  return elements;
}

TEST(ForecastModelOf, AnyPreset_HasAsManyParametersAsTheTrainersModel) {
  for (const Preset& preset : Presets()) {
    SCOPED_TRACE(preset.name);
    EXPECT_TRUE(forecast::Validate(ForecastModelOf(preset.config)).ok());
    EXPECT_EQ(PlannedElements(preset.config), CountParameters(preset.config));
    ModelConfig other = preset.config;
    other.tied = !preset.config.tied_output();
    EXPECT_EQ(PlannedElements(other), CountParameters(other));
  }
}

TEST(ForecastModelOf, FamiliesWithBiases_HaveAsManyParametersAsTheTrainersModel) {
  ModelConfig config = *FindPreset("llama-tiny");
  config.family = Family::kQwen2;
  EXPECT_EQ(PlannedElements(config), CountParameters(config));
  config.attention_bias = true;
  EXPECT_EQ(PlannedElements(config), CountParameters(config));
  config.attention_bias = false;
  config.family = Family::kOpt;
  config.kv_heads = config.heads;
  EXPECT_EQ(PlannedElements(config), CountParameters(config));
  config = *FindPreset("pythia-tiny");
  config.attention_bias = false;
  EXPECT_EQ(PlannedElements(config), CountParameters(config));
  config = *FindPreset("llama-tiny");
  config.attention_bias = true;
  config.family = Family::kQwen3;
  EXPECT_EQ(PlannedElements(config), CountParameters(config));
}

TEST(ChooseMesh, OfRanksThatTalkFast_SharesDataAlone) {
  const MeshChoice choice = Chosen(Options(), Place(2));
  EXPECT_FALSE(choice.parallel.cuts()) << choice.why;
  EXPECT_EQ(choice.parallel.data, 2);
  EXPECT_EQ(choice.batch * static_cast<uint64_t>(choice.accumulate), 16u);
}

// Ranks that share data exchange all weights and gradients in a step. Stages exchange only the
// activations of a boundary.
TEST(ChooseMesh, OfRanksThatTalkSlowly_CutsTheLayers) {
  RanksPlace place = Place(2);
  place.peer_bytes_per_second = 2e7;
  const MeshChoice choice = Chosen(Options(), place);
  EXPECT_EQ(choice.parallel.pipeline, 2) << choice.why;
  EXPECT_GT(choice.accumulate, 2);  // with fewer, more time is bubble
  EXPECT_EQ(choice.batch * static_cast<uint64_t>(choice.accumulate), 16u);
}

// Two hosts have two ranks each, and the network is slower than the links inside a host.
TEST(ChooseMesh, OfHostsThatTalkSlowly_CutsTheLayersBetweenThem) {
  RanksPlace place = Place(4);
  place.hosts = 2;
  place.network_bytes_per_second = 1e7;
  place.network_message_seconds = 1e-4;
  const MeshChoice choice = Chosen(Options(), place);
  EXPECT_EQ(choice.parallel.pipeline, 2) << choice.why;
  EXPECT_EQ(choice.parallel.least_ranks(), 4);
}

TEST(ChooseMesh, OfAnyRanks_MakesNoMicroBatchLargerThanAsked) {
  for (const int ranks : {1, 2, 4, 8, 16}) {
    const MeshChoice choice = Chosen(Options(), Place(ranks));
    EXPECT_LE(choice.batch, 8u);
    EXPECT_EQ(choice.batch * static_cast<uint64_t>(choice.accumulate), 16u);
    EXPECT_EQ(choice.parallel.least_ranks(), ranks);
    EXPECT_THAT(choice.why, HasSubstr("as predicted"));
  }
}

// The choice excludes meshes that the trainer refuses.
TEST(ChooseMesh, OfWhatACutModelCannotDo_DoesNotCutIt) {
  RanksPlace place = Place(2);
  place.peer_bytes_per_second = 2e7;
  const MeshChoice choice = Chosen(Options({"--dropout", "0.1"}), place);
  EXPECT_EQ(choice.parallel.sequence * choice.parallel.tensor.size, 1) << choice.why;
}

// For every link speed, the choice is a mesh that trains. The planner also knows others for
// experts, such as tensor=1d.
TEST(ChooseMesh, OfExperts_IsAMeshThatTrains) {
  for (const char* balance : {"0", "0.02"}) {
    const TrainOptions options =
        Options({"--model", "mixtral-20m", "--balance-loss", balance, "--dtype", "fp32"});
    for (const double rate : {1e10, 2e7, 1e5}) {
      for (const int ranks : {2, 4, 8}) {
        RanksPlace place = Place(ranks);
        place.peer_bytes_per_second = rate;
        const MeshChoice choice = Chosen(options, place);
        SCOPED_TRACE(choice.why);
        EXPECT_EQ(choice.parallel.least_ranks(), ranks);
        EXPECT_EQ(choice.parallel.tensor.size, 1);
        EXPECT_TRUE(CheckParallel(WithChoice(options, choice)).ok());
      }
    }
  }
}

// As above, ranks with slow links get two stages. Of two schedules that send equally much, the one
// with less bubble wins.
TEST(ChooseMesh, OfStagesThatWaitLongest_TakesTheScheduleThatWaitsLeast) {
  RanksPlace place = Place(2);
  place.peer_bytes_per_second = 2e7;
  const MeshChoice choice = Chosen(Options(), place);
  EXPECT_EQ(choice.parallel.schedule, collectives::PipelineKind::kZeroBubbleV) << choice.why;
  EXPECT_EQ(choice.parallel.chunks, 2);
  EXPECT_TRUE(CheckParallel(WithChoice(Options(), choice)).ok());
}

// If ranks wait for weights, they exchange them once a step and not with each micro-batch.
TEST(ChooseMesh, OfDataAlone_TakesTheStageThatReceivesLeast) {
  RanksPlace place = Place(2);
  place.peer_bytes_per_second = 1e8;
  const TrainOptions options = Options({"--layers", "1", "--dropout", "0.1"});
  const MeshChoice choice = Chosen(options, place);
  EXPECT_EQ(choice.parallel.data, 2) << choice.why;
  EXPECT_EQ(choice.parallel.zero, 1) << choice.why;
  // With --placement cpu, weights leave the device after each operator. So stages that keep them
  // there are refused, and not chosen.
  EXPECT_EQ(Chosen(Options({"--layers", "1", "--dropout", "0.1", "--placement", "cpu"}), place)
                .parallel.zero,
            3);
}

TEST(ChooseMesh, OfTooLittleMemoryForAnyMesh_SaysSo) {
  RanksPlace place = Place(2);
  place.device_bytes = uint64_t{1} << 20;
  EXPECT_THAT(Chosen(Options(), place).why, HasSubstr("nothing is predicted to fit"));
}

TEST(ChooseMesh, OfWhatItCannotWeigh_SaysWhatToDo) {
  const auto uneven = ChooseMesh(Options(), Place(3));
  EXPECT_TRUE(absl::IsInvalidArgument(uneven.status()));
  EXPECT_THAT(std::string(uneven.status().message()),
              HasSubstr("the 16 sequences of a step (--batch x --accumulate) evenly, which is not "
                        "possible with 3 ranks"));
  // 16 ranks have micro-batches of at most 8 sequences, and the model can only be replicated.
  const auto small =
      ChooseMesh(Options({"--layers", "1", "--dropout", "0.1", "--freeze", "*norm*"}), Place(16));
  EXPECT_THAT(std::string(small.status().message()), HasSubstr("a larger --batch allows for more"));
  TrainOptions adapted = Options();
  adapted.model.lora_rank = 4;
  EXPECT_THAT(std::string(ChooseMesh(adapted, Place(2)).status().message()), HasSubstr("adapters"));
}

TEST(ChooseMesh, OfAnyRanks_SaysWhatItChoseFrom) {
  const MeshChoice choice = Chosen(Options(), Place(4));
  ASSERT_GE(choice.rows.size(), 2u);
  EXPECT_LE(choice.rows.size(), kRowsOfChoice);
  EXPECT_EQ(choice.rows[0].mesh, choice.mesh);
  EXPECT_EQ(choice.rows[0].micro_batches, static_cast<uint64_t>(choice.accumulate));
  EXPECT_EQ(choice.keeps_activations, choice.rows[0].keeps_activations);
  for (size_t i = 1; i < choice.rows.size(); ++i) {
    if (!choice.rows[i].fits) continue;
    EXPECT_LE(choice.rows[0].step_seconds, choice.rows[i].step_seconds);
  }
  ASSERT_TRUE(choice.run.has_value());
  EXPECT_EQ(choice.run->place, Place(4));
  EXPECT_THAT(choice.run->meshes, testing::Contains("pipeline=2,data=2"));
}

// If the user chooses the activations, the choice of a mesh does not.
TEST(ChooseMesh, OfActivationsThatWereAskedFor_LeavesThemAsTheyAre) {
  for (const char* how : {"recompute", "keep", "offload"}) {
    const MeshChoice choice = Chosen(Options({"--activations", how}), Place(2));
    EXPECT_EQ(choice.keeps_activations, std::nullopt);
  }
}

TEST(ChoiceFrom, TheWordsOfAChoice_IsTheSameChoice) {
  const TrainOptions options = Options();
  for (const std::optional<bool> keeps : {std::optional<bool>(), {true}, {false}}) {
    MeshChoice choice = Chosen(options, Place(4));
    choice.keeps_activations = keeps;
    const auto read = ChoiceFrom(options, WordsOf(choice));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->mesh, choice.mesh);
    EXPECT_EQ(read->batch, choice.batch);
    EXPECT_EQ(read->accumulate, choice.accumulate);
    EXPECT_EQ(read->keeps_activations, keeps);
    EXPECT_EQ(read->why, choice.why);
    EXPECT_EQ(read->parallel.least_ranks(), 4);
  }
  for (const char* words : {"", "data=2", "data=2\n0\nkept\nwhy", "data=2\nx\nkept\nwhy"}) {
    EXPECT_TRUE(absl::IsInternal(ChoiceFrom(options, words).status())) << words;
  }
}

TEST(WithChoice, OfAChoice_ChangesWhatWasChosenAndNoMore) {
  const TrainOptions asked = Options();
  const TrainOptions options = WithChoice(
      asked, {.parallel = {.pipeline = 2, .data = 1, .zero = 2}, .batch = 4, .accumulate = 4});
  EXPECT_EQ(options.parallel.pipeline, 2);
  EXPECT_EQ(options.zero.stage, zero::Stage::kGradients);
  EXPECT_FALSE(options.parallel.automatic);
  EXPECT_EQ(options.batch, 4u);
  EXPECT_EQ(options.zero.accumulate, 4);
  EXPECT_EQ(options.seed, asked.seed);
}

}  // namespace
}  // namespace geminid::trainer
