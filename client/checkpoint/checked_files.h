// Reads the files of a checkpoint and compares their bytes with their checksums while reading.
#ifndef GEMINID_CLIENT_CHECKPOINT_CHECKED_FILES_H_
#define GEMINID_CLIENT_CHECKPOINT_CHECKED_FILES_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/checkpoint/checksums.h"

namespace geminid::checkpoint {

// A range of bytes of a file, which is given by its index in the list of files.
struct FileRange {
  uint32_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// Used by one thread at a time.
class CheckedFiles {
 public:
  // Opens the files that the checksums name. DATA_LOSS, naming the file, unless every byte has
  // exactly one checksum and the folder has no other files.
  static absl::StatusOr<CheckedFiles> Open(const std::string& folder, CheckedFileRanges written);

  // Compares the files' first pieces: headers, and small files that were written as a whole.
  absl::Status CheckBeginnings() const;

  struct Tensor {
    FileRange bytes;
    std::string name;
  };
  struct Reading {
    int rank = 0;
    int ranks = 1;
    // Together the ranks read every byte of these tensors. The same list on all ranks.
    std::vector<Tensor> tensors;
    // The ranges that this rank gets. `take` is called block by block in the order of the files,
    // before the checksum is known: the bytes are valid only when Read returns OK on all ranks.
    // `offset` counts from the beginning of wanted[i].
    std::vector<FileRange> wanted;
    std::function<absl::Status(size_t i, uint64_t offset, std::span<const std::byte> bytes)> take;
  };
  // Reads once all ranges that this rank wants, and its share of the bytes outside of the tensors,
  // so that the ranks together compare every byte. DATA_LOSS names file, tensor and bytes.
  absl::Status Read(const Reading& reading) const;

  // The file's index in the list. DATA_LOSS if the file has no checksums.
  absl::StatusOr<uint32_t> Find(const std::string& name) const;

 private:
  struct Opened {
    base::UniqueFd fd;
    uint64_t bytes = 0;
  };
  class Pass;

  CheckedFiles(std::string folder, CheckedFileRanges written);
  absl::Status OpenAll();
  absl::Status CheckCover() const;
  std::string PathOf(uint32_t file) const { return folder_ + "/" + names_[file]; }
  absl::Status Altered(const CheckedRange& piece, const char* how, const std::string& tensor) const;

  std::string folder_;
  std::vector<std::string> names_;
  std::vector<CheckedRange> pieces_;  // by file and offset
  std::vector<Opened> files_;
};

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_CHECKED_FILES_H_
