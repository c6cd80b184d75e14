// The program as a whole, where it ends before it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

class Cli : public testing::Test {
 protected:
  CommandResult Run(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--model", "gpt2-tiny", "--text", text_, "--steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments);
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", std::string(1000, 'x'));
};

TEST_F(Cli, AskedForHelp_PrintsItAndSucceeds) {
  const CommandResult help = RunTrainer({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.out, HasSubstr("--device-memory"));
  EXPECT_EQ(help.err, "");
}

TEST_F(Cli, GivenWrongFlags_ExitsWithTwoAndSaysWhy) {
  const CommandResult unknown = Run({"--no-such-flag"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, testing::StartsWith("geminid-train: "));
  EXPECT_THAT(unknown.err, HasSubstr("--no-such-flag"));
  EXPECT_EQ(Run({"--device-memory", "-1"}).code, 2);
  const CommandResult heads = Run({"--heads", "5"});
  EXPECT_EQ(heads.code, 2);
  EXPECT_THAT(heads.err, HasSubstr("the number of heads (5) must divide the hidden size (64)"));
  const CommandResult batch = Run({"--ranks", "3"});
  EXPECT_EQ(batch.code, 2);
  EXPECT_THAT(batch.err, HasSubstr("a batch of 4 sequences cannot be divided among 3 ranks"));
}

TEST_F(Cli, GivenATextThatCannotBeUsed_NamesIt) {
  const CommandResult missing = RunTrainer({"--model", "gpt2-tiny", "--text", folder_ / "missing"});
  EXPECT_EQ(missing.code, 4);
  EXPECT_THAT(missing.err, HasSubstr("missing' does not exist"));
  const CommandResult tiny =
      RunTrainer({"--model", "gpt2-tiny", "--text", folder_.Write("short", "abc")});
  EXPECT_EQ(tiny.code, 2);
  EXPECT_THAT(tiny.err, HasSubstr("the text has 3 bytes, but one sequence takes 65"));
}

TEST_F(Cli, GivenAReportThatCannotBeWritten_SaysSoBeforeItTrains) {
  const CommandResult result = Run({"--report", folder_ / "no/report.json"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("cannot write the report"));
  EXPECT_THAT(result.err, HasSubstr("no/report.json"));
}

TEST_F(Cli, WithoutADaemonAtItsSocket_ExitsWithThree) {
  const CommandResult result = Run({"--socket", folder_ / "none.sock"});
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_THAT(result.err, HasSubstr("none.sock"));
}

TEST_F(Cli, UnderALauncherThatDisagrees_SaysSo) {
  const CommandResult result =
      RunTrainer({"--model", "gpt2-tiny", "--text", text_, "--ranks", "4"},
                 {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"});
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.err, HasSubstr("--ranks is 4, but the launcher's environment says 2 ranks"));
}

TEST_F(Cli, AsOneRankOfSeveralWithoutANamedDaemon_SaysWhatToDo) {
  const CommandResult result =
      RunTrainer({"--model", "gpt2-tiny", "--text", text_, "--host-memory", "1GiB"},
                 {"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"});
  EXPECT_EQ(result.code, 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("share one daemon"));
}

}  // namespace
}  // namespace geminid::trainer
