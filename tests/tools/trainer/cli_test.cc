// The whole program, where it ends before training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/trainer_process.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using testing::Not;

class Cli : public testing::Test {
 protected:
  std::vector<std::string> Arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--model", "gpt2-tiny", "--text", text_, "--steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  CommandResult Run(const std::vector<std::string>& more,
                    const std::vector<std::string>& environment = {}) const {
    return RunTrainer(Arguments(more), environment);
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", std::string(5000, 'x'));
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
  EXPECT_THAT(batch.err, HasSubstr("--batch 4: it cannot be divided among 3 ranks"));
}

TEST_F(Cli, GivenLimitsOfRanksThatCannotBe_SaysWhy) {
  const auto error = [&](const std::vector<std::string>& flags) {
    const CommandResult result = Run(flags);
    EXPECT_EQ(result.code, 2) << result.err;
    return result.err;
  };
  EXPECT_THAT(error({"--ranks", "2", "--min-ranks", "3"}),
              HasSubstr("--min-ranks is 3, and the run begins with 2; give at most that"));
  EXPECT_THAT(error({"--ranks", "2", "--max-ranks", "1"}),
              HasSubstr("--max-ranks is 1, and the run begins with 2; give at least that"));
  EXPECT_THAT(error({"--ranks", "4", "--min-ranks", "3"}),
              HasSubstr("no number of ranks from that to 3 is possible: --batch 4: it cannot be"));
  EXPECT_THAT(error({"--ranks", "2", "--parallel", "pipeline=2", "--min-ranks", "1"}),
              HasSubstr("no number of ranks from that to 1 is possible: --parallel"));
  EXPECT_THAT(
      error({"--max-ranks", "2", "--state-disk", folder_.path(), "--state-disk-endurance", "1TiB"}),
      HasSubstr("new ranks would count from 0; leave it out, or --max-ranks"));
}

TEST_F(Cli, OnATerminalThatIsDumb_WritesLinesAndNoEscapes) {
  TrainerProcess dumb(Arguments({}), 80, {"TERM=dumb"});
  EXPECT_EQ(dumb.Wait(), 0) << dumb.output();
  EXPECT_THAT(dumb.output(), HasSubstr("step 1/1"));
  EXPECT_THAT(dumb.output(), Not(HasSubstr("\x1b")));
  TrainerProcess other(Arguments({}), 80, {"TERM=xterm"});
  EXPECT_EQ(other.Wait(), 0) << other.output();
  EXPECT_THAT(other.output(), HasSubstr("\x1b[K"));
}

TEST_F(Cli, GivenAnUnknownFlag_NamesItAndTheNearest) {
  const CommandResult typo = Run({"--stepz", "3"});
  EXPECT_EQ(typo.code, 2);
  EXPECT_THAT(typo.err, HasSubstr("'--stepz' is not known; did you mean '--steps'?"));
  EXPECT_THAT(typo.err, Not(HasSubstr("3 --stepz")));
}

TEST_F(Cli, GivenMoreDeviceMemoryThanThereIs_ExitsWithSevenAndSizes) {
  for (const std::vector<std::string>& flags :
       std::vector<std::vector<std::string>>{{"--device-memory", "15TiB"},
                                             {"--device-memory", "20TiB"},
                                             {"--device-memory", "15TiB", "--ranks", "2"},
                                             {"--model", "llama-7b", "--batch", "64"}}) {
    const CommandResult result = Run(flags);
    EXPECT_EQ(result.code, 7) << result.err;
    EXPECT_THAT(result.err, HasSubstr("but this machine has "));
    EXPECT_THAT(result.err, HasSubstr("--device-memory a smaller size"));
    EXPECT_THAT(result.err, Not(testing::ContainsRegex("[0-9]{7}"))) << "raw bytes";
    EXPECT_THAT(result.err, Not(HasSubstr("daemon's configuration")));
    EXPECT_THAT(result.err, Not(HasSubstr("CreateArena")));
  }
}

TEST_F(Cli, InALimitedShell_NamesTheLimitAndHowToLiftIt) {
  const CommandResult space = RunTrainerUnder("ulimit -v 500000", Arguments({}));
  EXPECT_EQ(space.code, 7) << space.err;
  EXPECT_THAT(space.err, HasSubstr("ulimit -v unlimited"));
  EXPECT_THAT(space.err, Not(HasSubstr("assertion")));
  const CommandResult file = RunTrainerUnder("ulimit -f 10", Arguments({}));
  EXPECT_EQ(file.code, 7) << file.err;
  EXPECT_THAT(file.err, HasSubstr("the limit on the size of a file is 5.0 KiB"));
  EXPECT_THAT(file.err, HasSubstr("ulimit -f unlimited"));
  EXPECT_THAT(file.err, Not(HasSubstr("wrote nothing")));
}

TEST_F(Cli, WithTmpdir_PutsThePrivateDaemonThere) {
  const base::TemporaryFolder own;
  ASSERT_EQ(Run({}, {"XDG_RUNTIME_DIR=", "TMPDIR=" + own.path()}).code, 0);
  EXPECT_EQ(own.Entries(), 0);
  // The program ignores a path that is not a folder, or that is too long for a socket's name.
  EXPECT_EQ(Run({}, {"XDG_RUNTIME_DIR=", "TMPDIR=" + own.Write("file", "")}).code, 0);
  EXPECT_EQ(Run({}, {"XDG_RUNTIME_DIR=", "TMPDIR=/" + std::string(200, 'x')}).code, 0);
}

// All these errors have one form: the flag, the given value, what is wrong, what to do.
TEST_F(Cli, GivenAPathThatCannotBeUsed_BeginsWithItsFlag) {
  const std::string none = folder_ / "none";
  const auto error = [&](const std::string& flag, const std::string& path) {
    return Run({flag, path}).err;
  };
  using testing::StartsWith;
  EXPECT_THAT(error("--load", none),
              StartsWith("geminid-train: --load " + none + ": it does not exist; give the folder"));
  EXPECT_THAT(error("--load", text_),
              StartsWith("geminid-train: --load " + text_ + ": it is not a folder; give the folder"));
  EXPECT_THAT(error("--hosts", none), StartsWith("geminid-train: --hosts " + none + ": open failed"));
  EXPECT_THAT(error("--save", text_), StartsWith("geminid-train: --save " + text_ + ": it is --text"));
  EXPECT_THAT(error("--text", none), StartsWith("geminid-train: --text: the text '" + none + "'"));
  EXPECT_THAT(error("--socket", none), StartsWith("geminid-train: --socket " + none + ": no daemon"));
  EXPECT_THAT(error("--parallel", "x=2"), StartsWith("geminid-train: --parallel: there is no axis 'x'"));
  EXPECT_THAT(error("--device", "3"), StartsWith("geminid-train: --device 3: there is no device 3"));
}

TEST_F(Cli, GivenATextThatCannotBeUsed_NamesIt) {
  const CommandResult missing = RunTrainer({"--model", "gpt2-tiny", "--text", folder_ / "missing"});
  EXPECT_EQ(missing.code, 4);
  EXPECT_THAT(missing.err, HasSubstr("missing' does not exist"));
  const CommandResult tiny =
      RunTrainer({"--model", "gpt2-tiny", "--text", folder_.Write("short", "abc")});
  EXPECT_EQ(tiny.code, 2);
  EXPECT_THAT(tiny.err, HasSubstr("the data has 3 bytes, but one sequence takes 65"));
}

TEST_F(Cli, GivenAReportThatCannotBeWritten_SaysSoBeforeItTrains) {
  const CommandResult result = Run({"--report", folder_ / "no/report.json"});
  EXPECT_EQ(result.code, 4);
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
  EXPECT_THAT(result.err, HasSubstr("--ranks is 4, but this process is one of 2 ranks of another launcher"));
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
