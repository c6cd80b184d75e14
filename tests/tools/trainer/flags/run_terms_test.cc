#include "tools/trainer/flags/run_terms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/checkpoint/run_record.h"
#include "tests/base/temporary_folder.h"
#include "tools/trainer/flags/command_line.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_length.h"
#include "training/data/text.h"
#include "training/models/huggingface.h"

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Words = std::vector<std::string>;

Words operator+(Words first, const Words& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// A folder with a checkpoint of the run with these arguments, after `step` steps.
class SavedRun {
 public:
  explicit SavedRun(const Words& arguments, uint64_t step = 5) {
    const absl::StatusOr<CommandLine> line = ParseCommandLine(Words{"--text", "t"} + arguments);
    EXPECT_TRUE(line.ok()) << line.status();
    if (!line.ok()) return;
    const std::string in = "step-000000005/";
    checkpoint::RunRecord record;
    record.step = step;
    record.ranks = 1;
    folder_.Write(in + checkpoint::kRecordName, ToText(record));
    folder_.Write(in + "config.json", HuggingFaceConfig(line->options->model, "float32"));
    terms_ = TermsOf(*line->options);
    folder_.Write(in + kRunName, RunText({.id = "0123", .terms = terms_}));
  }

  absl::StatusOr<TrainOptions> Resume(const Words& arguments) const {
    absl::StatusOr<CommandLine> line =
        ParseCommandLine(Words{"--text", "t", "--save", folder_.path(), "--resume"} + arguments);
    if (!line.ok()) return line.status();
    return *std::move(line->options);
  }

  const base::TemporaryFolder& folder() const { return folder_; }
  const RunTerms& terms() const { return terms_; }

 private:
  base::TemporaryFolder folder_;
  RunTerms terms_;
};

Words Tiny() { return {"--model", "gpt2-tiny"}; }

TEST(ResumedWithoutFlags, IsTheSameRun) {
  for (const Words& run : std::vector<Words>{
           Tiny(),
           Words{"--model", "mistral-tiny"},
           Words{"--model", "qwen3-tiny"},
           Words{"--model", "pythia-tiny"},
           Tiny() + Words{"--layers", "3", "--context", "48", "--dtype", "fp32", "--seed", "7"},
           Tiny() + Words{"--lora-rank", "4", "--lora-alpha", "9", "--dropout", "0.25"},
           Tiny() + Words{"--freeze", "*.wte.*,*.wpe.*", "--norm-precision", "as-weights"},
           Tiny() + Words{"--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "on"},
           Tiny() + Words{"--optimizer", "lamb", "--beta2", "0.98", "--bias-correction", "off"},
           Tiny() + Words{"--schedule", "one-cycle", "--steps", "40", "--lr-first", "0.1"},
           Tiny() +
               Words{"--schedule", "multi-step", "--lr-milestones", "3,9", "--lr-decay", "0.3"},
           Tiny() + Words{"--schedule", "cosine", "--lr", "0.1234567890123", "--lr-floor", "0"},
           Tiny() + Words{"--batch", "6", "--accumulate", "2", "--validation", "0.125"},
           Tiny() + Words{"--batch", "6", "--accumulate", "auto:2:16"},
           Tiny() + Words{"--accumulate", "auto:1:16", "--update-cost", "12.5"},
           Tiny() + Words{"--loss-scale", "dynamic", "--clip-norm", "0.5"},
           Tiny() + Words{"--clip-norm", "0"},
           Tiny() + Words{"--clip-norm", "0", "--update", "step"},
           Tiny() + Words{"--epochs", "3"},
           Tiny() + Words{"--epochs", "2", "--sampling", "sequential", "--schedule", "one-cycle"},
           Tiny() + Words{"--steps", "30", "--sampling", "shuffle"},
           Tiny() + Words{"--loss-scale", "128"},
           Tiny() + Words{"--state-dtype", "bf16"},
           Words{"--model", "llama-tiny"},
           Words{"--model", "mixtral-tiny", "--balance-loss", "0.5", "--expert-capacity", "1.5"},
       }) {
    const SavedRun saved(run);
    const absl::StatusOr<TrainOptions> resumed = saved.Resume({});
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    EXPECT_EQ(TermsOf(*resumed), saved.terms()) << absl::StrCat(run.back());
    EXPECT_THAT(resumed->resumed->taken, IsEmpty());
    EXPECT_EQ(resumed->resumed->step, 5u);
    // The same holds if the same flags are given again.
    const absl::StatusOr<TrainOptions> again = saved.Resume(run);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(TermsOf(*again), saved.terms());
  }
}

struct Change {
  const char* flag;
  const char* value;
  const char* words;  // must contain both values
};

class RefusedChange : public testing::TestWithParam<Change> {};

TEST_P(RefusedChange, IsNamedWithBothValues) {
  const SavedRun saved(Tiny() + Words{"--lora-rank", "4"});
  const absl::Status status = saved.Resume({GetParam().flag, GetParam().value}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().words));
}

INSTANTIATE_TEST_SUITE_P(
    Terms, RefusedChange,
    testing::Values(Change{"--optimizer", "lion", "--optimizer was adamw and is lion"},
                    Change{"--state-dtype", "bf16", "--state-dtype was fp32 and is bf16"},
                    Change{"--layers", "3", "--layers was 2 and is 3"},
                    Change{"--hidden", "32", "--hidden was 64 and is 32"},
                    Change{"--heads", "2", "--heads was 4 and is 2"},
                    Change{"--context", "32", "--context was 64 and is 32"},
                    Change{"--vocabulary", "300", "--vocabulary was 256 and is 300"},
                    Change{"--model", "llama-tiny", "--family was gpt2 and is llama"},
                    Change{"--lora-rank", "8", "--lora-rank was 4 and is 8"},
                    Change{"--lora-alpha", "8", "--lora-alpha was 4 and is 8"},
                    Change{"--freeze", "*.wte.*", "--freeze was none and is *.wte.*"},
                    Change{"--dtype", "fp32", "--dtype was bf16 and is fp32"},
                    Change{"--norm-precision", "as-weights",
                           "--norm-precision was fp32 and is as-weights"},
                    Change{"--batch", "8", "(--batch times --accumulate) was 4 and is 8"},
                    Change{"--seed", "2", "--seed was 1 and is 2"},
                    Change{"--sampling", "shuffle", "--sampling was replacement and is shuffle"},
                    Change{"--validation", "0.5", "--validation was none and is 0.5"}),
    [](const auto& test) {
      std::string name = std::string(test.param.flag).substr(2);
      std::erase(name, '-');
      return name;
    });

TEST(ResumedWithChanges, ThatAreACourse_SaysEachOnce) {
  const SavedRun saved(Tiny() + Words{"--accumulate", "2", "--batch", "2"});
  const absl::StatusOr<TrainOptions> resumed = saved.Resume(
      {"--lr", "1e-3", "--weight-decay", "0", "--accumulate", "1", "--batch", "4", "--clip-norm",
       "0", "--loss-scale", "dynamic", "--dropout", "0.5", "--steps", "200"});
  ASSERT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(resumed->resumed->taken,
              ElementsAre("--dropout was 0 and is 0.5", "--clip-norm was 1 and is 0",
                          "--loss-scale was none and is dynamic", "--lr was 0.0006 and is 0.001",
                          "--accumulate was 2 and is 1", "--weight-decay was 0.1 and is 0"));
}

TEST(ResumedWithChanges, OfTheTimeOfUpdates_AreTakenAndSaid) {
  using zero::UpdateTime;
  const SavedRun after(Tiny() + Words{"--clip-norm", "0", "--update", "step"});
  EXPECT_EQ(after.Resume({})->zero.update, UpdateTime::kAfterStep);
  const absl::StatusOr<TrainOptions> backward = after.Resume({"--update", "backward"});
  ASSERT_TRUE(backward.ok()) << backward.status();
  EXPECT_THAT(backward->resumed->taken, ElementsAre("--update was step and is backward"));

  const SavedRun within(Tiny() + Words{"--clip-norm", "0"});
  EXPECT_EQ(within.Resume({})->zero.update, UpdateTime::kInBackward);
  const absl::StatusOr<TrainOptions> clipped = within.Resume({"--clip-norm", "1"});
  ASSERT_TRUE(clipped.ok()) << clipped.status();
  EXPECT_THAT(clipped->resumed->taken,
              ElementsAre("--clip-norm was 0 and is 1", "--update was backward and is step"));
}

TEST(ResumedWithChanges, OfAFallingSchedule_SaysThatItsStepsCount) {
  const SavedRun saved(Tiny() + Words{"--schedule", "cosine"});
  EXPECT_THAT(saved.Resume({"--steps", "200"})->resumed->taken,
              ElementsAre("steps of the schedule was 100 and is 200"));
  // The warm-up and the floor belong to the schedule that is given up, so they are not reported.
  const absl::StatusOr<TrainOptions> other = saved.Resume({"--schedule", "constant"});
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_THAT(other->resumed->taken, ElementsAre("--schedule was cosine and is constant",
                                                 "steps of the schedule was 100 and is none"));
}

// There are 10 sequences, so an epoch of batches of 4 takes 2.5 steps.
absl::StatusOr<TrainOptions> OnTenSequences(const absl::StatusOr<TrainOptions>& options) {
  if (!options.ok()) return options.status();
  return WithStepsOf(*options, Text(std::vector<uint8_t>(16 * 10 + 1, 'x')));
}

TEST(ResumedWithChanges, OfHowLongTheRunIs_TakesWhatWasGiven) {
  const SavedRun saved(Tiny() + Words{"--context", "16", "--epochs", "2"});
  EXPECT_EQ(OnTenSequences(saved.Resume({}))->schedule.steps, 5);
  const absl::StatusOr<TrainOptions> more = OnTenSequences(saved.Resume({"--epochs", "4"}));
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->schedule.steps, 10);
  EXPECT_THAT(more->resumed->taken, IsEmpty());
  const absl::StatusOr<TrainOptions> steps = OnTenSequences(saved.Resume({"--steps", "7"}));
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(steps->schedule.steps, 7);
  EXPECT_EQ(steps->sampling, Sampling::kShuffle) << "the order stays";
}

