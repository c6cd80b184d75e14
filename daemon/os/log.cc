#include "daemon/os/log.h"

#include <poll.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "base/system_error.h"

namespace geminid::os {
namespace {

std::atomic<LogLevel> least_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kText};

constexpr int64_t kNanosecondsPerSecond = 1000000000;
constexpr int64_t kNanosecondsPerMillisecond = 1000000;
// As much as a pipe that polls as writable takes without blocking (PIPE_BUF).
constexpr size_t kMostBytes = 4096;

const char* LowerName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "error";
}

const char* UpperName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "DEBUG";
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
      return "ERROR";
  }
  return "ERROR";
}

// sd-daemon(3): the syslog severities.
const char* Severity(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "7";
    case LogLevel::kInfo:
      return "6";
    case LogLevel::kWarning:
      return "4";
    case LogLevel::kError:
      return "3";
  }
  return "3";
}

std::string FormatTime(int64_t unix_nanoseconds) {
  const time_t seconds = static_cast<time_t>(unix_nanoseconds / kNanosecondsPerSecond);
  const int64_t milliseconds =
      unix_nanoseconds % kNanosecondsPerSecond / kNanosecondsPerMillisecond;
  tm parts = {};
  ::gmtime_r(&seconds, &parts);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                         parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                         milliseconds);
}

// The escapes of JSON, also for text lines: of unprintable characters and of `others`.
std::string Escape(const std::string& text, std::string_view others = "\"\\") {
  std::string escaped;
  escaped.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const base::Character next = base::CharacterAt(text, at);
    if (text[at] == '\n') {
      escaped += "\\n";
    } else if (!next.is_printable) {
      base::AppendEscape(next.code, &escaped);
    } else {
      if (others.find(text[at]) != std::string_view::npos) escaped += '\\';
      escaped.append(text, at, next.bytes);
    }
    at += next.bytes;
  }
  return escaped;
}

// A value with a space or a quote in it is quoted, so that a line can be split again.
std::string TextValue(const std::string& value) {
  if (value.empty() || value.find_first_of(" \"=\\\n\t") != std::string::npos) {
    return absl::StrCat("\"", Escape(value), "\"");
  }
  return Escape(value);
}

std::string TextMessage(const std::string& message) { return Escape(message, ""); }

// systemd.exec(5): JOURNAL_STREAM is the device and inode of the stream the journal gave us.
bool StderrIsJournal() {
  const char* const stream = std::getenv("JOURNAL_STREAM");
  unsigned long long device = 0, inode = 0;
  struct stat facts;
  // NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion): compared with what is there
  return stream != nullptr && std::sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
         ::fstat(STDERR_FILENO, &facts) == 0 && facts.st_dev == device && facts.st_ino == inode;
}

int64_t UnixNanoseconds() {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<int64_t>(now.tv_sec) * kNanosecondsPerSecond + now.tv_nsec;
}

std::string TextOf(const std::string& message, const std::vector<LogField>& fields) {
  std::string text = TextMessage(message);
  for (const LogField& field : fields) {
    absl::StrAppend(&text, " ", field.key, "=", TextValue(field.value));
  }
  return text;
}

std::string Line(LogLevel level, bool journal, const std::string& message,
                 const std::vector<LogField>& fields) {
  std::string line = FormatLogLine(level, log_format.load(std::memory_order_relaxed), journal,
                                   UnixNanoseconds(), message, fields);
  if (line.size() > kMostBytes) {
    line.resize(kMostBytes);
    line.back() = '\n';
  }
  return line;
}

// False: the write would block.
bool TryWrite(const std::string& line) {
  pollfd room = {STDERR_FILENO, POLLOUT, 0};
  if (base::RetryOnEintr([&] { return ::poll(&room, 1, 0); }) == 0) return false;
  // Nobody to tell when the log itself cannot be written.
  (void)!base::RetryOnEintr([&] { return ::write(STDERR_FILENO, line.data(), line.size()); });
  return true;
}

// Puts a line into the journal or onto stderr. False: that would block.
bool TryPut(LogLevel level, const std::string& message, const std::vector<LogField>& fields) {
  static const bool is_journal = StderrIsJournal();
  // Never destroyed, because other threads may still log when the program ends.
  static const Journal* const journal = is_journal ? new Journal(kJournalSocket) : nullptr;
  if (journal != nullptr && log_format.load(std::memory_order_relaxed) == LogFormat::kText) {
    const Journal::Result result =
        journal->Send(JournalEntry(JournalFieldsOf(level, message, fields)));
    if (result != Journal::Result::kGone) return result == Journal::Result::kSent;
  }
  return TryWrite(Line(level, is_journal, message, fields));
}

}  // namespace

bool ParseLogLevel(const std::string& text, LogLevel* level) {
  for (const LogLevel candidate :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    if (text != LowerName(candidate)) continue;
    *level = candidate;
    return true;
  }
  return false;
}

bool ParseLogFormat(const std::string& text, LogFormat* format) {
  if (text != "text" && text != "json") return false;
  *format = text == "json" ? LogFormat::kJson : LogFormat::kText;
  return true;
}

void ConfigureLog(LogLevel least, LogFormat format) {
  least_level.store(least);
  log_format.store(format);
}

std::string FormatLogLine(LogLevel level, LogFormat format, bool journal, int64_t unix_nanoseconds,
                          const std::string& message, const std::vector<LogField>& fields) {
  std::string line;
  if (format == LogFormat::kJson) {
    line = absl::StrCat("{\"time\":\"", FormatTime(unix_nanoseconds), "\",\"level\":\"",
                        LowerName(level), "\",\"message\":\"", Escape(message), "\"");
    for (const LogField& field : fields) {
      absl::StrAppend(&line, ",\"", Escape(field.key), "\":\"", Escape(field.value), "\"");
    }
    return line + "}\n";
  }
  line = journal ? absl::StrCat("<", Severity(level), ">")
                 : absl::StrCat(FormatTime(unix_nanoseconds), " ", UpperName(level), " ");
  return absl::StrCat(line, TextOf(message, fields), "\n");
}

std::vector<JournalField> JournalFieldsOf(LogLevel level, const std::string& message,
                                          const std::vector<LogField>& fields) {
  std::vector<JournalField> entry = {{"MESSAGE", TextOf(message, fields)},
                                     {"PRIORITY", Severity(level)},
                                     {"SYSLOG_IDENTIFIER", "geminid"},
                                     {JournalFieldName("level"), LowerName(level)}};
  for (const LogField& field : fields) {
    entry.push_back({JournalFieldName(field.key), TextMessage(field.value)});
  }
  return entry;
}

void Log(LogLevel level, const std::string& message, const std::vector<LogField>& fields) {
  if (level < least_level.load(std::memory_order_relaxed)) return;
  // Held so that the room which poll() saw is still there for the write.
  static std::mutex mutex;
  static uint64_t lost = 0;  // guarded by mutex
  const std::lock_guard<std::mutex> lock(mutex);
  if (lost > 0) {
    if (!TryPut(LogLevel::kWarning, "the log's reader is slow",
                {{"lines_lost", absl::StrCat(lost)}})) {
      ++lost;
      return;
    }
    lost = 0;
  }
  if (!TryPut(level, message, fields)) ++lost;
}

}  // namespace geminid::os
