// geminictl plan and trace show, which need no daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "base/exit_code.h"
#include "tests/tools/geminictl/outcome.h"
#include "tools/geminictl/plan/plan_engine.h"

namespace geminid::ctl {
namespace {

using base::At;
using base::JsonValue;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class PlanFiles : public ::testing::Test {
 protected:
  PlanFiles() {
    std::string pattern = (std::filesystem::temp_directory_path() / "plan.XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~PlanFiles() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  std::string folder_;
};

// A run whose state does not fit on the device, with a plan that is made quickly.
const std::vector<std::string> kGpt2In1GiB = {
    "--model", "gpt2", "--hardware", "rtx-2060-6gb", "--device-memory", "1GiB"};

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Plan, ModelThatFits_SaysSoAndExitsWith0) {
  const Outcome outcome = RunPlan(With(kGpt2In1GiB, {"--host-memory", "4GiB"}));
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("It fits a host device of 1.0 GiB"),
                                 HasSubstr("not run on a GPU yet"), HasSubstr("0.124 billion"),
                                 HasSubstr("tokens/s"), HasSubstr("TIER"), HasSubstr("device"),
                                 HasSubstr("as little as"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(outcome.err, "");
}

// What fits where activations are computed again may not fit where they are kept or offloaded.
TEST(Plan, DeviceMemoryThatIsProposed_FitsTheActivationsThatWereAskedFor) {
  for (const char* activations : {"offload", "keep"}) {
    SCOPED_TRACE(activations);
    const std::vector<std::string> job = {"--model",   "gpt2-3m",        "--batch", "32",
                                          "--json",    "--host-memory",  "1GiB",    "--activations",
                                          activations, "--device-memory"};
    const Outcome small = RunPlan(With(job, {"6MiB"}));
    ASSERT_EQ(small.code, base::kExitResourceExhausted) << small.err;
    const JsonValue answer = Parse(small);
    const JsonValue& change = At(answer, "changes").items.at(0);
    ASSERT_EQ(At(change, "change").text, "device_bytes");
    EXPECT_EQ(RunPlan(With(job, {At(change, "to").text})).code, base::kExitOk);
  }
}

// One machine's link is faster than its processor's memory, and the other one's is slower.
TEST(Plan, WhereStreamingWouldPay_SaysByHowMuch) {
  const std::vector<std::string> job = {"--model", "opt-6.7b", "--host-memory",
                                        "400GiB",  "--batch",  "1"};
  EXPECT_THAT(RunPlan(With(job, {"--hardware", "gh200", "--device-memory", "57GiB"})).out,
              HasSubstr("With --optimizer-state streamed a step would be"));
  EXPECT_THAT(RunPlan(With(job, {"--hardware", "a100-80gb", "--device-memory", "57GiB"})).out,
              Not(HasSubstr("streamed a step")));
}

TEST(Plan, HalfTheHostMemory_DoesNotFitAndExitsWith7) {
  const Outcome outcome = RunPlan(With(kGpt2In1GiB, {"--host-memory", "512MiB"}));
  EXPECT_EQ(outcome.code, base::kExitResourceExhausted) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("It does not fit."), HasSubstr("host of a node lacks"),
                                 HasSubstr("--host-memory "), HasSubstr("more in each node"),
                                 HasSubstr("--device-memory "), Not(HasSubstr("--disk"))));
}

TEST(Plan, Activations_KeptTakeLessTimeAndOffloadedTakeHostMemory) {
  const std::vector<std::string> job = {"--model", "gpt2", "--hardware", "h200", "--batch", "8"};
  const auto value = [&](const std::vector<std::string>& more) {
    return Parse(RunPlan(With(With(job, more), {"--json"})));
  };
  const auto told = [&](const JsonValue& answer) {
    for (const JsonValue& part : At(At(answer, "engine"), "parts").items) {
      if (At(part, "part").text == "activations") return At(part, "today").text;
    }
    return std::string();
  };
  const JsonValue again = value({}), kept = value({"--activations", "keep"});
  const JsonValue offloaded = value({"--activations", "offload", "--device-memory", "4GiB"});
  EXPECT_EQ(told(again), "--activations recompute");
  EXPECT_EQ(told(value({"--activations", "recompute"})), "--activations recompute");
  EXPECT_EQ(told(kept), "--activations keep");
  EXPECT_EQ(told(offloaded), "--activations offload");
  const auto seconds = [&](const JsonValue& answer) {
    return std::stod(At(At(answer, "step"), "seconds").text);
  };
  EXPECT_LT(seconds(kept), seconds(again));
  const auto on_host = [&](const JsonValue& answer) {
    return std::stoull(At(At(At(answer, "tiers").items[1], "by_owner"), "activations").text);
  };
  EXPECT_GT(on_host(offloaded), 0u);
  EXPECT_EQ(on_host(kept), 0u);
}

// Today's engine does every part except the accelerator.
TEST(Plan, Engine_ExecutesWhatIsPlanned) {
  const auto executed = [](const Outcome& outcome) {
    std::map<std::string, bool> parts;
    const JsonValue value = Parse(outcome);
    for (const JsonValue& part : At(At(value, "engine"), "parts").items) {
      parts[At(part, "part").text] = At(part, "executed").boolean;
    }
    return parts;
  };
  const std::vector<std::string> job = With(kGpt2In1GiB, {"--host-memory", "4GiB", "--json"});
  EXPECT_EQ(
      executed(RunPlan(job)),
      (std::map<std::string, bool>{
          {"weights", true}, {"optimizer state", true}, {"activations", true}, {"device", false}}));
  const std::vector<std::string> on_disk = With(
      kGpt2In1GiB,
      {"--host-memory", "1GiB", "--disk", "8GiB", "--disk-read", "3GB/s", "--disk-write", "2GB/s"});
  EXPECT_THAT(RunPlan(on_disk).out, AllOf(HasSubstr("yes: --state-disk FOLDER"),
                                          HasSubstr("State takes"), HasSubstr("It fits")));
  EXPECT_THAT(RunPlan(With(kGpt2In1GiB, {"--host-memory", "1GiB"})).out, HasSubstr("does not fit"));
  EXPECT_THAT(RunPlan(kGpt2In1GiB).out, HasSubstr("yes: --optimizer-state auto"));
  const Outcome all = RunPlan({"--model", "gpt2", "--device-memory", "8GiB", "--host-memory", "0"});
  EXPECT_THAT(all.out, HasSubstr("yes: --optimizer-state device"));
}

TEST(Plan, BatchBeyondAnyDevice_IsAnsweredWithOneThatFits) {
  const Outcome outcome =
      RunPlan({"--model", "llama-7b", "--hardware", "a100-80gb", "--batch", "100000"});
  EXPECT_EQ(outcome.code, base::kExitResourceExhausted);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("100000 x 2048 tokens"), HasSubstr("TiB"),
                                 HasSubstr("it fits with --batch "), Not(HasSubstr("["))));
}