TEST(ResumedWithChanges, OfEpochsThatAreOver_IsRefusedOnceTheDataIsKnown) {
  const SavedRun saved(Tiny() + Words{"--context", "16", "--epochs", "2"}, /*step=*/5);
  EXPECT_TRUE(OnTenSequences(saved.Resume({})).ok());
  const absl::Status past = OnTenSequences(saved.Resume({"--epochs", "1"})).status();
  EXPECT_EQ(past.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(past.message()), HasSubstr("the steps of --epochs are 3"));
  EXPECT_THAT(std::string(past.message()), HasSubstr("5 steps behind it"));
}

TEST(ResumedWithChanges, ToEpochsOfARunWithout_AreRefusedForTheOrder) {
  const SavedRun saved(Tiny() + Words{"--context", "16"});
  EXPECT_THAT(std::string(OnTenSequences(saved.Resume({"--epochs", "9"})).status().message()),
              HasSubstr("--sampling was replacement and is shuffle"));
}

TEST(ResumedWithChanges, OfTheSequencesPerStep_IsRefusedInEpochsToo) {
  const SavedRun saved(Tiny() + Words{"--context", "16", "--epochs", "4"});
  const auto other = [&](const Words& flags) { return OnTenSequences(saved.Resume(flags)); };
  EXPECT_THAT(std::string(other({"--batch", "2"}).status().message()),
              HasSubstr("(--batch times --accumulate) was 4 and is 2"));
  EXPECT_EQ(other({"--batch", "2", "--accumulate", "2"})->schedule.steps, 10);
  EXPECT_EQ(other({"--ranks", "4"})->schedule.steps, 10);
}

