#include "daemon/metrics/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/files.h"

namespace geminid::metrics {
namespace {

// proc(5): fields of /proc/self/stat, counted from 1; the second one is in parentheses.
constexpr size_t kFieldsBeforeRest = 2;
constexpr size_t kThreadsField = 20;
constexpr size_t kStartTimeField = 22;

uint64_t BootTimeSeconds() {
  for (const auto& line : absl::StrSplit(base::ReadKernelFile("/proc/stat"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    uint64_t seconds;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtoi(words[1], &seconds)) {
      return seconds;
    }
  }
  return 0;
}

void ReadStat(ProcessReading* reading) {
  const std::string text = base::ReadKernelFile("/proc/self/stat");
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 > text.size()) return;
  const std::vector<std::string> rest = absl::StrSplit(text.substr(end_of_name + 2), ' ');
  const auto field = [&](size_t number) {
    uint64_t value = 0;
    const size_t index = number - kFieldsBeforeRest - 1;
    return index < rest.size() && absl::SimpleAtoi(rest[index], &value) ? value : 0;
  };
  reading->threads = field(kThreadsField);
  reading->start_time_seconds =
      static_cast<double>(BootTimeSeconds()) +
      static_cast<double>(field(kStartTimeField)) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

uint64_t CountOpenFds() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  uint64_t count = 0;
  while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] == '.' ? 0 : 1;
  ::closedir(folder);
  return count - 1;  // the folder's own
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

ProcessReading ReadProcess() {
  ProcessReading reading;
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  reading.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  const std::vector<std::string> pages =
      absl::StrSplit(base::ReadKernelFile("/proc/self/statm"), ' ');
  const auto page_bytes = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  uint64_t count;
  if (pages.size() > 1 && absl::SimpleAtoi(pages[0], &count)) {
    reading.virtual_bytes = count * page_bytes;
  }
  if (pages.size() > 1 && absl::SimpleAtoi(pages[1], &count)) {
    reading.resident_bytes = count * page_bytes;
  }
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  reading.max_fds = limit.rlim_cur;
  reading.open_fds = CountOpenFds();
  ReadStat(&reading);
  return reading;
}

}  // namespace geminid::metrics
