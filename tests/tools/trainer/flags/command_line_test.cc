#include "tools/trainer/flags/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace geminid::trainer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> With(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"--text", "t", "--model", "gpt2-tiny"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TrainOptions Parse(const std::vector<std::string>& more) {
  const auto line = ParseCommandLine(With(more));
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() && line->options ? *line->options : TrainOptions();
}

TEST(ParseCommandLine, WithoutMuch_HasSensibleDefaults) {
  const TrainOptions options = Parse({});
  EXPECT_THAT(options.text, testing::ElementsAre("t"));
  EXPECT_EQ(options.model.hidden, 64);
  EXPECT_FALSE(options.ranks.has_value());
  EXPECT_FALSE(options.device_memory_bytes.has_value());
  EXPECT_EQ(options.zero.placement, zero::Placement::kAuto);
  EXPECT_EQ(options.zero.data_type, zero::DataType::kBFloat16);
  EXPECT_EQ(options.zero.clip_norm, 1.0);
  EXPECT_EQ(options.copy_bytes_per_second, 0);
  EXPECT_FALSE(options.progress.has_value());
}

TEST(ParseCommandLine, SeveralPathsOfData_AreAllTaken) {
  EXPECT_THAT(Parse({"--text", "u", "--text", "v"}).text, testing::ElementsAre("t", "u", "v"));
  const auto shards = ParseCommandLine(
      {"--shards", "a", "--shards", "b", "--model", "gpt2-tiny", "--vocabulary", "300"});
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_THAT(shards->options->shards, testing::ElementsAre("a", "b"));
  EXPECT_THAT(shards->notes, testing::IsEmpty());
}

TEST(ParseCommandLine, OfGenerate_RefusesRanksThatTheDaemonWouldChange) {
  const auto line = ParseCommandLine({"generate", "--load", "none", "--ranks", "1:2"});
  EXPECT_TRUE(absl::IsInvalidArgument(line.status())) << line.status();
  EXPECT_THAT(std::string(line.status().message()),
              testing::HasSubstr("--ranks MIN:MAX is for training, which the daemon may change"));
}

TEST(ParseCommandLine, FlagsThatAreRepeated_CountTheLastTimeAndAreSaid) {
  const auto line = ParseCommandLine(With({"--steps", "5", "--lr", "1", "--steps", "7"}));
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options->schedule.steps, 7u);
  EXPECT_THAT(line->notes,
              testing::ElementsAre("--steps is given 2 times; the last one counts: 7"));
  EXPECT_THAT(ParseCommandLine(With({"--steps", "5", "--steps", "5"}))->notes, testing::IsEmpty());
}

TEST(ParseCommandLine, MicroBatchesThatFollowNoise_HaveBoundsAndAreSummed) {
  const TrainOptions options = Parse({"--batch", "8", "--accumulate", "auto:1:16"});
  ASSERT_TRUE(options.follows_noise.has_value());
  EXPECT_EQ(options.follows_noise->least, 1u);
  EXPECT_EQ(options.follows_noise->most, 16u);
  EXPECT_EQ(options.follows_noise->update_cost, 0);
  EXPECT_EQ(options.zero.accumulate, 2);
  EXPECT_EQ(SequencesPerStep(options), 8u);
  EXPECT_EQ(options.zero.update, zero::UpdateTime::kAfterStep);
  const TrainOptions other = Parse({"--accumulate", "auto:3:5", "--update-cost", "2.5"});
  EXPECT_EQ(other.zero.accumulate, 3);
  EXPECT_EQ(other.follows_noise->update_cost, 2.5);
  EXPECT_FALSE(Parse({"--accumulate", "4"}).follows_noise.has_value());
  EXPECT_EQ(SequencesPerStep(Parse({"--batch", "8", "--accumulate", "4"})), 32u);
}

