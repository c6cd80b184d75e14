#include "daemon/os/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <string>

#include "base/unique_fd.h"

namespace geminid::os {
namespace {

// 2026-11-21T09:36:15.123Z
constexpr int64_t kTime = int64_t{1795253775} * 1'000'000'000 + 123'456'789;

TEST(Log, TextLine_HasTimeLevelMessageAndFields) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, LogFormat::kText, false, kTime, "session attached",
                          {{"session", "3"}, {"job", "demo"}}),
            "2026-11-21T09:36:15.123Z INFO session attached session=3 job=demo\n");
}

TEST(Log, JournalLine_BeginsWithTheSyslogLevel) {
  EXPECT_EQ(FormatLogLine(LogLevel::kError, LogFormat::kText, true, kTime, "bad", {}), "<3>bad\n");
  EXPECT_EQ(FormatLogLine(LogLevel::kDebug, LogFormat::kText, true, kTime, "x", {}), "<7>x\n");
}

TEST(Log, JsonLine_IsOneObject) {
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, LogFormat::kJson, false, kTime, "a \"b\"",
                          {{"path", "c:\\d"}}),
            "{\"time\":\"2026-11-21T09:36:15.123Z\",\"level\":\"warning\",\"message\":\"a "
            "\\\"b\\\"\",\"path\":\"c:\\\\d\"}\n");
}

TEST(Log, ValueWithNewline_CannotForgeALine) {
  const std::string line = FormatLogLine(LogLevel::kInfo, LogFormat::kText, false, kTime, "m\nn",
                                         {{"client", "x\n2026 ERROR forged\x1b[2J"}});
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
}

// U+009B begins a terminal's command, U+202E reverses the following text, and U+2028 ends a line.
// Bytes that are not UTF-8 may do the same.
TEST(Log, ValueThatIsNotPrintable_IsEscapedInEachFormat) {
  const std::string value = "a\xc2\x9b\xe2\x80\xae\xe2\x80\xa8\x9b\xf3\xa0\x81\x81 größe";
  const std::string escaped = "a\\u009b\\u202e\\u2028\\ufffd\\udb40\\udc41 größe";
  for (const LogFormat format : {LogFormat::kText, LogFormat::kJson}) {
    const std::string line =
        FormatLogLine(LogLevel::kDebug, format, false, kTime, value, {{"name", value}});
    const size_t first = line.find(escaped);
    EXPECT_NE(first, std::string::npos) << line;
    EXPECT_NE(line.find(escaped, first + 1), std::string::npos) << line;
    EXPECT_EQ(line.find(value), std::string::npos);
  }
  for (const JournalField& field : JournalFieldsOf(LogLevel::kDebug, value, {{"name", value}})) {
    EXPECT_EQ(field.value.find('\x9b'), std::string::npos) << field.name;
  }
}

// A log that is a full pipe, like that of a service whose reader has stopped.
TEST(Log, ReaderThatIsSlow_IsNotWaitedForAndToldWhatItMissed) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const base::UniqueFd reader(ends[0]);
  base::UniqueFd writer(ends[1]);
  const base::UniqueFd saved(::dup(STDERR_FILENO));
  ConfigureLog(LogLevel::kInfo, LogFormat::kText);
  ASSERT_EQ(::dup2(writer.get(), STDERR_FILENO), STDERR_FILENO);
  const std::string page(4096, 'x');
  for (int i = 0; i < 100; ++i) Log(LogLevel::kInfo, page);
  char buffer[4096];
  ASSERT_EQ(::read(reader.get(), buffer, sizeof(buffer)), 4096);
  ASSERT_EQ(::read(reader.get(), buffer, sizeof(buffer)), 4096);
  Log(LogLevel::kInfo, "there is room again");
  ::dup2(saved.get(), STDERR_FILENO);
  writer.Reset();
  std::string rest;
  for (ssize_t got; (got = ::read(reader.get(), buffer, sizeof(buffer))) > 0;) {
    rest.append(buffer, static_cast<size_t>(got));
  }
  EXPECT_NE(rest.find("lines_lost="), std::string::npos);
  EXPECT_NE(rest.find("there is room again"), std::string::npos);
}

TEST(Log, ParseLevel_KnowsItsNamesOnly) {
  LogLevel level = LogLevel::kError;
  EXPECT_TRUE(ParseLogLevel("debug", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_FALSE(ParseLogLevel("DEBUG", &level));
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
}

TEST(Log, JournalEntry_HasAFieldForEachOfOurs) {
  const auto fields = JournalFieldsOf(LogLevel::kWarning, "attach refused",
                                      {{"tenant", "uid:7"}, {"error", "no room"}});
  std::map<std::string, std::string> by_name;
  for (const JournalField& field : fields) by_name[field.name] = field.value;
  EXPECT_EQ(by_name, (std::map<std::string, std::string>{
                         {"MESSAGE", "attach refused tenant=uid:7 error=\"no room\""},
                         {"PRIORITY", "4"},
                         {"SYSLOG_IDENTIFIER", "geminid"},
                         {"GEMINID_LEVEL", "warning"},
                         {"GEMINID_TENANT", "uid:7"},
                         {"GEMINID_ERROR", "no room"}}));
}

}  // namespace
}  // namespace geminid::os
