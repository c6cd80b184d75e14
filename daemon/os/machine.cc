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
#include "base/machine_memory.h"

namespace geminid::os {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

HugePages HugePagesOf(const std::string& meminfo) {
  HugePages pages;
  pages.page_bytes = base::KilobytesField(meminfo, "Hugepagesize").value_or(0);
  for (const auto& line : absl::StrSplit(meminfo, '\n')) {
    absl::string_view rest = line;
    uint64_t count;
    if (absl::ConsumePrefix(&rest, "HugePages_Free:") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(rest), &count)) {
      pages.free_pages = count;
    }
  }
  pages.counted_by_cgroups = CgroupsCountHugePages(base::ReadKernelFile("/proc/self/mounts"));
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
  if (pages.counted_by_cgroups) {
    absl::StrAppend(&fact.value, "; reserved ones count against cgroups' memory limits");
  }
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

std::string BracketedWord(const std::string& text) {
  const size_t begin = text.find('[');
  const size_t end = text.find(']', begin == std::string::npos ? 0 : begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  return text.substr(begin + 1, end - begin - 1);
}

bool CgroupsCountHugePages(const std::string& mounts) {
  for (const absl::string_view line : absl::StrSplit(mounts, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.size() < 4 || fields[2] != "cgroup2") continue;
    const std::vector<absl::string_view> options = absl::StrSplit(fields[3], ',');
    if (std::ranges::find(options, "memory_hugetlb_accounting") != options.end()) return true;
  }
  return false;
}

HugePages ReadHugePages() { return HugePagesOf(base::ReadKernelFile("/proc/meminfo")); }

Machine ReadMachine(const Numa& numa) {
  const std::string meminfo = base::ReadKernelFile("/proc/meminfo");
  Machine machine;
  machine.ram_bytes = base::KilobytesField(meminfo, "MemTotal").value_or(0);
  const base::CgroupMemory cgroup = base::ReadOwnCgroupMemory();
  if (cgroup.limit_bytes.value_or(kUnlimited) < machine.ram_bytes) {
    machine.cgroup_limit_bytes = cgroup.limit_bytes;
  }
  machine.nodes = numa.Nodes();
  machine.id = std::string(absl::StripAsciiWhitespace(base::ReadKernelFile("/etc/machine-id")));
  machine.huge_pages = HugePagesOf(meminfo);
  rlimit limit = {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
    machine.memlock_limit_bytes = limit.rlim_cur == RLIM_INFINITY ? kUnlimited : limit.rlim_cur;
  }
  return machine;
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