// Everywhere a device belongs to one rank and host memory to a node. Weights are listed separately.
TEST(Plan, Bytes_AreStatedOnceAndWithWhatTheyConsistOf) {
  const Outcome outcome = RunPlan({"--model", "gpt2", "--hardware", "a100-40gb", "--ranks", "4"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("Of the weights on the device"), HasSubstr("for the operators"),
                    Not(HasSubstr("at most")), Not(HasSubstr("B_PER_PARAMETER"))));
}

TEST(Plan, WithoutHostMemory_SaysHowMuchItTakes) {
  const Outcome outcome = RunPlan(kGpt2In1GiB);
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("as much host memory as it takes"), HasSubstr("as little as")));
}

TEST(Plan, Json_AddsUpByOwner) {
  const Outcome outcome = RunPlan(With(kGpt2In1GiB, {"--host-memory", "4GiB", "--json"}));
  EXPECT_EQ(outcome.code, base::kExitOk);
  const JsonValue value = Parse(outcome);
  EXPECT_TRUE(At(value, "fits").boolean);
  EXPECT_EQ(At(value, "parameters").text, "124439808");
  ASSERT_EQ(At(value, "tiers").items.size(), 3u);
  for (const JsonValue& tier : At(value, "tiers").items) {
    std::uint64_t sum = 0;
    for (const JsonValue::Member& owner : At(tier, "by_owner").members) {
      sum += std::stoull(owner.value.text);
    }
    EXPECT_EQ(sum, std::stoull(At(tier, "peak_bytes_per_rank").text));
  }
  const double seconds = std::stod(At(At(value, "step"), "seconds").text);
  EXPECT_NEAR(std::stod(At(At(value, "step"), "tokens_per_second").text), 1024 / seconds, 1e-6);
  EXPECT_GE(seconds * (1 + 1e-9), std::stod(At(At(value, "step"), "lower_bound_seconds").text));
}