TEST(ParseCommandLine, BatchWithBounds_IsOfSequencesOfAStep) {
  const TrainOptions options = Parse({"--batch", "auto:8:128"});
  EXPECT_EQ(options.batch, 8u) << "of a micro-batch";
  ASSERT_TRUE(options.follows_noise.has_value());
  EXPECT_EQ(options.follows_noise->least, 1u);
  EXPECT_EQ(options.follows_noise->most, 16u);
  EXPECT_EQ(SequencesPerStep(options), 8u);
  const TrainOptions smaller =
      Parse({"--batch", "auto:8:128", "--accumulate", "4", "--update-cost", "2.5"});
  EXPECT_EQ(smaller.batch, 2u);
  EXPECT_EQ(smaller.follows_noise->least, 4u);
  EXPECT_EQ(smaller.follows_noise->most, 64u);
  EXPECT_EQ(smaller.follows_noise->update_cost, 2.5);
}

TEST(ParseCommandLine, BatchWithBoundsThatAreNone_IsOneError) {
  const auto refused = [](const std::vector<std::string>& flags) {
    return std::string(ParseCommandLine(With(flags)).status().message());
  };
  EXPECT_THAT(refused({"--batch", "auto"}), HasSubstr("as in auto:8:128"));
  EXPECT_THAT(refused({"--batch", "auto:16:8"}), HasSubstr("more than the fewest"));
  EXPECT_THAT(refused({"--batch", "auto:8:20"}), HasSubstr("as in auto:8:16"));
  EXPECT_THAT(refused({"--batch", "auto:8:64", "--accumulate", "auto:1:8"}),
              HasSubstr("give one of them"));
}

