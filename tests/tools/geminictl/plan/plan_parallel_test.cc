// geminictl plan --parallel, which needs no daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/exit_code.h"
#include "tests/tools/geminictl/outcome.h"

namespace geminid::ctl {
namespace {

using base::At;
using base::JsonValue;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

const std::vector<std::string> kGpt2On8 = {
    "--model", "gpt2", "--hardware", "rtx-3090-24gb", "--ranks-per-node", "4", "--nodes", "2",
    "--batch", "32",   "--context", "1024"};

double Number(const JsonValue& object, const char* key) { return std::stod(At(object, key).text); }

TEST(PlanParallel, Auto_ChoosesTheFastestOfItsTable) {
  const Outcome outcome = RunPlan(With(kGpt2On8, {"--parallel", "auto", "--json"}));
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  const JsonValue answer = base::MustParse(outcome.out);
  EXPECT_EQ(At(answer, "schema_version").text, "1");
  EXPECT_EQ(At(At(answer, "job"), "ranks").text, "8");
  const JsonValue chosen = At(answer, "chosen");
  ASSERT_FALSE(At(answer, "planned").items.empty());
  for (const JsonValue& planned : At(answer, "planned").items) {
    EXPECT_GE(Number(planned, "least_step_seconds"), 0);
    if (!At(planned, "fits").boolean) continue;
    EXPECT_LE(Number(chosen, "step_seconds"), Number(planned, "step_seconds"));
  }
  for (const JsonValue& constant : At(answer, "constants").items) {
    EXPECT_NE(At(constant, "source").text, "") << At(constant, "name").text;
  }
}

TEST(PlanParallel, Auto_ShowsWhatItChoseFromAndItsSources) {
  const Outcome outcome = RunPlan(With(kGpt2On8, {"--parallel", "auto", "--network", "2GB/s"}));
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Chosen: --parallel "), HasSubstr("MICRO-BATCHES"),
                                 HasSubstr("PARTNERS"), HasSubstr("Looked at: "),
                                 HasSubstr("does not train every mesh"), HasSubstr("NVIDIA/nccl"),
                                 HasSubstr("the maker's data sheet of rtx-3090-24gb")));
  EXPECT_THAT(outcome.out, testing::ContainsRegex("network-of-a-node +2GB/s +given"));
}

TEST(PlanParallel, OneMesh_IsPlannedAlone) {
  const Outcome outcome = RunPlan(
      With(kGpt2On8, {"--parallel", "pipeline=2,tensor=2d:size=4", "--accumulate", "8", "--json"}));
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  const JsonValue answer = base::MustParse(outcome.out);
  for (const JsonValue& planned : At(answer, "planned").items) {
    EXPECT_EQ(At(At(planned, "mesh"), "text").text, "pipeline=2,tensor=2d:size=4");
    EXPECT_EQ(At(planned, "micro_batches").text, "8");
  }
  EXPECT_THAT(RunPlan(With(kGpt2On8, {"--parallel", "tensor=1d:2"})).out,
              HasSubstr("Planned: --parallel tensor=1d:size=2,data=4, "));
}

TEST(PlanParallel, PipelinesInHalvesAndStagesOfZero_ArePlannedByName) {
  const std::vector<std::string> mesh = {"--parallel", "pipeline=zbv:4,data=2,zero=2", "--json"};
  const Outcome outcome = RunPlan(With(kGpt2On8, mesh));
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  const JsonValue chosen = At(base::MustParse(outcome.out), "chosen");
  EXPECT_EQ(At(At(chosen, "mesh"), "text").text, "pipeline=zbv:4,data=2,zero=2");
  EXPECT_EQ(At(At(chosen, "mesh"), "schedule").text, "zbv");
  EXPECT_EQ(At(At(chosen, "mesh"), "zero").text, "2");
  EXPECT_GT(Number(chosen, "bubble_share"), 0);
  EXPECT_THAT(RunPlan(With(kGpt2On8, {"--parallel", "pipeline=zbv:8"})).err,
              HasSubstr("16 in all, and the model has 12"));
}

TEST(PlanParallel, MeshThatCannotBe_IsRefusedWithTheNearest) {
  const auto refusal = [](const char* mesh) {
    const Outcome outcome = RunPlan(With(kGpt2On8, {"--parallel", mesh}));
    EXPECT_EQ(outcome.code, base::kExitUsage) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refusal("pipeline=3,data=2"),
              AllOf(HasSubstr("6 ranks and the cluster 8"), HasSubstr("the nearest that fit: ")));
  EXPECT_THAT(refusal("tensor=1d:8"), AllOf(HasSubstr("12 heads by 8"), HasSubstr("nearest")));
  EXPECT_THAT(refusal("tensor=2d:6"), HasSubstr("the nearest that do are 4 or 9"));
  EXPECT_THAT(refusal("sequence=ring:8,data=3"), HasSubstr("24 ranks and the cluster 8"));
  EXPECT_THAT(refusal("expert=2"), HasSubstr("pipeline, tensor, sequence and data can"));
}