TEST(Plan, FamilyByShapeAndBySize_IsPlanned) {
  EXPECT_THAT(RunPlan({"--model", "gpt2-like", "--layers", "12", "--hidden", "768", "--heads", "12",
                       "--hardware", "rtx-3090-24gb"})
                  .out,
              HasSubstr("gpt2-like-12x768: 0.124 billion"));
  EXPECT_THAT(
      RunPlan({"--model", "gpt2-like", "--parameters", "1.5e9", "--hardware", "a100-80gb"}).out,
      HasSubstr("It fits "));
}

TEST(Plan, Largest_FindsAMember) {
  const Outcome outcome = RunPlan({"--model", "gpt2-like", "--largest", "--hardware",
                                   "rtx-2060-6gb", "--host-memory", "24GiB"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("gpt2-like-"), HasSubstr("It fits ")));
}

TEST(Plan, WrongFlags_AreNamedAndExitWith2) {
  const auto error = [](const std::vector<std::string>& arguments) {
    const Outcome outcome = RunPlan(arguments);
    EXPECT_EQ(outcome.code, base::kExitUsage) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    return outcome.err;
  };
  EXPECT_THAT(error({}), HasSubstr("--model, --config and --trace"));
  EXPECT_THAT(error({"--model", "gpt9", "--hardware", "h200"}), HasSubstr("opt-125m"));
  EXPECT_THAT(error({"--model", "gpt2", "--hardware", "h300"}), HasSubstr("gh200"));
  EXPECT_THAT(error({"--model", "gpt2-like", "--hardware", "h200"}), HasSubstr("--parameters"));
  EXPECT_THAT(error({"--model", "gpt2", "--largest", "--hardware", "h200"}), HasSubstr("family"));
  for (const auto& [flag, value] :
       std::vector<std::pair<std::string, std::string>>{{"--ranks", "0"},
                                                        {"--ranks", "-1"},
                                                        {"--ranks", "1.5"},
                                                        {"--nodes", "2"},
                                                        {"--batch", "many"},
                                                        {"--sequence", "99999999999"},
                                                        {"--host-memory", "8 gigs"},
                                                        {"--device-memory", "10"},
                                                        {"--device-memory", "17TiB"},
                                                        {"--link-up", "26GB"},
                                                        {"--compute", "-3"},
                                                        {"--achieved", "1.5"},
                                                        {"--cpu-update-share", "nan"},
                                                        {"--optimizer", "magic"},
                                                        {"--optimizer", "sgd-momentum"},
                                                        {"--state-dtype", "fp16"},
                                                        {"--link-latency", "10"},
                                                        {"--sequence", "2048"},
                                                        {"--activations", "maybe"},
                                                        {"--config", "also"}}) {
    error({"--model", "gpt2", "--hardware", "h200", flag, value});
  }
  EXPECT_THAT(error({"--model", "gpt2", "--hardware", "h200", "--link-up", "26GB"}),
              HasSubstr("--link-up"));
}

