#include "tools/sim/run.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "base/exit_code.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/tools/sim/traces.h"
#include "tools/sim/command_line.h"
#include "tools/sim/inputs.h"

namespace geminid::sim {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Outcome {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Outcome RunSim(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int exit_code = RunGeminidSim(arguments, out, err);
  return {exit_code, out.str(), err.str()};
}

std::string TemporaryPath(const std::string& name) {
  return ::testing::TempDir() + "/sim_" + std::to_string(::getpid()) + "_" + name;
}

TEST(ParseFailure, RanksAndDaemons_HaveFormsOfTheirOwn) {
  const auto rank = ParseFailure(FailureKind::kRank, "3@1.5");
  ASSERT_TRUE(rank.ok()) << rank.status();
  EXPECT_EQ(rank->index, 3);
  EXPECT_EQ(rank->at_seconds, 1.5);
  const auto daemon = ParseFailure(FailureKind::kDaemon, "0@2+0.5");
  ASSERT_TRUE(daemon.ok()) << daemon.status();
  EXPECT_EQ(daemon->outage_seconds, 0.5);
  for (const char* text : {"", "3", "@1", "x@1", "3@x", "3@1+1", "-1@1"}) {
    EXPECT_FALSE(ParseFailure(FailureKind::kRank, text).ok()) << text;
  }
  EXPECT_FALSE(ParseFailure(FailureKind::kDaemon, "0@2").ok());
}

TEST(RunGeminidSim, Elastic_PrintsOneTableThatItsArgumentsDecide) {
  const std::vector<std::string> arguments = {"elastic", "--ranks", "100", "--runs", "200"};
  const Outcome table = RunSim(arguments);
  EXPECT_EQ(table.exit_code, base::kExitOk) << table.err;
  EXPECT_THAT(table.out, HasSubstr("         200  runs\n"));
  EXPECT_THAT(table.out, HasSubstr("         100  most ranks of a start\n"));
  EXPECT_THAT(table.out, HasSubstr("           0  committed steps that were lost\n"));
  EXPECT_EQ(RunSim(arguments).out, table.out);
  std::vector<std::string> other = arguments;
  other.insert(other.end(), {"--seed", "1000"});
  EXPECT_NE(RunSim(other).out, table.out);
}

TEST(RunGeminidSim, ElasticWithoutDeathsAndChanges_StartsOnceARunAndChangesNothing) {
  const Outcome quiet =
      RunSim({"elastic", "--runs", "50", "--changes", "0", "--deaths", "0", "--json"});
  EXPECT_EQ(quiet.exit_code, base::kExitOk) << quiet.err;
  for (const char* const pair : {"\"deaths\": 0", "\"ranks_joined\": 0", "\"requests_done\": 0",
                                 "\"gone_back\": 0", "\"shrunk\": 0"}) {
    EXPECT_THAT(quiet.out, HasSubstr(pair));
  }
}

TEST(RunGeminidSim, WrongArguments_ExitWithTwoAndNameTheFlag) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{}, "needs one of run, compare"},
      {{"run"}, "--trace, --random and --model"},
      {{"elastic", "--ranks", "1001"}, "--ranks"},
      {{"elastic", "--runs", "0"}, "--runs"},
      {{"elastic", "--changes", "1.5"}, "--changes"},
      {{"elastic", "--deaths", "0.3"}, "--deaths"},
      {{"run", "--random", "chain:1", "--trace", "x.pb"}, "--trace and --random"},
      {{"run", "--trace", "x", "--model", "gpt2", "--hardware", "h200"}, "--trace and --model"},
      {{"run", "--random", "chain:1", "--model", "gpt2", "--hardware", "h200"},
       "--random and --model"},
      {{"compare", "--random", "chain:1", "--traces", "3"}, "--traces and --random"},
      {{"run", "--model", "gpt2"}, "--hardware"},
      {{"run", "--random", "chain:1", "--hardware", "h200"}, "--hardware"},
      {{"run", "--random", "chain:1", "--ranks", "2"}, "--ranks"},
      {{"run", "--random", "chain:1", "--nodes", "2"}, "--nodes"},
      {{"run", "--random", "chain:1", "--batch", "2"}, "--batch"},
      {{"run", "--random", "chain:1", "--sequence", "2"}, "--context"},
      {{"run", "--random", "chain:1", "--title", "x"}, "--memory-picture"},
      {{"run", "--random", "chain:1", "--detect", "2"}, "--kill-rank"},
      {{"run", "--random", "chain:1", "--restart", "2"}, "--kill-rank"},
      {{"run", "--random", "circle:1"}, "chain"},
      {{"run", "--random", "chain:1", "--policy", "belady"}, "belady"},
      {{"run", "--random", "chain:1", "--steps", "-1"}, "--steps"},
      {{"run", "--random", "chain:1", "--set", "speed=1"}, "speed"},
      {{"run", "--random", "chain:1", "--set", "nodes=1.5"}, "nodes"},
      {{"run", "--random", "chain:1", "--optimizer-state", "disk"}, "--trace"},
      {{"run", "--trace", "x", "--optimizer-state", "moon"}, "--optimizer-state"},
      {{"run", "--random", "chain:1", "--kill-rank", "1@1"}, "no rank 1"},
      {{"run", "--model", "gpt2"}, "--hardware"},
      {{"run", "--trace", "/nonexistent/trace.pb"}, "trace.pb"},
      {{"run", "--random", "chain:1", "--copy-bandwidth", "1GB"}, "--copy-bandwidth"},
  };
  for (const auto& [arguments, words] : cases) {
    const Outcome outcome = RunSim(arguments);
    const int code = words == "trace.pb" ? base::kExitNotFound : base::kExitUsage;
    EXPECT_EQ(outcome.exit_code, code) << words << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(words));
  }
}

