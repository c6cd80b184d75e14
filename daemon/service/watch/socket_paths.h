// The paths at which clients find the daemon. Whoever removes or replaces one of them leaves a
// daemon that serves its sessions and that no other client can reach.
#ifndef GEMINID_DAEMON_SERVICE_WATCH_SOCKET_PATHS_H_
#define GEMINID_DAEMON_SERVICE_WATCH_SOCKET_PATHS_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace geminid::service {

// Thread-safe.
class SocketPaths {
 public:
  // The socket that is at `path` now is the daemon's. Where there is none to be seen, as for a
  // listener that another process made in its own root, the path is not watched.
  void Add(const std::string& path);
  // A line for each path that does not lead to the daemon's socket any more.
  std::vector<std::string> Lost() const;

 private:
  struct File {
    uint64_t device = 0;
    uint64_t inode = 0;
    int64_t born = 0;  // in nanoseconds: some file systems use an inode's number again
    bool operator==(const File&) const = default;
  };
  struct Watched {
    std::string path;
    File file;
  };
  // Nullopt, and errno: the file cannot be looked at.
  static std::optional<File> LookAt(const std::string& path);

  mutable std::mutex mutex_;
  std::vector<Watched> watched_;  // guarded by mutex_
};

}  // namespace geminid::service

#endif  // GEMINID_DAEMON_SERVICE_WATCH_SOCKET_PATHS_H_
