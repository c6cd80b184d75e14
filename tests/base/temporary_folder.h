// A temporary folder of a test, removed with this object. If a test is killed, the next test that
// makes a folder removes the old one.
#ifndef GEMINID_TESTS_BASE_TEMPORARY_FOLDER_H_
#define GEMINID_TESTS_BASE_TEMPORARY_FOLDER_H_

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace geminid::base {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    [[maybe_unused]] static const bool once = (RemoveAbandoned(), true);
    // Before it is locked, another test may take the folder for an abandoned one and remove it.
    for (int tries = 0; !lock_.valid(); ++tries) {
      constexpr int kMostTries = 100;
      std::string name = (std::filesystem::temp_directory_path() / kPrefix).string() + "XXXXXX";
      if (tries == kMostTries || mkdtemp(name.data()) == nullptr) std::abort();
      path_ = name;
      lock_ = Lock(path_);
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // Removes the folders whose tests have ended without removing them.
  static void RemoveAbandoned() {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::temp_directory_path(), ignored)) {
      if (!entry.path().filename().string().starts_with(kPrefix)) continue;
      const UniqueFd lock = Lock(entry.path().string());
      if (lock.valid()) std::filesystem::remove_all(entry.path(), ignored);
    }
  }

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }
  // Writes a file; returns its path.
  std::string Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = *this / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
    return file.string();
  }
  size_t Entries() const {
    size_t count = 0;
    for (auto it = std::filesystem::directory_iterator(path_);
         it != std::filesystem::directory_iterator(); ++it) {
      ++count;
    }
    return count;
  }

 private:
  static constexpr char kPrefix[] = "geminid-test-";

  // A lock that the folder's process holds as long as it lives. Invalid if another process has it,
  // or the folder is gone.
  static UniqueFd Lock(const std::string& path) {
    UniqueFd lock(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat folder = {};
    const bool is_mine = lock.valid() && flock(lock.get(), LOCK_EX | LOCK_NB) == 0 &&
                         fstat(lock.get(), &folder) == 0 && folder.st_nlink > 0 &&
                         folder.st_uid == geteuid();
    return is_mine ? std::move(lock) : UniqueFd();
  }

  std::string path_;
  UniqueFd lock_;
};

}  // namespace geminid::base

#endif  // GEMINID_TESTS_BASE_TEMPORARY_FOLDER_H_
