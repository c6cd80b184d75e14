#include "tools/geminictl/program/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace geminid::ctl {
namespace {

using ::testing::HasSubstr;

TEST(ParseCommandLine, EverySubcommand_IsKnown) {
  const std::vector<std::pair<std::vector<std::string>, Subcommand>> lines = {
      {{"status"}, Subcommand::kStatus},
      {{"top"}, Subcommand::kTop},
      {{"ls", "sessions"}, Subcommand::kListSessions},
      {{"ls", "chunks"}, Subcommand::kListChunks},
      {{"ls", "pools"}, Subcommand::kListPools},
      {{"scale", "demo", "4"}, Subcommand::kScale},
      {{"explain", "1"}, Subcommand::kExplain},
      {{"doctor"}, Subcommand::kDoctor},
      {{"config", "show"}, Subcommand::kConfigShow},
      {{"trace", "export", "--svg", "x"}, Subcommand::kTraceExport},
      {{"wait", "daemon"}, Subcommand::kWaitDaemon},
      {{"wait", "job", "demo", "--for", "gone"}, Subcommand::kWaitJob},
      {{"bundle"}, Subcommand::kBundle},
      {{"schema"}, Subcommand::kSchema},
      {{"version"}, Subcommand::kVersion},
  };
  for (const auto& [arguments, subcommand] : lines) {
    const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_EQ(line->subcommand, subcommand) << arguments[0];
  }
}

TEST(ParseCommandLine, CommonFlags_MayFollowTheSubcommand) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--json", "--socket", "/s", "--timeout", "0.5", "ls", "chunks"},
        std::vector<std::string>{"ls", "chunks", "--json", "--socket", "/s", "--timeout", "0.5"}}) {
    const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
    ASSERT_TRUE(line.ok()) << line.status();
    EXPECT_TRUE(line->json);
    EXPECT_EQ(line->socket, "/s");
    EXPECT_EQ(line->timeout, absl::Milliseconds(500));
  }
}

TEST(ParseCommandLine, Options_ReachTheirSubcommand) {
  const absl::StatusOr<CommandLine> chunks =
      ParseCommandLine({"ls", "chunks", "--session", "7", "--limit", "5"});
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  EXPECT_EQ(chunks->chunks.session, 7u);
  EXPECT_EQ(chunks->chunks.limit, 5u);
  const absl::StatusOr<CommandLine> top =
      ParseCommandLine({"top", "--once", "--ascii", "--interval", "0.5", "--sort", "bytes"});
  ASSERT_TRUE(top.ok()) << top.status();
  EXPECT_TRUE(top->top.once);
  EXPECT_TRUE(top->top.ascii);
  EXPECT_EQ(top->top.interval, absl::Milliseconds(500));
  EXPECT_EQ(top->top.order, TopOrder::kBytes);
  EXPECT_TRUE(ParseCommandLine({"config", "show", "--origin"})->origin);
  const absl::StatusOr<CommandLine> scale =
      ParseCommandLine({"scale", "demo", "4", "--tenant", "uid:7", "--at-most", "5"});
  ASSERT_TRUE(scale.ok()) << scale.status();
  EXPECT_EQ(scale->jobs.job, "demo");
  EXPECT_EQ(scale->jobs.tenant, "uid:7");
  EXPECT_EQ(scale->jobs.ranks, 4u);
  EXPECT_EQ(scale->jobs.wait_at_most, absl::Seconds(5));
  const absl::StatusOr<CommandLine> chooses = ParseCommandLine({"scale", "demo", "auto"});
  ASSERT_TRUE(chooses.ok()) << chooses.status();
  EXPECT_EQ(chooses->jobs.ranks, 0u);
}

TEST(ParseCommandLine, Mistakes_AreRefused) {
  for (const std::vector<std::string>& arguments : {
           std::vector<std::string>{},
           {"nonsense"},
           {"ls"},
           {"config"},
           {"explain"},
           {"status", "extra"},
           {"status", "--nonsense"},
           {"ls", "chunks", "--limit", "0"},
           {"ls", "chunks", "--limit", "16777217"},
           {"ls", "chunks", "--limit", "-1"},
           {"ls", "chunks", "--session", "0"},
           {"top", "--interval", "0"},
           {"top", "--interval", "nan"},
           {"top", "--sort", "name"},
           {"status", "--timeout", "soon"},
           {"trace", "export", "3"},
           {"trace", "export", "3", "--file", "t.pb", "--svg", "x"},
           {"wait"},
           {"wait", "job", "demo"},
           {"wait", "job", "demo", "--for", "done"},
           {"wait", "daemon", "--at-most", "never"},
           {"scale", "demo"},
           {"scale", "demo", "0"},
           {"scale", "demo", "-1"},
           {"scale", "demo", "automatic"},
           {"scale", "demo", "65537"},
           {"scale", "demo", "2", "--at-most", "never"},
           {"status", "--times", "3"},
           {"top", "--watch", "1"},
           {"end", "demo", "--watch", "1"},
           {"status", "--watch", "0"},
       }) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseCommandLine(arguments).status()))
        << ::testing::PrintToString(arguments);
  }
}

TEST(ParseCommandLine, Help_IsText) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine({"--help"});
  ASSERT_TRUE(line.ok());
  EXPECT_FALSE(line->subcommand.has_value());
  EXPECT_THAT(line->text, HasSubstr("doctor"));
  const absl::StatusOr<CommandLine> top = ParseCommandLine({"top", "--help"});
  ASSERT_TRUE(top.ok());
  EXPECT_FALSE(top->subcommand.has_value());
  EXPECT_THAT(top->text, HasSubstr("--interval"));
}

// A job may train for weeks. The daemon answers a call within an hour or never.
TEST(ParseCommandLine, TimeToWaitForAJob_MayBeDays) {
  const absl::StatusOr<CommandLine> line =
      ParseCommandLine({"wait", "job", "mine", "--for", "gone", "--at-most", "86400"});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->wait.at_most, absl::Hours(24));
  EXPECT_TRUE(ParseCommandLine({"drain", "--wait-at-most", "86400"}).ok());
  EXPECT_FALSE(ParseCommandLine({"--timeout", "86400", "status"}).ok());
  EXPECT_FALSE(ParseCommandLine({"wait", "daemon", "--at-most", "1e9"}).ok());
}

TEST(ParseChunkName, WithAndWithoutSession) {
  const absl::StatusOr<ChunkName> both = ParseChunkName("3/42");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->session, 3u);
  EXPECT_EQ(both->chunk, 42u);
  const absl::StatusOr<ChunkName> one = ParseChunkName("0");
  ASSERT_TRUE(one.ok());
  EXPECT_FALSE(one->session.has_value());
  EXPECT_EQ(one->chunk, 0u);
}

TEST(ParseChunkName, Mistakes_AreRefused) {
  for (const char* text : {"", "/", "1/", "/1", "a", "1/b", "-1", "0/1", "1/2/3", "4294967296"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseChunkName(text).status())) << text;
  }
}

}  // namespace
}  // namespace geminid::ctl