TEST(PlanParallel, MeshWithoutRoom_ExitsWith7AndNamesTheNearestThatFits) {
  const std::vector<std::string> job = {
      "--model",          "llama-65b", "--hardware", "a100-80gb", "--nodes",    "4",
      "--ranks-per-node", "8",         "--batch",    "128",       "--context",  "2048",
      "--host-memory",    "64GiB"};
  const Outcome outcome = RunPlan(
      With(job, {"--parallel", "pipeline=4,data=8", "--accumulate", "1", "--activations", "keep"}));
  EXPECT_EQ(outcome.code, base::kExitResourceExhausted) << outcome.out;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("It does not fit"), HasSubstr("The nearest that fits: --parallel ")));
}

TEST(PlanParallel, FlagsThatWouldBePassedOver_AreRefused) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = RunPlan(arguments);
    EXPECT_EQ(outcome.code, base::kExitUsage) << outcome.out;
    return outcome.err;
  };
  EXPECT_THAT(refusal({"--model", "gpt2", "--device-memory", "8GiB", "--parallel", "auto"}),
              AllOf(HasSubstr("rates are unknown"), HasSubstr("--compute")));
  EXPECT_THAT(refusal(With(kGpt2On8, {"--ranks", "8"})), HasSubstr("--ranks-per-node"));
  EXPECT_THAT(refusal({"--model", "gpt2", "--hardware", "h200", "--accumulate", "2"}),
              HasSubstr("--parallel"));
  EXPECT_THAT(refusal({"--trace", "t.pb", "--parallel", "auto"}), HasSubstr("--trace"));
  EXPECT_THAT(
      refusal({"--model", "gpt2", "--hardware", "h200", "--ranks", "8192", "--parallel", "auto"}),
      HasSubstr("at most 4096"));
}

TEST(PlanParallel, ConfigFile_IsCutLikeANamedModel) {
  const Outcome outcome = RunPlan({"--config", GEMINID_FORECAST_DATA "/mixtral-8x7b-v0.1.json",
                                   "--hardware", "h100-80gb", "--nodes", "2", "--ranks-per-node",
                                   "8", "--sequence", "2048", "--parallel", "auto"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("Chosen: --parallel "), Not(HasSubstr("tensor=2d"))));
}

std::string Page(const char* name) {
  std::ifstream file(std::string(GEMINID_DOCS) + "/" + name);
  std::stringstream page;
  page << file.rdbuf();
  return page.str();
}

// The page names the command under each block.
TEST(PlanParallel, TableOfThePage_IsWhatTheCommandPrints) {
  const Outcome outcome =
      RunPlan({"--model", "gpt3-175b", "--hardware", "a100-80gb", "--batch", "4", "--sequence",
               "2048", "--host-memory", "0", "--parallel", "compare"});
  ASSERT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(Page("mesh-plans.md"), HasSubstr("```\n" + outcome.out + "```\n"));
}

TEST(PlanParallel, HeadlinesOfThePage_AreWhatTheCommandsPrint) {
  const Outcome llama = RunPlan({"--model", "llama-65b", "--hardware", "a100-80gb", "--nodes", "4",
                                 "--ranks-per-node", "8", "--batch", "128", "--context", "2048",
                                 "--parallel", "auto"});
  ASSERT_EQ(llama.code, base::kExitOk) << llama.err;
  EXPECT_THAT(Page("mesh-plans.md"), HasSubstr("```\n" + llama.out + "```\n"));
  const Outcome gpt3 = RunPlan({"--model", "gpt3-175b", "--hardware", "a100-80gb", "--nodes", "8",
                                "--ranks-per-node", "8", "--batch", "128", "--context", "2048",
                                "--parallel", "auto"});
  ASSERT_EQ(gpt3.code, base::kExitOk) << gpt3.err;
  const std::size_t begin = gpt3.out.find("Chosen: "), end = gpt3.out.find("geminid-train does");
  ASSERT_LT(begin, end);
  EXPECT_THAT(Page("mesh-plans.md"),
              HasSubstr("```\n" + gpt3.out.substr(begin, end - begin) + "```\n"));
}

TEST(PlanParallel, WeightsShardedWithinHosts_TakeLessOfASlowNetworkAndSomeHostMemory) {
  const auto planned = [](const std::string& mesh) {
    const Outcome outcome = RunPlan(
        With(kGpt2On8, {"--parallel", mesh, "--network", "1GB/s", "--accumulate", "4", "--json"}));
    EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
    return At(base::MustParse(outcome.out), "planned").items.front();
  };
  const JsonValue third = planned("data=8");
  const JsonValue within = planned("zero=3:host");
  EXPECT_EQ(At(At(within, "mesh"), "text").text, "data=8,zero=3:host");
  EXPECT_LT(Number(within, "sharing_seconds"), Number(third, "sharing_seconds"));
  EXPECT_GT(Number(within, "host_bytes_per_rank"), Number(third, "host_bytes_per_rank"));
  const Outcome one_node =
      RunPlan({"--model", "gpt2", "--hardware", "rtx-3090-24gb", "--ranks-per-node", "4", "--batch",
               "4", "--parallel", "zero=3:host"});
  EXPECT_EQ(one_node.code, base::kExitUsage);
  EXPECT_THAT(one_node.err, HasSubstr("all ranks are on one host; take zero=3"));
}

}  // namespace
}  // namespace geminid::ctl