// One of the two flags would be ignored, so the error names both.
TEST(Plan, FlagsThatDoNotGoTogether_AreRefused) {
  struct Case {
    std::vector<std::string> arguments;
    const char *one, *other;
  };
  const std::vector<Case> cases = {
      {{"--model", "gpt2", "--config", "x"}, "--model", "--config"},
      {{"--model", "gpt2", "--trace", "x"}, "--model", "--trace"},
      {{"--config", "x", "--trace", "x"}, "--config", "--trace"},
      {{"--config", "x", "--parameters", "1e9"}, "--config", "--parameters"},
      {{"--config", "x", "--layers", "4"}, "--config", "--layers"},
      {{"--config", "x", "--hidden", "64"}, "--config", "--hidden"},
      {{"--config", "x", "--heads", "4"}, "--config", "--heads"},
      {{"--config", "x", "--largest"}, "--config", "--largest"},
      {{"--trace", "x", "--parameters", "1e9"}, "--trace", "--parameters"},
      {{"--trace", "x", "--layers", "4"}, "--trace", "--layers"},
      {{"--trace", "x", "--hidden", "64"}, "--trace", "--hidden"},
      {{"--trace", "x", "--heads", "4"}, "--trace", "--heads"},
      {{"--trace", "x", "--largest"}, "--trace", "--largest"},
      {{"--trace", "x", "--ranks", "2"}, "--trace", "--ranks"},
      {{"--trace", "x", "--nodes", "2"}, "--trace", "--nodes"},
      {{"--trace", "x", "--batch", "2"}, "--trace", "--batch"},
      {{"--trace", "x", "--context", "2"}, "--trace", "--context"},
      {{"--trace", "x", "--activations", "recompute"}, "--trace", "--activations"},
      {{"--trace", "x", "--compute", "1e12"}, "--trace", "--compute"},
      {{"--trace", "x", "--achieved", "0.5"}, "--trace", "--achieved"},
      {{"--trace", "x", "--save-trace", "y"}, "--trace", "--save-trace"},
      {{"--model", "llama-7b", "--parameters", "3e9"}, "--parameters", "llama-7b"},
      {{"--model", "llama-7b", "--layers", "4"}, "--layers", "llama-7b"},
      {{"--model", "llama-7b", "--hidden", "64"}, "--hidden", "llama-7b"},
      {{"--model", "llama-7b", "--heads", "4"}, "--heads", "llama-7b"},
      {{"--model", "llama-7b", "--largest"}, "--largest", "family"},
      {{"--model", "llama-like", "--parameters", "3e9", "--layers", "4"},
       "--parameters",
       "--layers"},
      {{"--model", "llama-like", "--parameters", "3e9", "--hidden", "4"},
       "--parameters",
       "--hidden"},
      {{"--model", "llama-like", "--parameters", "3e9", "--heads", "4"}, "--parameters", "--heads"},
      {{"--model", "llama-like", "--parameters", "3e9", "--largest"}, "--parameters", "--largest"},
      {{"--model", "llama-like", "--largest", "--layers", "4"}, "--largest", "--layers"},
      {{"--model", "llama-like", "--largest", "--hidden", "4"}, "--largest", "--hidden"},
      {{"--model", "llama-like", "--largest", "--heads", "4"}, "--largest", "--heads"},
      {{"--model", "gpt2", "--disk", "1TB"}, "--disk", "--disk-read"},
      {{"--model", "gpt2", "--disk-read", "1GB/s"}, "--disk-read", "--disk"},
      {{"--model", "gpt2", "--disk-write", "1GB/s"}, "--disk-write", "--disk"},
      {{"--model", "gpt2", "--disk-endurance", "1TB"}, "--disk-endurance", "--disk"},
      {{"--trace", "x", "--disk", "1TB"}, "--trace", "--disk"},
      {{"--model", "gpt2", "--activations", "planned"}, "--activations", "offload"},
      {{"--model", "gpt2", "--activations", "offload", "--parallel", "auto"},
       "--activations",
       "meshes"},
      {{"--model", "gpt2", "--activations", "offload", "--save-trace", "x"},
       "--activations",
       "--save-trace"},
      {{"--model", "gpt2", "--momentum"}, "momentum", "adamw"},
      {{"--list-models", "--list-hardware"}, "--list-models", "--list-hardware"},
      {{"--list-models", "--model", "gpt2"}, "--list-models", "--model"},
      {{"--list-hardware", "--ranks", "2"}, "--list-hardware", "--ranks"},
  };
  for (const Case& one : cases) {
    const bool list = one.arguments.front().starts_with("--list");
    const std::vector<std::string> more =
        list ? std::vector<std::string>{} : std::vector<std::string>{"--hardware", "h200"};
    const Outcome outcome = RunPlan(With(one.arguments, more));
    EXPECT_EQ(outcome.code, base::kExitUsage) << one.one << " " << one.other;
    EXPECT_EQ(outcome.out, "") << one.one << " " << one.other;
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(one.one), HasSubstr(one.other)));
  }
}

