// One space of bytes in files on one or several disks: creates, reopens and removes the files.
//
// A new file reserves all of its space at once, so that a full disk is noticed before training
// begins. A file without a name is gone when the last process that has it ends, in whatever way. A
// file with a name survives for the replacement process: Open accepts only the very file that was
// created. While one process has the file, no other gets it.
#ifndef GEMINID_CLIENT_DISK_STRIPED_FILES_H_
#define GEMINID_CLIENT_DISK_STRIPED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"
#include "client/disk/stripes.h"
#include "client/src/fork_guard.h"

namespace geminid::disk {

inline constexpr size_t kMaxDisks = 64;

// For the files of one rank, which `rank` names.
inline constexpr char kNamePrefix[] = "geminid-";
inline constexpr char kNameSuffix[] = ".state";
std::string NameOfFiles(const std::string& rank);
std::vector<std::string> PathsOfFiles(const std::vector<std::string>& folders,
                                      const std::string& rank);

// Removes the files with these paths that StripedFiles created and, if an identity is given, that
// have it. For callers without a StripedFiles.
void RemoveFiles(const std::vector<std::string>& paths, std::optional<uint64_t> identity);

struct StripedFilesSpec {
  std::vector<std::string> folders{};  // one on each disk
  std::string name{};                  // of the file in each folder; empty: files without names
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;  // for all files together; 0: none
  bool direct = true;        // without the page cache, if the file system can
  // How long to wait for a file whose killed process still has reads and writes in progress.
  absl::Duration patience = absl::Seconds(5);
};

// INVALID_ARGUMENT for no folders, too many, a folder named twice, or a path that is not a folder.
// NOT_FOUND for a path that does not exist.
absl::Status CheckFolders(const std::vector<std::string>& folders);

// Immutable once created; usable on any thread.
class StripedFiles {
 public:
  // Creates files of zeros. Replaces files of this name that no process has. RESOURCE_EXHAUSTED,
  // with numbers: a disk, a limit of the process, or `limit_bytes` is too small. UNAVAILABLE: a
  // process has a file of this name.
  static absl::StatusOr<StripedFiles> Create(const StripedFilesSpec& spec);

  // Opens the files that Create made with this spec, if they have this identity. NOT_FOUND: no file
  // has that name. DATA_LOSS: a file is not as it was created. UNAVAILABLE as for Create.
  static absl::StatusOr<StripedFiles> Open(const StripedFilesSpec& spec, uint64_t identity);

  uint64_t identity() const { return identity_; }
  const Stripes& stripes() const { return stripes_; }
  int fd(uint32_t file) const { return files_[file].fd.get(); }
  // For people and for Remove. For a file without a name: its folder.
  const std::string& path(uint32_t file) const { return files_[file].path; }
  bool is_direct(uint32_t file) const { return files_[file].direct; }
  std::vector<std::string> names() const;
  uint64_t file_bytes() const { return file_bytes_; }  // of all files together

  // For people: "2 disks, without the page cache", and any deviations from what was requested.
  std::string how() const;

  // Removes the files' names at once; their contents end with this object. No effect without names.
  void Remove() const;

 private:
  struct File {
    std::string path;
    base::UniqueFd fd;
    std::unique_ptr<ForkGuard> guard;
    bool direct = false;
    bool reserved = true;  // its space is reserved
    std::string system;    // file system, such as "nfs"; empty: unknown
  };

  absl::Status Make(const StripedFilesSpec& spec, uint32_t file);
  absl::Status OpenOne(const StripedFilesSpec& spec, uint32_t file);

  bool has_name_ = false;
  uint64_t identity_ = 0;
  uint64_t file_bytes_ = 0;
  Stripes stripes_;
  std::vector<File> files_;
};

}  // namespace geminid::disk

#endif  // GEMINID_CLIENT_DISK_STRIPED_FILES_H_
