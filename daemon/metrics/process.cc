#include "daemon/metrics/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/files.h"

namespace geminid::metrics {
namespace {

// proc(5): numbers of fields in /proc/self/stat, from 1; the second field is in parentheses.
constexpr size_t kFieldsBeforeRest = 2;
constexpr size_t kThreadsField = 20;
constexpr size_t kStartTimeField = 22;

std::optional<uint64_t> BootTimeSeconds() {
  for (const auto& line : absl::StrSplit(base::ReadKernelFile("/proc/stat"), '\n')) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ');
    uint64_t seconds;
    if (words.size() == 2 && words[0] == "btime" && absl::SimpleAtoi(words[1], &seconds)) {
      return seconds;
    }
  }
  return std::nullopt;
}

void ReadStat(ProcessReading* reading) {
  const std::string text = base::ReadKernelFile("/proc/self/stat");
  const size_t end_of_name = text.rfind(')');
  if (end_of_name == std::string::npos || end_of_name + 2 > text.size()) return;
  const std::vector<std::string> rest = absl::StrSplit(text.substr(end_of_name + 2), ' ');
  const auto field = [&](size_t number) -> std::optional<uint64_t> {
    uint64_t value = 0;
    const size_t index = number - kFieldsBeforeRest - 1;
    if (index >= rest.size() || !absl::SimpleAtoi(rest[index], &value)) return std::nullopt;
    return value;
  };
  reading->threads = field(kThreadsField);
  const std::optional<uint64_t> boot = BootTimeSeconds();
  const std::optional<uint64_t> ticks = field(kStartTimeField);
  if (!boot.has_value() || !ticks.has_value()) return;
  reading->start_time_seconds =
      static_cast<double>(*boot) +
      static_cast<double>(*ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::optional<uint64_t> CountOpenFds() {
  // Since Linux 6.2 the folder's size is the number of descriptors, so none need be listed.
  struct stat facts = {};
  if (::stat("/proc/self/fd", &facts) == 0 && facts.st_size > 0) {
    return static_cast<uint64_t>(facts.st_size);
  }
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return std::nullopt;
  uint64_t count = 0;
  while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] == '.' ? 0 : 1;
  ::closedir(folder);
  return count - 1;  // opendir's own descriptor
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
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) reading.max_fds = limit.rlim_cur;
  reading.open_fds = CountOpenFds();
  ReadStat(&reading);
  return reading;
}

}  // namespace geminid::metrics