TEST(Plan, Lists_HoldEveryNameInBothForms) {
  const Outcome models = RunPlan({"--list-models"});
  EXPECT_EQ(models.code, base::kExitOk);
  EXPECT_THAT(models.out, AllOf(HasSubstr("65285660672"), HasSubstr("gpt2-like")));
  EXPECT_GE(At(Parse(RunPlan({"--list-models", "--json"})), "models").items.size(), 21u);
  EXPECT_THAT(RunPlan({"--list-hardware"}).out, AllOf(HasSubstr("gh200"), HasSubstr("420GB/s")));
  EXPECT_EQ(At(Parse(RunPlan({"--list-hardware", "--json"})), "hardware").items.size(), 8u);
}

TEST_F(PlanFiles, HuggingFaceConfig_IsPlannedAndItsErrorsNameTheFile) {
  std::ofstream(Path("config.json"))
      << R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12})";
  EXPECT_THAT(RunPlan({"--config", Path("config.json"), "--hardware", "h200"}).out,
              HasSubstr("0.124 billion"));
  // A configuration is usually a folder.
  EXPECT_THAT(RunPlan({"--config", folder_, "--hardware", "h200"}).out, HasSubstr("0.124 billion"));
  std::ofstream(Path("bad.json")) << R"({"model_type": "gpt2", "n_embd": 768, "n_head": 12})";
  const Outcome bad = RunPlan({"--config", Path("bad.json"), "--hardware", "h200"});
  EXPECT_EQ(bad.code, base::kExitUsage);
  EXPECT_THAT(bad.err, AllOf(HasSubstr("bad.json"), HasSubstr("'n_layer'")));
}

