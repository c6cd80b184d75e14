// The daemon's log: one line, one write(2), on stderr.
//
// Text:  2026-11-21T09:36:15.123Z INFO session attached session=3 job=demo
// JSON:  {"time":"2026-11-21T09:36:15.123Z","level":"info","message":"session attached", ...}
// If stderr is the journal, text lines go to it as entries with fields. If it does not listen, they
// go to stderr, and begin with the "<N>" of their level instead of the time.
#ifndef GEMINID_DAEMON_OS_LOG_H_
#define GEMINID_DAEMON_OS_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/os/journal.h"

namespace geminid::os {

enum class LogLevel { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3 };
enum class LogFormat { kText = 0, kJson = 1 };

// Both parse a name of the configuration; false leaves the result unchanged.
bool ParseLogLevel(const std::string& text, LogLevel* level);
bool ParseLogFormat(const std::string& text, LogFormat* format);

struct LogField {
  std::string key;
  std::string value;
};

// Sets what the process logs from now on. Any thread.
void ConfigureLog(LogLevel least, LogFormat format);

// Writes one line if `level` is enabled. Any thread; lines longer than a page are truncated.
// Never waits for a slow reader of the log: lines without room are counted, and their number
// precedes the next line with room. Values cannot forge a line, because control characters are
// escaped.
void Log(LogLevel level, const std::string& message, const std::vector<LogField>& fields = {});

// The line that Log writes, with its newline; `unix_nanoseconds` is the time.
std::string FormatLogLine(LogLevel level, LogFormat format, bool journal, int64_t unix_nanoseconds,
                          const std::string& message, const std::vector<LogField>& fields);

// The fields of the journal's entry for a line: MESSAGE, which has all of the text, PRIORITY,
// SYSLOG_IDENTIFIER, GEMINID_LEVEL, and one per field.
std::vector<JournalField> JournalFieldsOf(LogLevel level, const std::string& message,
                                          const std::vector<LogField>& fields);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_LOG_H_
