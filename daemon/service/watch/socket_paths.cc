#include "daemon/service/watch/socket_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "absl/strings/str_cat.h"

namespace geminid::service {

std::optional<SocketPaths::File> SocketPaths::LookAt(const std::string& path) {
  struct statx facts = {};
  if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &facts) != 0) {
    return std::nullopt;
  }
  File file = {.device = makedev(facts.stx_dev_major, facts.stx_dev_minor), .inode = facts.stx_ino};
  if ((facts.stx_mask & STATX_BTIME) != 0) {
    file.born = facts.stx_btime.tv_sec * 1'000'000'000 + facts.stx_btime.tv_nsec;
  }
  return file;
}

void SocketPaths::Add(const std::string& path) {
  const std::optional<File> file = LookAt(path);
  if (!file.has_value()) return;
  const std::lock_guard lock(mutex_);
  watched_.push_back({path, *file});
}

std::vector<std::string> SocketPaths::Lost() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> lost;
  for (const Watched& watched : watched_) {
    const std::optional<File> now = LookAt(watched.path);
    // Other errors are this process's own: clients may still see the file.
    const bool is_gone = !now.has_value() && (errno == ENOENT || errno == ENOTDIR);
    const bool is_another = now.has_value() && *now != watched.file;
    if (!is_gone && !is_another) continue;
    lost.push_back(absl::StrCat("clients do not find the daemon: its socket ", watched.path,
                                is_gone ? " was removed" : " was replaced",
                                "; restart the daemon, its sessions go on"));
  }
  return lost;
}

}  // namespace geminid::service