// Each of these gets a message and an exit code at once.
TEST_F(PlanFiles, WhatIsNoConfiguration_IsRefusedWithItsName) {
  std::ofstream(Path("empty.json")).flush();
  std::ofstream(Path("zeros.json")) << "x";
  std::filesystem::resize_file(Path("zeros.json"), std::uint64_t{1} << 30);
  std::ofstream(Path("few_zeros.json")) << std::string(1000, '\0');
  ASSERT_EQ(::mkfifo(Path("fifo.json").c_str(), 0600), 0);
  std::filesystem::create_directory(Path("folder.json"));
  std::string deep(100'000, '[');
  std::ofstream(Path("deep.json")) << deep;
  for (const char* name : {"empty.json", "zeros.json", "few_zeros.json", "fifo.json", "folder.json",
                           "deep.json", "none.json"}) {
    for (const char* flag : {"--config", "--trace"}) {
      const Outcome outcome = RunPlan({flag, Path(name), "--hardware", "h200"});
      EXPECT_NE(outcome.code, base::kExitOk) << flag << " " << name;
      EXPECT_EQ(outcome.out, "");
      EXPECT_THAT(outcome.err, HasSubstr(name)) << flag;
    }
  }
  EXPECT_NE(
      RunPlan({"--model", "gpt2", "--hardware", "h200", "--save-trace", Path("no/x.pb")}).code,
      base::kExitOk);
  EXPECT_NE(RunPlan({"--model", "gpt2", "--hardware", "h200", "--save-trace", folder_}).code,
            base::kExitOk);
}

// Published configurations, such as those of Mixtral and T5, are planned, and the answer has their
// kind.
TEST_F(PlanFiles, PublishedConfigOfEveryFamily_IsPlanned) {
  for (const char* name : {"bert-base-uncased", "t5-base", "vit-base-patch16-224"}) {
    const Outcome outcome =
        RunPlan({"--config", std::string(GEMINID_FORECAST_DATA "/") + name + ".json", "--hardware",
                 "h200", "--host-memory", "64GiB"});
    EXPECT_EQ(outcome.code, base::kExitOk) << name << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("It fits ")) << name;
  }
}

TEST_F(PlanFiles, MeasuredLink_IsUsedAndFlagsComeFirst) {
  const std::string file = Path("gpt2.pb");
  ASSERT_EQ(RunPlan({"--model", "gpt2", "--hardware", "rtx-2060-6gb", "--host-memory", "32GiB",
                     "--device-memory", "2GiB", "--link-both", "20GB/s", "--link-latency", "40us",
                     "--uplink", "9GB/s", "--save-trace", file})
                .code,
            base::kExitOk);
  const auto hardware = [&](const std::vector<std::string>& more) {
    const Outcome outcome = RunPlan(
        With({"--trace", file, "--hardware", "h200", "--host-memory", "32GiB", "--json"}, more));
    EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
    return At(At(Parse(outcome), "job"), "hardware");
  };
  const JsonValue measured = hardware({});
  EXPECT_EQ(std::stod(At(measured, "up_bytes_per_second").text), 12.5e9);
  EXPECT_EQ(std::stod(At(measured, "both_bytes_per_second").text), 20e9);
  EXPECT_EQ(std::stod(At(measured, "copy_latency_seconds").text), 40e-6);
  EXPECT_EQ(std::stod(At(measured, "node_link_bytes_per_second").text), 9e9);
  const JsonValue said = hardware({"--link-latency", "5us", "--uplink", "11GB/s"});
  EXPECT_EQ(std::stod(At(said, "copy_latency_seconds").text), 5e-6);
  EXPECT_EQ(std::stod(At(said, "node_link_bytes_per_second").text), 11e9);
  EXPECT_EQ(std::stod(At(said, "up_bytes_per_second").text), 12.5e9);
  const Outcome text = RunPlan({"--trace", file, "--hardware", "h200", "--link-latency", "5us"});
  EXPECT_THAT(text.out, AllOf(HasSubstr("The link is the one that was measured"),
                              HasSubstr("40 us a copy"), HasSubstr("but for --link-latency.")));
  // A step with a slower link is slower.
  const auto seconds = [&](const std::vector<std::string>& more) {
    const Outcome outcome = RunPlan(With({"--trace", file, "--hardware", "h200", "--host-memory",
                                          "32GiB", "--device-memory", "1GiB", "--json"},
                                         more));
    return std::stod(At(At(Parse(outcome), "step"), "seconds").text);
  };
  EXPECT_GT(seconds({}),
            seconds({"--link-latency", "1us", "--uplink", "100GB/s", "--link-both", "100GB/s"}));
  // The trace has recorded the optimizer, so no flag may change it.
  const Outcome optimizer = RunPlan({"--trace", file, "--hardware", "h200", "--optimizer", "lion"});
  EXPECT_EQ(optimizer.code, base::kExitUsage);
  EXPECT_THAT(optimizer.err, AllOf(HasSubstr("--optimizer"), HasSubstr("--trace")));
}

TEST(Plan, StateInBFloat16_TakesTwoThirdsOfTheMemory) {
  const auto plan = [](const std::vector<std::string>& more) {
    return RunPlan(With({"--model", "gpt2", "--hardware", "h200", "--host-memory", "64GiB"}, more));
  };
  EXPECT_THAT(plan({"--state-dtype", "bf16"}).out, HasSubstr("adamw with bf16 state"));
  const auto job = [&](const std::vector<std::string>& more) {
    return At(At(Parse(plan(With({"--json"}, more))), "job"), "state_dtype").text;
  };
  EXPECT_EQ(job({}), "fp32");
  EXPECT_EQ(job({"--state-dtype", "bf16"}), "bf16");
  const Outcome without = plan({"--state-dtype", "bf16", "--optimizer", "sgd"});
  EXPECT_EQ(without.code, base::kExitUsage);
  EXPECT_THAT(without.err, AllOf(HasSubstr("--state-dtype"), HasSubstr("keeps no state")));
}

TEST(Plan, HeadsThatNobodyChose_DivideAndAreSaid) {
  const Outcome outcome =
      RunPlan({"--model", "gpt2-like", "--layers", "2", "--hidden", "200", "--hardware", "h200"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("Attention has 2 heads of 100 columns; --heads chooses."));
  const Outcome wrong = RunPlan({"--model", "gpt2-like", "--layers", "2", "--hidden", "200",
                                 "--heads", "3", "--hardware", "h200"});
  EXPECT_EQ(wrong.code, base::kExitUsage);
  EXPECT_THAT(wrong.err, HasSubstr("heads (3) must divide"));
}

TEST(Plan, LongestSequenceOfAModel_IsALimitAndNotAChoice) {
  const std::string llama = GEMINID_FORECAST_DATA "/llama-3.1-8b.json";
  const auto sequence = [&](const std::vector<std::string>& more) {
    return At(At(Parse(RunPlan(With({"--config", llama, "--hardware", "h200", "--json"}, more))),
                 "job"),
              "sequence_length")
        .text;
  };
  EXPECT_EQ(sequence({}), "4096");
  EXPECT_EQ(sequence({"--sequence", "16384"}), "16384");
  EXPECT_THAT(RunPlan({"--config", llama, "--hardware", "h200"}).out,
              HasSubstr("Sequences have 4096 tokens; the model takes up to 131072, and --context "
                        "chooses."));
}

TEST(Plan, MemoryAloneWithoutHardware_AnswersWhetherItFitsAndNoTime) {
  const Outcome outcome =
      RunPlan({"--model", "gpt2", "--device-memory", "1GiB", "--host-memory", "32GiB"});
  EXPECT_EQ(outcome.code, base::kExitOk) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("It fits a host device"), HasSubstr("rates are unknown"),
                    HasSubstr("--compute"), Not(HasSubstr("tokens/s")), HasSubstr("as little as")));
  const JsonValue json = Parse(
      RunPlan({"--model", "gpt2", "--device-memory", "1GiB", "--host-memory", "256MiB", "--json"}));
  EXPECT_FALSE(At(json, "fits").boolean);
  EXPECT_EQ(At(json, "step").type, JsonValue::Type::kNull);
  EXPECT_FALSE(At(json, "missing_rates").items.empty());
  const JsonValue& hardware = At(At(json, "job"), "hardware");
  EXPECT_EQ(At(hardware, "operations_per_second").type, JsonValue::Type::kNull);
}

