#include "daemon/os/process_place.h"

#include <poll.h>
#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/hash.h"
#include "base/system_error.h"
#include "daemon/os/event.h"

namespace geminid::os {
namespace {

constexpr size_t kMostCharacters = 256;

// systemd's name for all that one user has started.
bool IsOfOneUser(absl::string_view name) {
  return absl::ConsumePrefix(&name, "user-") && absl::ConsumeSuffix(&name, ".slice") &&
         !name.empty() && std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

// Makes the path fit for messages, logs and labels.
std::string Presentable(std::string path) {
  for (char& c : path) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c)) || c == ',' || c == '"') c = '?';
  }
  if (path.size() <= kMostCharacters) return path;
  base::Fnv1a hash;
  hash.AddText(path);
  path.resize(kMostCharacters - 17);
  return absl::StrFormat("%s#%016x", path, hash.value());
}

// From the text of /proc/PID/status; 0: the parent is in another PID namespace, or there is no
// text.
pid_t ParentIn(const std::string& status) {
  for (absl::string_view line : absl::StrSplit(status, '\n')) {
    pid_t parent = 0;
    if (absl::ConsumePrefix(&line, "PPid:") && absl::SimpleAtoi(line, &parent)) return parent;
  }
  return 0;
}

}  // namespace

bool HasEnded(const base::UniqueFd& pidfd) {
  pollfd wait = {pidfd.get(), POLLIN, 0};
  return !pidfd.valid() || base::RetryOnEintr([&] { return ::poll(&wait, 1, 0); }) != 0;
}

base::UniqueFd ParentOf(pid_t pid, const base::UniqueFd& pidfd, const std::string& proc) {
  const auto number = [path = absl::StrCat(proc, "/", pid, "/status")] {
    return ParentIn(base::ReadKernelFile(path));
  };
  const pid_t parent = number();
  if (parent <= 0) return {};
  absl::StatusOr<base::UniqueFd> found = OpenPidfd(parent);
  // A process whose parent has ended gets another one, and the number may be used again.
  if (!found.ok() || number() != parent || HasEnded(pidfd)) return {};
  return *std::move(found);
}

bool IsInContainer(const std::string& status) {
  for (const auto& line : absl::StrSplit(status, '\n')) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "NSpid:")) continue;
    const std::vector<absl::string_view> numbers =
        absl::StrSplit(rest, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    return numbers.size() > 1;  // one for each namespace it is in
  }
  return false;
}

CgroupPath CgroupOf(const std::string& membership) {
  CgroupPath found = {.mount = "", .path = "/"};
  for (const auto& line : absl::StrSplit(membership, '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2] == "/") continue;
    if (parts[0] == "0") return {.mount = "", .path = parts[2]};
    if (parts[1] == "memory") found = {.mount = "/memory", .path = parts[2]};
  }
  return found;
}

std::string WithoutOwnCgroups(const std::string& path,
                              const std::function<bool(const std::string& path)>& is_roots) {
  std::string kept;
  for (const absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    absl::StrAppend(&kept, "/", name);
    if (IsOfOneUser(name) || !is_roots(kept)) break;
  }
  return kept.empty() ? "/" : Presentable(kept);
}

std::optional<ProcessPlace> PlaceOf(pid_t pid, const base::UniqueFd& pidfd, const std::string& proc,
                                    const std::string& cgroups) {
  const std::string folder = absl::StrCat(proc, "/", pid);
  const std::string status = base::ReadKernelFile(folder + "/status");
  const CgroupPath cgroup = CgroupOf(base::ReadKernelFile(folder + "/cgroup"));
  if (status.empty() || HasEnded(pidfd)) return std::nullopt;
  // Version 2 is mounted at the root, or beside the controllers of version 1.
  struct stat facts = {};
  const std::string unified = cgroups + "/unified";
  const std::string mount = !cgroup.mount.empty()                  ? cgroups + cgroup.mount
                            : ::stat(unified.c_str(), &facts) == 0 ? unified
                                                                   : cgroups;
  ProcessPlace place;
  place.in_container = IsInContainer(status);
  place.cgroup = WithoutOwnCgroups(cgroup.path, [&mount](const std::string& path) {
    struct stat folder_facts = {};
    // A cgroup that cannot be seen from here counts as root's.
    return ::stat((mount + path).c_str(), &folder_facts) != 0 || folder_facts.st_uid == 0;
  });
  return place;
}

}  // namespace geminid::os
