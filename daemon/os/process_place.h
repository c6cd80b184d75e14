// Where a process runs: in which container, if in any, and in which cgroup.
#ifndef GEMINID_DAEMON_OS_PROCESS_PLACE_H_
#define GEMINID_DAEMON_OS_PROCESS_PLACE_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/unique_fd.h"

namespace geminid::os {

struct ProcessPlace {
  bool in_container = false;  // in a PID namespace below the one of /proc
  // For example "/docker/0123". Without the cgroups that its user can make: otherwise a user could
  // be as many tenants as it likes.
  std::string cgroup;
  bool operator==(const ProcessPlace&) const = default;
};

// The place of the process behind `pidfd`, whose number is `pid`. Nullopt: it has ended, so its
// number may be another's. The roots `proc` and `cgroups` are for tests.
std::optional<ProcessPlace> PlaceOf(pid_t pid, const base::UniqueFd& pidfd,
                                    const std::string& proc = "/proc",
                                    const std::string& cgroups = "/sys/fs/cgroup");

bool HasEnded(const base::UniqueFd& pidfd);

// The pidfd of the parent of the process behind `pidfd`, whose number is `pid`. Invalid: the
// process has ended, or its parent cannot be seen from here.
base::UniqueFd ParentOf(pid_t pid, const base::UniqueFd& pidfd, const std::string& proc = "/proc");

// The parts of PlaceOf, from the texts of /proc/PID/status and /proc/PID/cgroup. The cgroup is that
// of version 2, or of version 1's memory controller where version 2 is not used.
bool IsInContainer(const std::string& status);
struct CgroupPath {
  std::string mount;  // below the mount point of all: "", "/unified" or "/memory"
  std::string path;   // "/" is the root
};
CgroupPath CgroupOf(const std::string& membership);
// `path` up to the first cgroup that root does not own, because it may be delegated, or that holds
// all logins of one user. The result has at most 256 characters, all printable.
std::string WithoutOwnCgroups(const std::string& path,
                              const std::function<bool(const std::string& path)>& is_roots);

}  // namespace geminid::os

#endif  // GEMINID_DAEMON_OS_PROCESS_PLACE_H_
