// One space of bytes in files on one or several disks: made, opened again, and removed.
//
// A new file has all of its space at once, so that a full disk is known before training begins. A
// file without a name is gone when the last process that has it ends, however that ends. A file
// with a name outlives its process for the one that goes on: Open takes it only if it is the very
// file that was made. While a process has it, nobody else gets it.
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

// Of the files of a rank, which is named by `rank`.
inline constexpr char kNamePrefix[] = "geminid-";
inline constexpr char kNameSuffix[] = ".state";
std::string NameOfFiles(const std::string& rank);
std::vector<std::string> PathsOfFiles(const std::vector<std::string>& folders,
                                      const std::string& rank);

// Removes the files with these paths that StripedFiles made, and that have this identity where one
// is given. For whoever has no StripedFiles.
void RemoveFiles(const std::vector<std::string>& paths, std::optional<uint64_t> identity);

struct StripedFilesSpec {
  std::vector<std::string> folders{};  // one on each disk
  std::string name{};                  // of the file in each folder; empty: it has none
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;  // of all files together; 0: none
  bool direct = true;        // without the page cache, where the file system can
  // For a file in use: the last reads and writes of a process that was killed may not have ended.
  absl::Duration patience = absl::Seconds(5);
};

// INVALID_ARGUMENT for no folders, too many, one twice or one that is no folder, NOT_FOUND for one
// that does not exist.
absl::Status CheckFolders(const std::vector<std::string>& folders);

// Read-only after it was made: any thread.
class StripedFiles {
 public:
  // New files, of zeros. Those of this name that nobody has are replaced. RESOURCE_EXHAUSTED with
  // the numbers where a disk, a limit of the process or `limit_bytes` has too little;
  // UNAVAILABLE while a process has a file of this name.
  static absl::StatusOr<StripedFiles> Create(const StripedFilesSpec& spec);

  // Those that Create made with this spec, if they have this identity. NOT_FOUND: there is none of
  // that name; DATA_LOSS: what is there is other than it was made; UNAVAILABLE as Create.
  static absl::StatusOr<StripedFiles> Open(const StripedFilesSpec& spec, uint64_t identity);

  uint64_t identity() const { return identity_; }
  const Stripes& stripes() const { return stripes_; }
  int fd(uint32_t file) const { return files_[file].fd.get(); }
  // For people and for Remove; of a file without a name, its folder.
  const std::string& path(uint32_t file) const { return files_[file].path; }
  bool is_direct(uint32_t file) const { return files_[file].direct; }
  std::vector<std::string> names() const;
  uint64_t file_bytes() const { return file_bytes_; }  // of all files together

  // For people: "2 disks, without the page cache", and what is not as it should be.
  std::string how() const;

  // The names go at once, the contents with this. Nothing happens where there is none.
  void Remove() const;

 private:
  struct File {
    std::string path;
    base::UniqueFd fd;
    std::unique_ptr<ForkGuard> guard;
    bool direct = false;
    bool reserved = true;  // its space
    std::string system;    // of files: "nfs"; empty: not known
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
