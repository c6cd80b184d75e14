#include "daemon/os/log.h"

#include <gtest/gtest.h>

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

TEST(Log, ParseLevel_KnowsItsNamesOnly) {
  LogLevel level = LogLevel::kError;
  EXPECT_TRUE(ParseLogLevel("debug", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
  EXPECT_FALSE(ParseLogLevel("DEBUG", &level));
  EXPECT_FALSE(ParseLogLevel("", &level));
  EXPECT_EQ(level, LogLevel::kDebug);
}

}  // namespace
}  // namespace geminid::os