// 14 bytes for each of 65 billion parameters are more than 24 and 256 GiB.
TEST(Plan, Llama65bIn24And256GiB_IsAnsweredWithNo) {
  const Outcome outcome =
      RunPlan({"--model", "llama-65b", "--device-memory", "24GiB", "--host-memory", "256GiB"});
  EXPECT_EQ(outcome.code, base::kExitResourceExhausted) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("It does not fit. The host of a node lacks"));
}

// A saved trace of a model asks the same question as the model.
TEST_F(PlanFiles, SavedTrace_GivesTheSameAnswer) {
  const std::string file = Path("gpt2.pb");
  const Outcome model =
      RunPlan(With(kGpt2In1GiB, {"--host-memory", "4GiB", "--json", "--save-trace", file}));
  ASSERT_EQ(model.code, base::kExitOk) << model.err;
  const Outcome trace =
      RunPlan({"--trace", file, "--hardware", "rtx-2060-6gb", "--host-memory", "4GiB", "--json"});
  ASSERT_EQ(trace.code, base::kExitOk) << trace.err;
  EXPECT_EQ(At(At(Parse(trace), "step"), "seconds").text,
            At(At(Parse(model), "step"), "seconds").text);
  EXPECT_EQ(RunPlan({"--trace", file, "--hardware", "h200", "--ranks", "2"}).code,
            base::kExitUsage);
  // This is less memory than the trace was recorded with.
  EXPECT_EQ(
      RunPlan({"--trace", file, "--hardware", "rtx-2060-6gb", "--host-memory", "256MiB"}).code,
      base::kExitResourceExhausted);
}

