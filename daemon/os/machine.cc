#include "daemon/os/machine.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
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

struct CgroupFiles {
  std::string limit;
  std::string usage;
};

// This process's memory controller: version 2 where it has one, else version 1.
std::optional<CgroupFiles> FindCgroup() {
  const std::string text = base::ReadKernelFile("/proc/self/cgroup");
  std::optional<CgroupFiles> found;
  for (const auto& line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[0] == "0") {
      const std::string folder = absl::StrCat("/sys/fs/cgroup", parts[2]);
      const CgroupFiles files = {folder + "/memory.max", folder + "/memory.current"};
      if (std::ifstream(files.limit).good()) return files;
    } else if (parts[1] == "memory") {
      for (const std::string& folder : {absl::StrCat("/sys/fs/cgroup/memory", parts[2]),
                                        std::string("/sys/fs/cgroup/memory")}) {
        const CgroupFiles files = {folder + "/memory.limit_in_bytes",
                                   folder + "/memory.usage_in_bytes"};
        if (std::ifstream(files.limit).good()) {
          found = files;
          break;
        }
      }
    }
  }
  return found;
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

Machine ReadMachine(const Numa& numa) {
  const std::string meminfo = base::ReadKernelFile("/proc/meminfo");
  Machine machine;
  machine.ram_bytes = KilobytesField(meminfo, "MemTotal").value_or(0);
  if (const std::optional<CgroupFiles> cgroup = FindCgroup()) {
    const std::optional<uint64_t> limit = ReadNumber(cgroup->limit);
    if (limit.has_value() && *limit < machine.ram_bytes) machine.cgroup_limit_bytes = limit;
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
  uint64_t available =
      KilobytesField(base::ReadKernelFile("/proc/meminfo"), "MemAvailable").value_or(kUnlimited);
  if (const std::optional<CgroupFiles> cgroup = FindCgroup()) {
    const std::optional<uint64_t> limit = ReadNumber(cgroup->limit);
    const std::optional<uint64_t> usage = ReadNumber(cgroup->usage);
    if (limit.has_value() && usage.has_value()) {
      available = std::min(available, *limit > *usage ? *limit - *usage : 0);
    }
  }
  return available;
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