TEST(RunText, OfBeforeThereWasSampling_IsWithReplacement) {
  const std::string text =
      RunText({.id = "0123", .terms = {{"sampling", "uniform by seed and number"}}});
  EXPECT_EQ(ReadRunText(text)->terms, (RunTerms{{"sampling", "replacement"}}));
}

TEST(ResumedWithChanges, BetweenNoStateAndSome_AreRefused) {
  const SavedRun plain(Tiny() + Words{"--optimizer", "sgd"});
  EXPECT_THAT(std::string(plain.Resume({"--momentum", "0.9"}).status().message()),
              HasSubstr("--momentum was 0 and is 0.9"));
  const SavedRun heavy(Tiny() + Words{"--optimizer", "sgd", "--momentum", "0.9"});
  EXPECT_THAT(heavy.Resume({"--momentum", "0.5"})->resumed->taken,
              ElementsAre("--momentum was 0.9 and is 0.5"));
}

TEST(Resumed_PastItsSteps, IsRefusedAndAtThemNot) {
  const SavedRun saved(Tiny(), /*step=*/20);
  const absl::Status past = saved.Resume({"--steps", "10"}).status();
  EXPECT_EQ(past.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(past.message()), HasSubstr("--steps is 10"));
  EXPECT_THAT(std::string(past.message()), HasSubstr("20 steps behind it"));
  EXPECT_TRUE(saved.Resume({"--steps", "20"}).ok());
}

TEST(Resumed_FromWhatSaysLess, ComparesWhatIsSaid) {
  const SavedRun saved(Tiny() + Words{"--dtype", "fp32"});
  const std::string in = "step-000000005/";
  std::filesystem::remove(saved.folder() / (in + kRunName));
  EXPECT_TRUE(saved.Resume({"--seed", "2"}).ok()) << "another trainer's says nothing";
  saved.folder().Write(in + "types.json", R"({"dtype": "fp32", "norm_dtype": "fp32"})");
  EXPECT_THAT(std::string(saved.Resume({"--dtype", "bf16"}).status().message()),
              HasSubstr("--dtype was fp32 and is bf16"));
  EXPECT_TRUE(saved.Resume({}).ok());
}

