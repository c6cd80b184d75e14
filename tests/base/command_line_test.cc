#include "base/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace geminid::base {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The error of a program with subcommands, one of them in a group.
std::string Problem(std::vector<std::string> arguments) {
  CLI::App app("", "tool");
  std::string steps;
  app.require_subcommand(1);
  app.add_option("--steps", steps);
  CLI::App* const list = app.add_subcommand("ls");
  list->require_subcommand(1)->fallthrough();
  CLI::App* const chunks = list->add_subcommand("chunks")->fallthrough();
  std::string limit;
  chunks->add_option("--limit", limit);
  list->add_subcommand("pools");
  std::string name;
  app.add_subcommand("explain")->add_option("chunk", name)->required();
  std::reverse(arguments.begin(), arguments.end());
  RefuseEmptyValues(&app);
  try {
    app.parse(arguments);
  } catch (const CLI::Error& error) {
    return DescribeParseError(app, error);
  }
  return "";
}

TEST(DescribeParseError, UnknownFlag_IsNamedBeforeWhatFollowsIt) {
  EXPECT_THAT(Problem({"--stepz", "3", "explain", "1"}),
              HasSubstr("'--stepz' is not known; did you mean '--steps'?"));
  EXPECT_THAT(Problem({"--stepz=3", "explain", "1"}), HasSubstr("'--stepz' is not known"));
  EXPECT_THAT(Problem({"ls", "chunks", "--limt", "3"}), HasSubstr("did you mean '--limit'?"));
  EXPECT_THAT(Problem({"ls", "chunks", "--stes", "3"}), HasSubstr("did you mean '--steps'?"));
  EXPECT_THAT(Problem({"ls", "chunks", "--zzzzzzzzz"}),
              HasSubstr("not known; 'tool ls chunks --help' lists"));
}

// After a subcommand that does not pass on unknown flags.
TEST(DescribeParseError, FlagOfTheProgramAlone_IsSaidToBeThat) {
  const std::string problem = Problem({"explain", "1", "--steps", "3"});
  EXPECT_THAT(problem, HasSubstr("'--steps' is not known; it is a flag of 'tool' alone;"));
  EXPECT_THAT(problem, Not(HasSubstr("did you mean")));
}

TEST(HasUnknownWords, BesideHelp_AreSeen) {
  for (const bool knows : {true, false}) {
    CLI::App app("", "tool");
    app.add_subcommand("ls");
    std::vector<std::string> arguments = {"--help", knows ? "ls" : "nosuch"};  // the last first
    EXPECT_THROW(app.parse(arguments), CLI::CallForHelp);
    EXPECT_EQ(HasUnknownWords(app), !knows);
  }
}

TEST(DescribeParseError, UnknownSubcommand_IsNamed) {
  EXPECT_THAT(Problem({"explan"}), HasSubstr("'explan' is not known; did you mean 'explain'?"));
  EXPECT_THAT(Problem({"ls", "chunk"}), HasSubstr("did you mean 'chunks'?"));
}

// A flag after it that only the subcommand has is unknown because of it.
TEST(DescribeParseError, UnknownSubcommandBeforeFlags_IsNamed) {
  EXPECT_THAT(Problem({"explan", "--nosuch", "1"}),
              HasSubstr("'explan' is not known; did you mean 'explain'?"));
  EXPECT_THAT(Problem({"--nosuch", "explan"}), HasSubstr("'--nosuch' is not known"));
}

TEST(DescribeParseError, MissingSubcommand_NamesThoseThereAre) {
  EXPECT_THAT(Problem({"ls"}), HasSubstr("'tool ls' needs one of chunks, pools;"));
  EXPECT_THAT(Problem({}), HasSubstr("'tool' needs one of ls, explain;"));
}

TEST(RefuseEmptyValues, EmptyValue_IsRefusedByName) {
  EXPECT_THAT(Problem({"--steps", "", "explain", "1"}), HasSubstr("--steps: is empty; give"));
  EXPECT_THAT(Problem({"explain", "1", "--steps="}), HasSubstr("--steps"));
  EXPECT_THAT(Problem({"--steps="}), HasSubstr("--steps: has no value; give one"));
  EXPECT_THAT(Problem({"--steps", ""}), HasSubstr("--steps: is empty; give"));
  EXPECT_THAT(Problem({"--steps"}), HasSubstr("--steps: has no value; give one"));
  EXPECT_THAT(Problem({"ls", "chunks", "--limit", ""}), HasSubstr("--limit: is empty; give"));
  EXPECT_THAT(Problem({"explain", ""}), HasSubstr("chunk: is empty; give"));
  EXPECT_EQ(Problem({"--steps", "1", "ls", "chunks", "--limit", "2"}), "");
}

TEST(DescribeParseError, OtherErrors_KeepTheirWords) {
  EXPECT_THAT(Problem({"explain"}), HasSubstr("chunk"));
  EXPECT_THAT(Problem({"explain"}), Not(HasSubstr("needs one of")));
  EXPECT_EQ(Problem({"explain", "1"}), "");
}

}  // namespace
}  // namespace geminid::base
