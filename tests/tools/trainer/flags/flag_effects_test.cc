#include "tools/trainer/flags/flag_effects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "tools/trainer/flags/command_line.h"

namespace geminid::trainer {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// The flags of the help's lines that begin with one.
std::vector<std::string> FlagsIn(const std::vector<std::string>& help) {
  const std::string text = ParseCommandLine(help)->text;
  const std::regex line("(?:^|\n) +(?:-h,)?(--[a-z0-9-]+)");
  std::vector<std::string> flags;
  for (std::sregex_iterator at(text.begin(), text.end(), line), end; at != end; ++at) {
    const std::string flag = (*at)[1];
    if (flag != "--help" && flag != "--version") flags.push_back(flag);
  }
  return flags;
}

std::vector<std::string> FlagsOf(std::span<const FlagEffect> effects) {
  std::vector<std::string> flags;
  for (const FlagEffect& effect : effects) flags.push_back(effect.flag);
  return flags;
}

TEST(FlagEffects, EveryFlagOfTheHelp_HasOneRow) {
  EXPECT_THAT(FlagsOf(TrainingEffects()), testing::UnorderedElementsAreArray(FlagsIn({"--help"})));
  EXPECT_THAT(FlagsOf(GeneratingEffects()),
              testing::UnorderedElementsAreArray(FlagsIn({"generate", "--help"})));
}

// For each row with a condition: a command line in which the flag has no effect, and one that
// corrects this.
struct Case {
  std::vector<std::string> flag;
  std::vector<std::string> nothing;
  std::vector<std::string> mended;
};

const std::map<std::string, Case>& TrainingCases() {
  static const auto& cases = *new std::map<std::string, Case>{
      {"--seed",
       {{"--seed", "3", "--load", "none"}, {"--sampling", "sequential"}, {"--dropout", "0.1"}}},
      {"--update-cost", {{"--update-cost", "5"}, {}, {"--accumulate", "auto:2:4"}}},
      {"--weights-hash", {{"--weights-hash", "always"}, {}, {"--report", "none"}}},
      {"--validation-every", {{"--validation-every", "5"}, {}, {"--validation", "0.1"}}},
      {"--validation-batches", {{"--validation-batches", "5"}, {}, {"--validation", "0.1"}}},
      {"--norm-precision",
       {{"--norm-precision", "as-weights"}, {"--dtype", "fp32"}, {"--dtype", "bf16"}}},
      {"--dampening", {{"--optimizer", "sgd", "--dampening", "0.1"}, {}, {"--momentum", "0.9"}}},
      {"--nesterov", {{"--optimizer", "sgd", "--nesterov", "on"}, {}, {"--momentum", "0.9"}}},
      {"--decay-after-momentum",
       {{"--optimizer", "sgd", "--decay-after-momentum", "on"}, {}, {"--momentum", "0.9"}}},
      {"--warmup-init",
       {{"--optimizer", "adafactor", "--warmup-init", "on"}, {"--relative-step", "off"}, {}}},
      {"--copy-bandwidth", {{"--copy-bandwidth", "1GB/s"}, {"--device", "cuda"}, {}}},
      {"--state-disk-limit", {{"--state-disk-limit", "5GB"}, {}, {"--state-disk", "/nvme"}}},
      {"--state-disk-endurance",
       {{"--state-disk-endurance", "5TB"}, {}, {"--state-disk", "/nvme"}}},
      {"--save-every", {{"--save-every", "5"}, {}, {"--save", "none"}}},
      {"--keep", {{"--keep", "5"}, {}, {"--save", "none"}}},
      {"--export-dtype", {{"--export-dtype", "bf16"}, {}, {"--export", "none"}}},
      {"--resume", {{"--resume"}, {}, {"--save", "none"}}},
      {"--save-over", {{"--save-over"}, {}, {"--save", "none"}}},
      {"--remote-shell", {{"--remote-shell", "rsh"}, {}, {"--hosts", "/dev/null"}}},
      {"--host-timeout", {{"--host-timeout", "3"}, {}, {"--hosts", "/dev/null"}}},
      {"--progress", {{"--progress", "lines"}, {"--quiet"}, {}}},
  };
  return cases;
}

std::string Says(std::vector<std::string> arguments, const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) return std::string(line.status().message());
  return line->notes.empty() ? "" : line->notes.front();
}

TEST(FlagEffects, OfEveryConditionalFlag_IsSaidOrRefusedUntilItIsMet) {
  for (const FlagEffect& effect : TrainingEffects()) {
    if (effect.has == nullptr) continue;
    ASSERT_TRUE(TrainingCases().contains(effect.flag)) << effect.flag << " has no case here";
    const Case& example = TrainingCases().at(effect.flag);
    std::vector<std::string> arguments = {"--text", "t", "--model", "gpt2-tiny"};
    arguments.insert(arguments.end(), example.flag.begin(), example.flag.end());
    const std::string words = Says(arguments, example.nothing);
    EXPECT_THAT(words, StartsWith(std::string(effect.flag) + ": it does nothing without "));
    EXPECT_EQ(words.ends_with("; leave it out"), !effect.is_said) << words;
    EXPECT_THAT(Says(arguments, example.mended), testing::Not(HasSubstr("does nothing")));
  }
}

TEST(FlagEffects, OfWhatResumingFills_IsMetByTheRecord) {
  Flags flags;
  flags.save = "r";
  const auto given = [](const std::string& flag) { return flag == "--keep"; };
  const auto said = CheckEffects(TrainingEffects(), flags, given);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_TRUE(said->empty());
}

TEST(FlagEffects, OfGreedyText_SaysThatNothingIsChosen) {
  Flags flags;
  const auto given = [](const std::string& flag) { return flag == "--top-k" || flag == "--seed"; };
  const auto said = CheckEffects(GeneratingEffects(), flags, given);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_THAT(*said, testing::ElementsAre(StartsWith("--top-k: it does nothing without "),
                                          StartsWith("--seed: it does nothing without ")));
  flags.temperature = "0.5";
  EXPECT_TRUE(CheckEffects(GeneratingEffects(), flags, given)->empty());
}

}  // namespace
}  // namespace geminid::trainer