TEST(RunText, OfAnotherFormat_IsRefusedByNumber) {
  const std::string text = RunText({.id = "0123", .terms = {{"lr", "0.1"}}});
  EXPECT_EQ(ReadRunText(text)->id, "0123");
  EXPECT_EQ(ReadRunText(text)->terms, (RunTerms{{"lr", "0.1"}}));
  std::string newer = text;
  newer.replace(newer.find("\"format\": 1"), 11, "\"format\": 2");
  EXPECT_THAT(std::string(ReadRunText(newer).status().message()), HasSubstr("format 2"));
  EXPECT_EQ(ReadRunText("{}").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadRunText("[").status().code(), absl::StatusCode::kDataLoss);
}

TEST(CheckpointsOfARun, AreThoseWithItsId) {
  const base::TemporaryFolder folder;
  for (const auto& [step, id] :
       {std::pair("10", "a"), std::pair("20", "b"), std::pair("30", "a")}) {
    folder.Write(absl::StrCat("step-0000000", step, "/", kRunName),
                 RunText({.id = id, .terms = {}}));
  }
  EXPECT_THAT(*CheckpointsOfRun(folder.path(), "a"),
              ElementsAre("step-000000010", "step-000000030"));
}

TEST(CompareTerms_OfData, RefusesOthers) {
  const TermChanges changes =
      CompareTerms({{kDataTerm, "10 bytes, CRC-32C 1"}}, {{kDataTerm, "10 bytes, CRC-32C 2"}});
  EXPECT_THAT(changes.refused,
              ElementsAre("data was 10 bytes, CRC-32C 1 and is 10 bytes, CRC-32C 2"));
}

TEST(CompareTerms_OfMeshes, TakesOthersAndSaysSo) {
  const TermChanges changes = CompareTerms({{kMeshTerm, "data=2"}}, {{kMeshTerm, "data=4"}});
  EXPECT_THAT(changes.refused, testing::IsEmpty());
  EXPECT_THAT(changes.taken, ElementsAre("mesh was data=2 and is data=4"));
}

class LoadedModel : public testing::Test {
 protected:
  void Save(const Words& arguments) {
    const absl::StatusOr<CommandLine> line = ParseCommandLine(Words{"--text", "t"} + arguments);
    ASSERT_TRUE(line.ok()) << line.status();
    folder_.Write("config.json", HuggingFaceConfig(line->options->model, "float32"));
  }
  absl::StatusOr<ModelConfig> Load(const Words& arguments) const {
    const absl::StatusOr<CommandLine> line =
        ParseCommandLine(Words{"--text", "t", "--load", folder_.path()} + arguments);
    if (!line.ok()) return line.status();
    return line->options->model;
  }

  const base::TemporaryFolder folder_;
};

TEST_F(LoadedModel, OfAnotherShape_IsNamedWithBothValues) {
  Save(Words{"--model", "llama-tiny"});
  for (const auto& [flag, value, words] :
       {Change{"--layers", "1", "--layers was 2 and is 1"},
        Change{"--heads", "2", "--heads was 4 and is 2"},
        Change{"--model", "gpt2-tiny", "--family was llama and is gpt2"}}) {
    const absl::Status status = Load({flag, value}).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
  }
  EXPECT_TRUE(Load({"--model", "llama-tiny", "--context", "32"}).ok());
}

TEST_F(LoadedModel, WithAdapters_KeepsTheirWeightAndRefusesOthers) {
  Save(Tiny() + Words{"--lora-rank", "4", "--lora-alpha", "16"});
  EXPECT_EQ(Load({})->lora_alpha, 16);
  EXPECT_EQ(Load({"--lora-rank", "4"})->lora_alpha, 16);
  EXPECT_THAT(std::string(Load({"--lora-rank", "8"}).status().message()),
              HasSubstr("--lora-rank was 4 and is 8"));
  EXPECT_THAT(std::string(Load({"--lora-alpha", "8"}).status().message()),
              HasSubstr("--lora-alpha was 16 and is 8"));
  EXPECT_THAT(std::string(Load(Tiny()).status().message()),
              HasSubstr("--lora-rank was 4 and is none"));
}

TEST_F(LoadedModel, WithoutAdapters_MayBeGivenNewOnes) {
  Save(Tiny());
  EXPECT_EQ(Load({"--lora-rank", "8"})->lora_rank, 8u);
}

}  // namespace
}  // namespace geminid::trainer
