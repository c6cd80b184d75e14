#include "base/machine_memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/files.h"

namespace geminid::base {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kKilobyte = 1024;

std::optional<uint64_t> ReadNumber(const std::string& path) {
  uint64_t number;
  const std::string text = ReadKernelFile(path);
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &number)) return std::nullopt;
  return number;
}

// The file names of one version of the memory controller.
struct CgroupFiles {
  const char* limit;
  const char* throttle;  // null: there is none
  const char* usage;
  const char* inactive;  // keys in memory.stat
  const char* active;
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", nullptr, "memory.usage_in_bytes",
                                   "total_inactive_file", "total_active_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.high", "memory.current", "inactive_file",
                                   "active_file"};

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

// Above memory.high a process is slowed down until it hardly runs, so no default may reach that. A
// container cannot see cgroups above its own, but version 1 reports the lowest limit of all of
// them.
std::optional<uint64_t> LimitOf(const std::string& folder, const CgroupFiles& files,
                                const std::string& stat) {
  std::optional<uint64_t> limit = ReadNumber(absl::StrCat(folder, "/", files.limit));
  if (files.throttle != nullptr) {
    const std::optional<uint64_t> high = ReadNumber(absl::StrCat(folder, "/", files.throttle));
    if (high.has_value()) Lower(&limit, *high);
  }
  const uint64_t of_all = StatField(stat, "hierarchical_memory_limit");
  if (of_all > 0) Lower(&limit, of_all);
  return limit;
}

void AddCgroup(const std::string& folder, const CgroupFiles& files, CgroupMemory* memory) {
  const std::string stat = ReadKernelFile(folder + "/memory.stat");
  const std::optional<uint64_t> limit = LimitOf(folder, files, stat);
  if (!limit.has_value()) return;  // "max", or no such file
  Lower(&memory->limit_bytes, *limit);
  const std::optional<uint64_t> usage = ReadNumber(absl::StrCat(folder, "/", files.usage));
  if (!usage.has_value()) return;
  // Only cache of files counts: other memory in use cannot be reclaimed. A data set that is read
  // repeatedly is active, but reclaimable too.
  const uint64_t cache = StatField(stat, files.inactive) + StatField(stat, files.active);
  const uint64_t used = *usage - std::min(*usage, cache);
  Lower(&memory->available_bytes, *limit - std::min(*limit, used));
}

uint64_t RamBytes() {
  return KilobytesField(ReadKernelFile("/proc/meminfo"), "MemTotal").value_or(kUnlimited);
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

CgroupMemory ReadCgroupMemory(const std::string& membership, const std::string& root) {
  CgroupMemory memory;
  for (const auto& line : absl::StrSplit(membership, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool version2 = parts[0] == "0";
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (!version2 && std::ranges::find(controllers, "memory") == controllers.end()) continue;
    const std::string mount = version2 ? root : root + "/memory";
    // From this process's own cgroup to the root, which is "" without a trailing slash.
    std::string path = parts[2] == "/" ? "" : parts[2];
    while (true) {
      AddCgroup(mount + path, version2 ? kVersion2 : kVersion1, &memory);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return memory;
}

CgroupMemory ReadOwnCgroupMemory() { return ReadCgroupMemory(ReadKernelFile("/proc/self/cgroup")); }

uint64_t TotalMemoryBytes() {
  const uint64_t ram = RamBytes();
  const CgroupMemory cgroup = ReadOwnCgroupMemory();
  return std::min(ram, cgroup.limit_bytes.value_or(ram));
}

std::string DescribeTotalMemory() {
  const uint64_t total = TotalMemoryBytes();
  return absl::StrCat(
      total < RamBytes() ? "the memory limit of this process's cgroup is " : "this machine has ",
      FormatBytes(total));
}

uint64_t AvailableMemoryBytes() {
  const uint64_t available =
      KilobytesField(ReadKernelFile("/proc/meminfo"), "MemAvailable").value_or(kUnlimited);
  const CgroupMemory cgroup = ReadOwnCgroupMemory();
  return std::min(available, cgroup.available_bytes.value_or(available));
}

}  // namespace geminid::base