TEST(ParseCommandLine, MicroBatchesWithoutBoundsThatDiffer_AreRefusedWithWhatToGive) {
  const auto refused = [](const std::vector<std::string>& flags) {
    return std::string(ParseCommandLine(With(flags)).status().message());
  };
  for (const char* value : {"auto", "auto:2", "auto:1:2:3", "automatic:1:2"}) {
    EXPECT_THAT(refused({"--accumulate", value}), HasSubstr("as in auto:2:16")) << value;
  }
  EXPECT_THAT(refused({"--accumulate", "auto:4:4"}), HasSubstr("give --accumulate 4"));
  EXPECT_THAT(refused({"--accumulate", "auto:5:4"}), HasSubstr("more than the fewest"));
  EXPECT_THAT(refused({"--accumulate", "auto:0:4"}), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(refused({"--accumulate", "auto:1:70000"}), HasSubstr("from 1 to 65536"));
  EXPECT_THAT(refused({"--accumulate", "auto:1:4", "--update-cost", "0"}),
              HasSubstr("--update-cost"));
  EXPECT_THAT(refused({"--accumulate", "4", "--update-cost", "1"}),
              HasSubstr("it does nothing without --accumulate auto:MIN:MAX"));
}

TEST(ParseCommandLine, UnknownWordsBesideHelp_AreAnError) {
  EXPECT_TRUE(ParseCommandLine({"--help"}).ok());
  EXPECT_THAT(std::string(ParseCommandLine({"nosuch", "--help"}).status().message()),
              HasSubstr("'nosuch' is not known"));
}

TEST(ParseCommandLine, WhatWasGivenAndSaid_GoesWithTheOptions) {
  const TrainOptions options = Parse({"--steps", "5", "--steps", "7"});
  EXPECT_THAT(options.given, testing::UnorderedElementsAre("--text", "--model", "--steps"));
  EXPECT_THAT(options.notes, testing::ElementsAre(HasSubstr("--steps is given 2 times")));
}

TEST(ParseCommandLine, NormsBesideBf16Weights_AreInFp32UnlessToldOtherwise) {
  EXPECT_TRUE(Parse({}).model.fp32_norms);
  EXPECT_EQ(NormType(Parse({})), zero::DataType::kFloat32);
  EXPECT_TRUE(Parse({"--norm-precision", "fp32"}).model.fp32_norms);
  EXPECT_FALSE(Parse({"--norm-precision", "as-weights"}).model.fp32_norms);
  EXPECT_EQ(NormType(Parse({"--norm-precision", "as-weights"})), zero::DataType::kBFloat16);
  // With fp32 weights the norms have the same type.
  EXPECT_FALSE(Parse({"--dtype", "fp32"}).model.fp32_norms);
  EXPECT_EQ(NormType(Parse({"--dtype", "fp32"})), zero::DataType::kFloat32);
  EXPECT_FALSE(ParseCommandLine(With({"--norm-precision", "bf16"})).ok());
}

TEST(ParseCommandLine, PriorityAndQueueTimeout_AreChecked) {
  EXPECT_EQ(Parse({}).priority, 0);
  EXPECT_EQ(Parse({}).queue_timeout, absl::InfiniteDuration());
  EXPECT_EQ(Parse({"--priority=-3"}).priority, -3);
  EXPECT_EQ(Parse({"--queue-timeout", "1.5"}).queue_timeout, absl::Milliseconds(1500));
  for (const char* wrong : {"--priority=101", "--priority=-101", "--priority=high",
                            "--queue-timeout=-1", "--queue-timeout=soon"}) {
    EXPECT_FALSE(ParseCommandLine(With({wrong})).ok()) << wrong;
  }
  EXPECT_THAT(std::string(ParseCommandLine(With({"--priority=-101"})).status().message()),
              ::testing::StartsWith("--priority -101: it must be a whole number from -100 to 100"));
}

TEST(ParseCommandLine, Restarts_AreCounted) {
  EXPECT_EQ(Parse({}).restarts, 0);
  EXPECT_EQ(Parse({"--restarts", "3"}).restarts, 3);
  for (const char* wrong : {"--restarts=-1", "--restarts=1001", "--restarts=often"}) {
    EXPECT_FALSE(ParseCommandLine(With({wrong})).ok()) << wrong;
  }
}

TEST(ParseCommandLine, LimitsOfRanks_AreNumbersOfThem) {
  EXPECT_EQ(Parse({}).min_ranks, std::nullopt);
  EXPECT_EQ(Parse({"--min-ranks", "2"}).min_ranks, 2);
  EXPECT_EQ(Parse({"--max-ranks", "8"}).max_ranks, 8);
  for (const char* wrong : {"--min-ranks=0", "--min-ranks=few", "--max-ranks=-1"}) {
    EXPECT_FALSE(ParseCommandLine(With({wrong})).ok()) << wrong;
  }
}

TEST(ParseCommandLine, Ranks_AreANumberOrARangeForTheDaemonToChooseFrom) {
  EXPECT_EQ(Parse({"--ranks", "2"}).ranks, 2);
  EXPECT_EQ(Parse({"--ranks", "2"}).share, std::nullopt);
  EXPECT_EQ(Parse({"--ranks", "2:4"}).ranks, 2);
  EXPECT_EQ(Parse({"--ranks", "2:4"}).share, (RanksRange{2, 4}));
  for (const char* wrong : {"--ranks=0", "--ranks=0:2", "--ranks=2:", "--ranks=:2", "--ranks=4:2",
                            "--ranks=2:2", "--ranks=1:2:4", "--ranks=auto", "--ranks=:"}) {
    EXPECT_FALSE(ParseCommandLine(With({wrong})).ok()) << wrong;
  }
}

TEST(ParseCommandLine, Device_IsAnIndexOrNone) {
  EXPECT_FALSE(Parse({}).device.has_value());
  EXPECT_EQ(Parse({"--device", "1"}).device, DeviceIndex{1});
  EXPECT_THAT(std::string(ParseCommandLine(With({"--device", "-1"})).status().message()),
              HasSubstr("--device"));
  EXPECT_FALSE(ParseCommandLine(With({"--device", "64"})).ok());
}

TEST(ParseCommandLine, WithEveryFlag_TakesEveryValue) {
  const TrainOptions options = Parse({"--ranks",
                                      "2",
                                      "--steps",
                                      "7",
                                      "--batch",
                                      "6",
                                      "--seed",
                                      "9",
                                      "--placement",
                                      "cpu",
                                      "--dtype",
                                      "fp32",
                                      "--device-memory",
                                      "24MiB",
                                      "--host-memory=2GB",
                                      "--copy-bandwidth",
                                      "10GB/s",
                                      "--clip-norm",
                                      "0",
                                      "--accumulate",
                                      "3",
                                      "--lr",
                                      "1e-3",
                                      "--report",
                                      "r.json",
                                      "--warmup-steps",
                                      "2",
                                      "--weight-decay",
                                      "0.2",
                                      "--schedule",
                                      "cosine",
                                      "--timeout",
                                      "5.5",
                                      "--job",
                                      "a-1",
                                      "--progress",
                                      "lines"});
  EXPECT_EQ(options.ranks, 2);
  EXPECT_EQ(options.schedule.steps, 7);
  EXPECT_EQ(options.batch, 6);
  EXPECT_EQ(options.seed, 9);
  EXPECT_EQ(options.zero.placement, zero::Placement::kCpu);
  EXPECT_EQ(options.zero.data_type, zero::DataType::kFloat32);
  EXPECT_EQ(options.device_memory_bytes, 24 << 20);
  EXPECT_EQ(options.host_memory_bytes, 2'000'000'000);
  EXPECT_EQ(options.copy_bytes_per_second, 10'000'000'000);
  EXPECT_EQ(options.zero.clip_norm, 0);
  EXPECT_EQ(options.zero.accumulate, 3);
  EXPECT_EQ(options.schedule.peak, 1e-3);
  EXPECT_EQ(options.report, "r.json");
  EXPECT_EQ(options.schedule.warmup_steps, 2);
  EXPECT_EQ(std::get<zero::AdamWOptions>(options.zero.optimizer).weight_decay, 0.2);
  EXPECT_EQ(options.schedule.shape, ScheduleShape::kCosine);
  EXPECT_EQ(options.timeout, absl::Milliseconds(5500));
  EXPECT_EQ(options.job, "a-1");
  EXPECT_EQ(options.progress, ProgressMode::kLines);
  EXPECT_EQ(Parse({"--quiet"}).progress, ProgressMode::kNone);
}

TEST(ParseCommandLine, WithASchedule_TakesItsFlagsAndDefaults) {
  EXPECT_EQ(Parse({}).schedule.shape, ScheduleShape::kConstant);
  EXPECT_EQ(Parse({}).schedule.warmup_steps, 50);
  EXPECT_EQ(Parse({"--schedule", "one-cycle", "--steps", "50"}).schedule.warmup_steps, 15);
  const Schedule falling =
      Parse({"--schedule", "polynomial", "--lr-power", "3", "--lr-floor", "0.25"}).schedule;
  EXPECT_EQ(falling.power, 3);
  EXPECT_EQ(falling.final_share, 0.25);
  const Schedule steps =
      Parse({"--schedule", "multi-step", "--lr-milestones", "30,60", "--lr-decay", "0.5"}).schedule;
  EXPECT_THAT(steps.milestones, testing::ElementsAre(30, 60));
  EXPECT_EQ(steps.decay, 0.5);
}

TEST(ParseCommandLine, WithAnOptimizer_TakesItsFlagsAndItsUsualRate) {
  EXPECT_EQ(Parse({}).schedule.peak, 6e-4);
  EXPECT_EQ(std::get<zero::AdamWOptions>(Parse({}).zero.optimizer).weight_decay, 0.1);
  const TrainOptions sgd = Parse({"--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "on"});
  EXPECT_EQ(std::get<zero::SgdOptions>(sgd.zero.optimizer).momentum, 0.9);
  EXPECT_TRUE(std::get<zero::SgdOptions>(sgd.zero.optimizer).nesterov);
  EXPECT_EQ(sgd.schedule.peak, 0.1);
  const TrainOptions given = Parse(
      {"--optimizer", "adafactor", "--relative-step", "off", "--epsilon2", "0.5", "--lr", "0.25"});
  EXPECT_FALSE(std::get<zero::AdafactorOptions>(given.zero.optimizer).relative_step);
  EXPECT_EQ(std::get<zero::AdafactorOptions>(given.zero.optimizer).epsilon2, 0.5);
  EXPECT_EQ(given.schedule.peak, 0.25);
  for (const char* name :
       {"adamw", "adam", "lamb", "lars", "sgd", "adagrad", "lion", "adafactor", "came", "muon"}) {
    EXPECT_STREQ(Name(Parse({"--optimizer", name}).zero.optimizer), name);
  }
}

TEST(ParseCommandLine, WithAPlaceForTheOptimizersState_TakesIt) {
  using zero::StatePlacement;
  EXPECT_EQ(Parse({}).zero.state_placement, StatePlacement::kAuto);
  EXPECT_EQ(Parse({"--optimizer-state", "host"}).zero.state_placement, StatePlacement::kHost);
  EXPECT_EQ(Parse({"--optimizer-state", "device"}).zero.state_placement, StatePlacement::kDevice);
  EXPECT_EQ(Parse({"--optimizer-state", "streamed"}).zero.state_placement,
            StatePlacement::kStreamed);
  const zero::Options share = Parse({"--optimizer-state", "0.25"}).zero;
  EXPECT_EQ(share.state_placement, StatePlacement::kShare);
  EXPECT_EQ(share.state_share, 0.25);
}

TEST(ParseCommandLine, WithFoldersForTheOptimizersState_MayHaveItThereOrMust) {
  const zero::Options one = Parse({"--state-disk", "/nvme"}).zero;
  EXPECT_EQ(one.state_placement, zero::StatePlacement::kAuto);
  EXPECT_THAT(one.state_disk.folders, ElementsAre("/nvme"));
  EXPECT_EQ(one.state_disk.limit_bytes, 0u);
  EXPECT_EQ(one.state_disk.endurance_bytes, 0u);
  const zero::Options two =
      Parse({"--optimizer-state", "disk", "--state-disk", "/a,b/c", "--state-disk-limit", "5GB",
             "--state-disk-endurance", "1TB", "--placement", "cpu"})
          .zero;
  EXPECT_EQ(two.state_placement, zero::StatePlacement::kDisk);
  EXPECT_THAT(two.state_disk.folders, ElementsAre("/a", "b/c"));
  EXPECT_EQ(two.state_disk.limit_bytes, 5'000'000'000u);
  EXPECT_EQ(two.state_disk.endurance_bytes, 1'000'000'000'000u);
}

TEST(ParseCommandLine, UpdatesInTheBackwardPass_AreTakenWhereNothingSpeaksAgainstThem) {
  using zero::UpdateTime;
  const auto update = [](const std::vector<std::string>& arguments) {
    return Parse(arguments).zero.update;
  };
  EXPECT_EQ(update({}), UpdateTime::kAfterStep);
  EXPECT_EQ(update({"--clip-norm", "0"}), UpdateTime::kInBackward);
  EXPECT_EQ(update({"--clip-norm", "0", "--optimizer", "lion"}), UpdateTime::kInBackward);
  EXPECT_EQ(update({"--clip-norm", "0", "--update", "step"}), UpdateTime::kAfterStep);
  EXPECT_EQ(update({"--clip-norm", "0", "--accumulate", "2"}), UpdateTime::kAfterStep);
  EXPECT_EQ(update({"--clip-norm", "0", "--optimizer", "lamb"}), UpdateTime::kAfterStep);
  EXPECT_EQ(update({"--clip-norm", "0", "--loss-scale", "dynamic"}), UpdateTime::kAfterStep);
}

TEST(ParseCommandLine, WithThreads_TakesTheirNumber) {
  EXPECT_FALSE(Parse({}).threads.has_value());
  EXPECT_EQ(Parse({"--threads", "3"}).threads, 3);
}

TEST(ParseCommandLine, WithRecompute_TakesItsKind) {
  EXPECT_EQ(Parse({}).activations, Activations::kAuto);
  EXPECT_EQ(Parse({"--activations", "recompute"}).activations, Activations::kRecompute);
  EXPECT_EQ(Parse({"--activations", "keep"}).activations, Activations::kKeep);
  EXPECT_EQ(Parse({"--activations", "offload"}).activations, Activations::kOffload);
}

TEST(ParseCommandLine, WithALossScale_TakesItsKind) {
  EXPECT_FALSE(Parse({}).zero.loss_scale.has_value());
  EXPECT_EQ(Parse({"--loss-scale", "dynamic"}).zero.loss_scale->growth_factor, 2);
  const auto fixed = Parse({"--loss-scale", "1024"}).zero.loss_scale;
  EXPECT_EQ(fixed->initial_scale, 1024);
  EXPECT_EQ(fixed->growth_factor, 1);
}

TEST(ParseCommandLine, WithAShapeOfItsOwn_BuildsIt) {
  const auto line = ParseCommandLine({"--text", "t", "--family", "llama", "--layers", "3",
                                      "--hidden", "96", "--heads", "6", "--context", "32"});
  ASSERT_TRUE(line.ok()) << line.status();
  const ModelConfig& model = line->options->model;
  EXPECT_EQ(model.family, Family::kLlama);
  EXPECT_EQ(model.kv_heads, 6);
  EXPECT_EQ(model.intermediate, 256);
  EXPECT_EQ(model.context, 32);
}

TEST(ParseCommandLine, WithAPresetChanged_KeepsTheRest) {
  const ModelConfig model = Parse({"--hidden", "128", "--layers", "1"}).model;
  EXPECT_EQ(model.hidden, 128);
  EXPECT_EQ(model.intermediate, 512);
  EXPECT_EQ(model.heads, 4);
  EXPECT_EQ(model.layers, 1);
  EXPECT_EQ(model.context, 64);
}

TEST(ParseCommandLine, WithANewlineInAPath_TakesItAsOne) {
  const auto line =
      ParseCommandLine({"--text", "a\nb", "--text", "c d", "--model", "gpt2-tiny", "--steps", "1"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(line->options->text, testing::ElementsAre("a\nb", "c d"));
}

struct Bad {
  std::vector<std::string> arguments;
  const char* complaint;
};

TEST(ParseCommandLine, WithWhatCannotBe_NamesTheFlagAndWhatWouldBeRight) {
  for (const Bad& bad : std::vector<Bad>{
           {{"--steps", "-1"}, "--steps -1: "},
           {{"--steps", "0"}, "--steps 0: "},
           {{"--batch", "4x"}, "--batch 4x: "},
           {{"--batch", "99999999999999999999"}, "--batch"},
           {{"--seed", "18446744073709551616"}, "--seed"},
           {{"--ranks", "0"}, "--ranks 0: it must be a whole number from 1"},
           {{"--lr", "nan"}, "--lr nan: "},
           {{"--lr", "inf"}, "--lr inf: "},
           {{"--clip-norm", "-1"}, "--clip-norm -1: "},
           {{"--device-memory", "-1"}, "--device-memory -1: not a size"},
           {{"--device-memory", "24 parsecs"}, "--device-memory '24 parsecs': not a size"},
           {{"--device-memory", "64"}, "--device-memory 64: that is 64 bytes; write the unit"},
           {{"--device-memory", "0"}, "--device-memory 0: give a size"},
           {{"--copy-bandwidth", "10GB"}, "--copy-bandwidth 10GB: not a bandwidth"},
           {{"--copy-bandwidth", "0GB/s"}, "--copy-bandwidth 0GB/s: nothing would move"},
           {{"--dtype", "fp16"}, "it must be one of: bf16, fp32"},
           {{"--placement", "gpu"}, "it must be one of: device, cpu, auto"},
           {{"--schedule", "step"}, "constant, linear, cosine, polynomial, one-cycle, multi-step"},
           {{"--lr-power", "2"}, "--lr-power is for --schedule polynomial, but that is constant"},
           {{"--schedule", "cosine", "--lr-decay", "0.5"},
            "--lr-decay is for --schedule multi-step"},
           {{"--schedule", "multi-step"}, "milestones"},
           {{"--schedule", "multi-step", "--lr-milestones", "5,x"}, "--lr-milestones x: "},
           {{"--schedule", "multi-step", "--lr-milestones", "5,4"}, "ascending"},
           {{"--optimizer", "adamx"}, "one of: adamw, adam, lamb, lars, sgd, adagrad, lion"},
           {{"--momentum", "0.9"},
            "--momentum is for --optimizer lars, sgd, muon, but that is adamw"},
           {{"--optimizer", "sgd", "--beta1", "0.9"},
            "--beta1 is for --optimizer adamw, adam, lamb"},
           {{"--optimizer", "sgd", "--momentum", "0.9", "--nesterov", "yes"},
            "--nesterov yes: it must be one of"},
           {{"--optimizer", "lion", "--beta1", "1"}, "lion"},
           {{"--threads", "0"}, "--threads 0: it must be a whole number from 1"},
           {{"--update-threads", "0"}, "--update-threads 0: "},
           {{"--weight-decay", "-1"}, "--weight-decay -1: "},
           {{"--update", "late"}, "--update late: it must be one of: auto, step, backward"},
           {{"--update", "backward"}, "--update backward needs --clip-norm 0"},
           {{"--update", "backward", "--clip-norm", "0", "--accumulate", "4"}, "--accumulate 1"},
           {{"--optimizer-state", "gpu"}, "--optimizer-state gpu: it must be auto, host"},
           {{"--optimizer-state", "1.5"}, "--optimizer-state 1.5: "},
           {{"--optimizer-state", "0.5", "--placement", "cpu"}, "needs --placement auto"},
           {{"--optimizer-state", "streamed", "--placement", "device"}, "needs --placement auto"},
           {{"--optimizer-state", "disk"}, "needs folders; name them with --state-disk"},
           {{"--optimizer-state", "host", "--state-disk", "/a"}, "leave one of the two out"},
           {{"--state-disk", "/a,,b"}, "a comma without a folder"},
           {{"--state-disk", "/a", "--placement", "device"}, "needs --placement auto or cpu"},
           {{"--state-disk", "/a", "--state-disk-limit", "5"}, "--state-disk-limit 5: "},
           {{"--state-disk", "/a", "--state-disk-limit", "0GB"}, "--state-disk-limit 0GB: "},
           {{"--state-disk", "/a", "--state-disk-endurance", "0GB"}, "give a size"},
           {{"--activations", "yes"},
            "--activations yes: it must be one of: auto, keep, offload, recompute"},
           {{"--epsilon", "0"}, "--epsilon 0: it is out of its range"},
           {{"--beta1", "0.5", "--beta2", "1"},
            "--beta2 1: it is out of its range: beta2 is 1; with adamw it must be from 0 to below "
            "1. The usual value is 0.95"},
           {{"--loss-scale", "big"}, "--loss-scale big: "},
           {{"--loss-scale", "0"}, "--loss-scale 0: "},
           {{"--timeout", "0"}, "--timeout 0: "},
           {{"--job", "Mine"}, "--job Mine: "},
           {{"--heads", "5"}, "must divide"},
           {{"--socket", "/s", "--host-memory", "1GiB"}, "Leave one of the two out"},
           {{"--frobnicate"}, "--frobnicate"},
           {{"stray"}, "stray"},
       }) {
    const auto line = ParseCommandLine(With(bad.arguments));
    ASSERT_FALSE(line.ok()) << bad.arguments[0];
    EXPECT_THAT(std::string(line.status().message()), HasSubstr(bad.complaint));
  }
  EXPECT_THAT(std::string(ParseCommandLine({"--text", "t"}).status().message()),
              HasSubstr("no model: give --model"));
  EXPECT_THAT(std::string(ParseCommandLine({"--text", "t", "--save", "/nonexistent", "--resume"})
                              .status()
                              .message()),
              HasSubstr("--save /nonexistent has no checkpoint to take it from"));
  EXPECT_THAT(std::string(ParseCommandLine({"--model", "gpt2-tiny"}).status().message()),
              HasSubstr("no text"));
  EXPECT_EQ(ParseCommandLine({"--text", "t", "--model", "x"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ParseCommandLine, AskedForHelpOrVersion_SaysIt) {
  const auto help = ParseCommandLine({"--help"});
  ASSERT_TRUE(help.ok());
  EXPECT_FALSE(help->options.has_value());
  EXPECT_THAT(help->text, HasSubstr("--device-memory"));
  EXPECT_THAT(help->text, HasSubstr("gpt2-20m"));
  const auto version = ParseCommandLine({"--version"});
  ASSERT_TRUE(version.ok());
  EXPECT_THAT(version->text, testing::StartsWith("geminid-train "));
}

}  // namespace
}  // namespace geminid::trainer
