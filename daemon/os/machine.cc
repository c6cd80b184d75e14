#include "daemon/os/machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/files.h"

namespace geminid::os {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kKilobyte = 1024;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  uint64_t number;
  const std::string text = base::ReadKernelFile(path);
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &number)) return std::nullopt;
  return number;
}

// The names of one version of the memory controller.
struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* inactive;  // keys within memory.stat
  const char* active;
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

// The number after `key` and a space, at the beginning of a line.
uint64_t StatField(const std::string& text, const std::string& key) {
  for (const auto& line : absl::StrSplit(text, '\n')) {
    absl::string_view rest = line;
    uint64_t number;
    if (absl::ConsumePrefix(&rest, key + " ") && absl::SimpleAtoi(rest, &number)) return number;
  }
  return 0;
}

void Lower(std::optional<uint64_t>* value, uint64_t other) {
  *value = std::min(value->value_or(other), other);
}

void AddCgroup(const std::string& folder, const CgroupFiles& files, CgroupMemory* memory) {
  const std::optional<uint64_t> limit = ReadNumber(absl::StrCat(folder, "/", files.limit));
  if (!limit.has_value()) return;  // "max", or no such file
  Lower(&memory->limit_bytes, *limit);
  const std::optional<uint64_t> usage = ReadNumber(absl::StrCat(folder, "/", files.usage));
  if (!usage.has_value()) return;
  // Of files alone: memory that is handed out is none of it. A data set that is read again and
  // again is active, and may go as well.
  const std::string stat = base::ReadKernelFile(folder + "/memory.stat");
  const uint64_t cache = StatField(stat, files.inactive) + StatField(stat, files.active);
  const uint64_t used = *usage - std::min(*usage, cache);
  Lower(&memory->available_bytes, *limit - std::min(*limit, used));
}

HugePages ReadHugePages(const std::string& meminfo) {
  HugePages pages;
  pages.page_bytes = KilobytesField(meminfo, "Hugepagesize").value_or(0);
  for (const auto& line : absl::StrSplit(meminfo, '\n')) {
    absl::string_view rest = line;
    uint64_t count;
    if (absl::ConsumePrefix(&rest, "HugePages_Free:") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(rest), &count)) {
      pages.free_pages = count;
    }
  }
  pages.shmem_enabled =
      BracketedWord(base::ReadKernelFile("/sys/kernel/mm/transparent_hugepage/shmem_enabled"));
  pages.shmem_on_advice = pages.shmem_enabled == "advise" || pages.shmem_enabled == "always" ||
                          pages.shmem_enabled == "force" || pages.shmem_enabled == "within_size";
  return pages;
}

MachineFact HugePageFact(const HugePages& pages, bool wanted) {
  MachineFact fact;
  fact.name = "huge pages";
  fact.value =
      absl::StrCat(pages.free_pages, " free of ", base::FormatBytes(pages.page_bytes),
                   "; memfd: ", pages.shmem_enabled.empty() ? "never" : pages.shmem_enabled);
  const bool offered = pages.free_pages > 0 || pages.shmem_on_advice;
  fact.in_use = wanted && offered;
  if (!wanted) {
    fact.why_not = "the configuration says huge_pages: false";
  } else if (!offered) {
    fact.why_not =
        "none is reserved; write 'advise' to /sys/kernel/mm/transparent_hugepage/shmem_enabled";
  }
  return fact;
}

}  // namespace

std::optional<uint64_t> KilobytesField(const std::string& text, const std::string& name) {
  for (const auto& line : absl::StrSplit(text, '\n')) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, absl::StrCat(name, ":"))) continue;
    rest = absl::StripAsciiWhitespace(rest);
    if (!absl::ConsumeSuffix(&rest, " kB")) return std::nullopt;
    uint64_t kilobytes;
    if (!absl::SimpleAtoi(rest, &kilobytes)) return std::nullopt;
    return kilobytes * kKilobyte;
  }
  return std::nullopt;
}

std::string BracketedWord(const std::string& text) {
  const size_t begin = text.find('[');
  const size_t end = text.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return text.substr(begin + 1, end - begin - 1);
}

CgroupMemory ReadCgroupMemory(const std::string& membership, const std::string& root) {
  CgroupMemory memory;
  for (const auto& line : absl::StrSplit(membership, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || (parts[0] != "0" && parts[1] != "memory")) continue;
    const bool version2 = parts[0] == "0";
    const std::string mount = version2 ? root : root + "/memory";
    // From this process's own to the root; without a trailing slash, the root is "".
    std::string path = parts[2] == "/" ? "" : parts[2];
    while (true) {
      AddCgroup(mount + path, version2 ? kVersion2 : kVersion1, &memory);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return memory;
}

uint64_t TotalMemoryBytes() {
  const uint64_t ram =
      KilobytesField(base::ReadKernelFile("/proc/meminfo"), "MemTotal").value_or(kUnlimited);
  const CgroupMemory cgroup = ReadCgroupMemory(base::ReadKernelFile("/proc/self/cgroup"));
  return std::min(ram, cgroup.limit_bytes.value_or(ram));
}

Machine ReadMachine(const Numa& numa) {
  const std::string meminfo = base::ReadKernelFile("/proc/meminfo");
  Machine machine;
  machine.ram_bytes = KilobytesField(meminfo, "MemTotal").value_or(0);
  const CgroupMemory cgroup = ReadCgroupMemory(base::ReadKernelFile("/proc/self/cgroup"));
  if (cgroup.limit_bytes.value_or(kUnlimited) < machine.ram_bytes) {
    machine.cgroup_limit_bytes = cgroup.limit_bytes;
  }
  machine.nodes = numa.Nodes();
  machine.id = std::string(absl::StripAsciiWhitespace(base::ReadKernelFile("/etc/machine-id")));
  machine.huge_pages = ReadHugePages(meminfo);
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.memlock_limit_bytes = limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
  }
  return machine;
}

uint64_t AvailableMemoryBytes() {
  const uint64_t available =
      KilobytesField(base::ReadKernelFile("/proc/meminfo"), "MemAvailable").value_or(kUnlimited);
  const CgroupMemory cgroup = ReadCgroupMemory(base::ReadKernelFile("/proc/self/cgroup"));
  return std::min(available, cgroup.available_bytes.value_or(available));
}

std::vector<MachineFact> Facts(const Machine& machine, bool use_huge_pages) {
  std::vector<MachineFact> facts;
  facts.push_back({"RAM", base::FormatBytes(machine.ram_bytes), true, ""});
  if (machine.cgroup_limit_bytes.has_value()) {
    facts.push_back(
        {"cgroup memory limit", base::FormatBytes(*machine.cgroup_limit_bytes), true, ""});
  } else {
    facts.push_back({"cgroup memory limit", "none", false, ""});
  }
  const bool several = machine.nodes.size() > 1;
  MachineFact numa = {"NUMA nodes", absl::StrCat(machine.nodes.size()), several, ""};
  if (several) absl::StrAppend(&numa.value, "; available ", AvailableText(machine.nodes));
  if (!numa.in_use) numa.why_not = "there is one node: nothing to bind to";
  facts.push_back(numa);
  facts.push_back(HugePageFact(machine.huge_pages, use_huge_pages));
  const bool unlimited = machine.memlock_limit_bytes == kUnlimited;
  facts.push_back({"locked memory limit",
                   unlimited ? "none" : base::FormatBytes(machine.memlock_limit_bytes), unlimited,
                   unlimited ? "" : "set LimitMEMLOCK=infinity where pools are pinned for a GPU"});
  return facts;
}

}  // namespace geminid::os
