// Asks the trainer and geminictl plan the same questions, for measured ranks and for one model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/exit_code.h"
#include "base/flag_values.h"
#include "base/processors.h"
#include "tests/base/temporary_folder.h"
#include "tests/tools/geminictl/outcome.h"
#include "tools/trainer/flags/command_line.h"
#include "training/models/huggingface.h"
#include "training/run/report.h"
#include "training/settings/device_need.h"
#include "training/settings/mesh_choice.h"

namespace geminid::trainer {
namespace {

using base::At;
using Words = std::vector<std::string>;

TrainOptions Options(const Words& more) {
  Words arguments = {"--text",       "t", "--model",    "llama-20m", "--batch", "8",
                     "--accumulate", "2", "--parallel", "auto",      "--dtype", "fp32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto line = ParseCommandLine(arguments);
  EXPECT_TRUE(line.ok()) << line.status();
  return *line->options;
}

RanksPlace Place(int hosts, double network) {
  return {.ranks = 4,
          .hosts = hosts,
          .device_bytes = uint64_t{4} << 30,
          .host_bytes = uint64_t{64} << 30,
          .operations_per_second = 1e11,
          .copied_bytes_per_second = 1e10,
          .link_bytes_per_second = 1e10,
          .peer_bytes_per_second = 1e10,
          .peer_message_seconds = 1e-5,
          .network_bytes_per_second = hosts > 1 ? network : 0,
          .network_message_seconds = hosts > 1 ? 1e-4 : 0};
}

TEST(Place, OfOneModel_GivesTheTrainerAndThePlannerTheSameMesh) {
  const base::TemporaryFolder folder;
  const std::string report_path = folder / "report.json";
  for (const Words& more :
       {Words{}, Words{"--optimizer", "lamb"}, Words{"--activations", "recompute"}}) {
    for (const RanksPlace& place : {Place(1, 0), Place(2, 1e7), Place(4, 1e5)}) {
      Report report;
      report.options = Options(more);
      const auto choice = ChooseMesh(report.options, place);
      ASSERT_TRUE(choice.ok()) << choice.status();
      report.choice = *choice;
      folder.Write("report.json", ToJson(report));
      const ctl::Outcome outcome = ctl::RunPlan(
          {"--model", "llama-20m", "--parallel", "auto", "--place", report_path, "--json"});
      ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
      const base::JsonValue chosen = At(base::MustParse(outcome.out), "chosen");
      EXPECT_EQ(At(At(chosen, "mesh"), "text").text, choice->mesh);
      EXPECT_EQ(At(chosen, "micro_batches").text, std::to_string(choice->accumulate));
    }
  }
}

TEST(Place, BesideFlagsThatItReplaces_IsRefused) {
  const base::TemporaryFolder folder;
  const std::string path = folder.Write("report.json", "{}");
  const auto refusal = [&](const Words& more) {
    Words arguments = {"--model", "llama-20m", "--place", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ctl::Outcome outcome = ctl::RunPlan(arguments);
    EXPECT_EQ(outcome.code, base::kExitUsage) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refusal({}), testing::HasSubstr("--place"));
  EXPECT_THAT(refusal({"--parallel", "data=2"}), testing::HasSubstr("give --parallel auto"));
  EXPECT_THAT(refusal({"--parallel", "auto", "--ranks", "2"}), testing::HasSubstr("--ranks"));
  EXPECT_THAT(refusal({"--parallel", "auto"}), testing::HasSubstr("it has no \"ranks\""));
}

// Expects geminictl plan to name the device memory that the trainer names in its error for too
// little memory. On a GPU the trainer works on whole matrices.
void ExpectTheSameNeed(const Words& hardware) {
  const base::TemporaryFolder folder;
  for (const char* const name : {"gpt2-tiny", "llama-3m", "mixtral-tiny"}) {
    TrainOptions options;
    options.wants_gpu = !hardware.empty();
    options.model = *FindPreset(name);
    folder.Write("config.json", HuggingFaceConfig(options.model, "float32"));
    options.batch = 6;
    options.model.positions = options.model.position_rows();
    options.model.context = 32;
    for (const int ranks : {1, 2}) {
      const size_t threads =
          std::max<size_t>(1, base::AllowedProcessors().size() / static_cast<size_t>(ranks));
      Words arguments = {"--config",        folder.path(), "--ranks",       std::to_string(ranks),
                         "--batch",         "6",           "--context",     "32",
                         "--device-memory", "64KiB",       "--host-memory", "8GiB",
                         "--json"};
      arguments.insert(arguments.end(), hardware.begin(), hardware.end());
      const ctl::Outcome outcome = ctl::RunPlan(arguments);
      EXPECT_EQ(outcome.code, base::kExitResourceExhausted) << outcome.err;
      const uint64_t enough = EnoughDeviceBytes(options, ranks, threads);
      EXPECT_EQ(At(base::MustParse(outcome.out), "trainer_device_bytes").text,
                std::to_string(enough))
          << name << " on " << ranks;
      // So does the change of the flag that makes it fit.
      EXPECT_THAT(outcome.out,
                  testing::HasSubstr(absl::StrCat("--device-memory ", base::ExactBytes(enough))))
          << name << " on " << ranks;
    }
  }
}

TEST(DeviceNeed, OfOneModel_IsTheSameNumberForTheTrainerAndThePlanner) { ExpectTheSameNeed({}); }

TEST(DeviceNeed, OnAGpu_IsTheSameNumberForTheTrainerAndThePlanner) {
  ExpectTheSameNeed({"--hardware", "h200"});
}

}  // namespace
}  // namespace geminid::trainer