TEST(RunGeminidSim, Help_ExitsWithZero) {
  EXPECT_EQ(RunSim({"--help"}).exit_code, 0);
  EXPECT_THAT(RunSim({"run", "--help"}).out, HasSubstr("--memory-picture"));
  EXPECT_THAT(RunSim({"--version"}).out, StartsWith("geminid-sim "));
}

TEST(RunGeminidSim, WhatDoesNotFit_ExitsWithSeven) {
  EXPECT_EQ(RunSim({"run", "--random", "chain:1", "--device-memory", "4KiB"}).exit_code, 7);
  EXPECT_EQ(RunSim({"run", "--random", "chain:1", "--host-memory", "4KiB"}).exit_code, 7);
}

TEST(RunGeminidSim, RandomTrace_WritesTextJsonTimelineAndPicture) {
  const std::string timeline = TemporaryPath("timeline.json");
  const std::string picture = TemporaryPath("memory.svg");
  const Outcome text = RunSim({"run", "--random", "model:4", "--timeline", timeline,
                               "--memory-picture", picture, "--set", "ranks_per_node=2"});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("a step takes"));
  std::ostringstream read;
  read << std::ifstream(timeline).rdbuf();
  EXPECT_THAT(read.str(), HasSubstr("rank 1"));
  read.str("");
  read << std::ifstream(picture).rdbuf();
  EXPECT_THAT(read.str(), StartsWith("<svg"));
  std::remove(timeline.c_str());
  std::remove(picture.c_str());
  EXPECT_THAT(RunSim({"run", "--random", "model:4", "--json"}).out,
              HasSubstr("\"device_peak_bytes\""));
}

TEST(RunGeminidSim, TraceWithStateOnDisk_SaysWhatAStepReadsAndWrites) {
  forecast::RecordedTrace recorded;
  recorded.world_size = recorded.ranks_on_node = 1;
  recorded.trace = ChainTrace(4, 2 * kMiB, 1e-3);
  const std::string path = TemporaryPath("disk_trace.pb");
  const absl::Status saved = forecast::SaveTraceFile(path, forecast::ToMessage(recorded));
  ASSERT_TRUE(saved.ok()) << saved;
  const std::vector<std::string> without_rates = {"run", "--trace", path, "--optimizer-state",
                                                  "disk"};
  std::vector<std::string> with_rates = without_rates;
  for (const char* field : {"disk_read_bytes_per_second=1e8", "disk_write_bytes_per_second=1e8"}) {
    with_rates.insert(with_rates.end(), {"--set", field});
  }
  const Outcome refused = RunSim(without_rates), run = RunSim(with_rates);
  std::remove(path.c_str());
  EXPECT_EQ(refused.exit_code, base::kExitUsage);
  EXPECT_THAT(refused.err, HasSubstr("disk_read_bytes_per_second"));
  EXPECT_EQ(run.exit_code, base::kExitOk) << run.err;
  EXPECT_THAT(run.out, HasSubstr("reads 20.0 MiB from disk and writes 20.0 MiB"));
}

TEST(RunGeminidSim, Compare_ShowsEveryPolicy) {
  const Outcome outcome = RunSim({"compare", "--random", "chain:3"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const PolicySpec& policy : AllPolicies()) {
    EXPECT_THAT(outcome.out, HasSubstr(Name(policy)));
  }
  EXPECT_THAT(RunSim({"compare", "--traces", "3", "--json"}).out, HasSubstr("\"time_ratio\""));
}

TEST(RunGeminidSim, ModelOnHardware_IsPlannedAndSimulated) {
  const Outcome outcome =
      RunSim({"run", "--model", "gpt2", "--hardware", "rtx-3090-24gb", "--batch", "4", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"step_mean_seconds\""));
}

TEST(SetField, EveryField_ComesBackAsSet) {
  Machine machine;
  double value = 1;
  for (const MachineField& field : MachineFields()) {
    const absl::Status set = SetField(field.name, value, &machine);
    ASSERT_TRUE(set.ok()) << set;
    EXPECT_EQ(field.get(machine), value++) << field.name;
  }
}

TEST(SetField, WhatIsNoFieldOrNoNumberOfOne_IsRefusedByName) {
  Machine machine;
  EXPECT_THAT(std::string(SetField("wings", 2, &machine).message()), HasSubstr("wings"));
  EXPECT_THAT(std::string(SetField("nodes", -2, &machine).message()), HasSubstr("nodes"));
}

TEST(FromTraceFile, TraceWritten_ComesBack) {
  forecast::RecordedTrace recorded;
  recorded.world_size = recorded.ranks_on_node = 2;
  recorded.trace = ChainTrace(4, 2 * kMiB, 1e-3);
  const std::string path = TemporaryPath("trace.json");
  const absl::Status saved = forecast::SaveTraceFile(path, forecast::ToMessage(recorded));
  ASSERT_TRUE(saved.ok()) << saved;
  const absl::StatusOr<Input> read = FromTraceFile(path);
  std::remove(path.c_str());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(TraceHash(read->workload.trace), TraceHash(recorded.trace));
  EXPECT_EQ(read->machine.ranks_per_node, 2);
  EXPECT_EQ(read->machine.up_bytes_per_second, 1000 * kMiB);
}

}  // namespace
}  // namespace geminid::sim