std::map<std::string, EnginePart> PartsOf(const forecast::Forecast& forecast) {
  std::map<std::string, EnginePart> parts;
  for (const EnginePart& part : EngineParts(forecast, {})) parts.emplace(part.part, part);
  return parts;
}

TEST(EngineParts, OfAForecast_SayHowToAskTheTrainerForThem) {
  forecast::Forecast forecast;
  EXPECT_EQ(PartsOf(forecast).at("optimizer state").today, "--optimizer-state auto");
  EXPECT_EQ(PartsOf(forecast).at("activations").planned, "as recorded");
  forecast.state_mode = forecast::StateMode::kDevice;
  EXPECT_EQ(PartsOf(forecast).at("optimizer state").today, "--optimizer-state device");
  forecast.problem.activations.resize(4);
  forecast.plan.decisions.activations.resize(4, planner::ActivationPlace::kOffload);
  forecast.plan.decisions.activation_places = 3;
  const EnginePart offloaded = PartsOf(forecast).at("activations");
  EXPECT_EQ(offloaded.today, "--activations offload");
  EXPECT_THAT(offloaded.planned, HasSubstr("but the last 3 of 4"));
}

TEST_F(PlanFiles, TraceShow_SumsUpAndRefusesGarbage) {
  const std::string file = Path("gpt2.json");
  ASSERT_EQ(RunPlan(With(kGpt2In1GiB, {"--save-trace", file})).code, base::kExitOk);
  const Outcome shown = RunWith({"trace", "show", file});
  EXPECT_EQ(shown.code, base::kExitOk) << shown.err;
  EXPECT_THAT(shown.out, AllOf(HasSubstr("gpt2, 1 x 1024 tokens"), HasSubstr("moments"),
                               HasSubstr("51"), HasSubstr("recorded")));
  EXPECT_EQ(
      At(At(Parse(RunWith({"trace", "show", file, "--json"})), "trace"), "moments").items.size(),
      51u);
  std::ofstream(Path("bad.json")) << "{}";
  const Outcome bad = RunWith({"trace", "show", Path("bad.json")});
  EXPECT_EQ(bad.code, base::kExitUsage);
  EXPECT_THAT(bad.err, AllOf(HasSubstr("bad.json"), HasSubstr("format_version")));
  EXPECT_EQ(RunWith({"trace", "show", Path("none.json")}).code, base::kExitNotFound);
}

}  // namespace
}  // namespace geminid::ctl
