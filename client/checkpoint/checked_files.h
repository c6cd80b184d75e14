// Reads the files of a checkpoint and compares their bytes with their checksums on the way.
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

// Bytes of a file, by its place in the list of files.
struct FileRange {
  uint32_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// One thread at a time.
class CheckedFiles {
 public:
  // The files that the checksums name; errors name the file. DATA_LOSS unless every byte of them
  // has one checksum, and there are no others.
  static absl::StatusOr<CheckedFiles> Open(const std::string& folder, ReadPieces written);

  // Compares what begins the files: headers, and small files that are written as a whole.
  absl::Status CheckBeginnings() const;

  struct Tensor {
    FileRange bytes;
    std::string name;
  };
  struct Reading {
    int rank = 0;
    int ranks = 1;
    // Of which the ranks want every byte among them; the same for all.
    std::vector<Tensor> tensors;
    // Of which this rank is given the bytes, block by block in the order of the files, before their
    // checksum is known: all of it counts only when Read returns OK on all ranks. `offset` is from
    // the beginning of wanted[i].
    std::vector<FileRange> wanted;
    std::function<absl::Status(size_t i, uint64_t offset, std::span<const std::byte> bytes)> take;
  };
  // Reads once all that this rank wants, and its share of what lies outside the tensors, so that
  // the ranks together compare everything. DATA_LOSS names file, tensor and bytes.
  absl::Status Read(const Reading& reading) const;

  // The place of a file in the list. DATA_LOSS for one that has no checksums.
  absl::StatusOr<uint32_t> Find(const std::string& name) const;

 private:
  struct Opened {
    base::UniqueFd fd;
    uint64_t bytes = 0;
  };
  class Pass;

  CheckedFiles(std::string folder, ReadPieces written);
  absl::Status OpenAll();
  absl::Status CheckCover() const;
  std::string PathOf(uint32_t file) const { return folder_ + "/" + names_[file]; }
  absl::Status Altered(const Piece& piece, const char* how, const std::string& tensor) const;

  std::string folder_;
  std::vector<std::string> names_;
  std::vector<Piece> pieces_;  // by file and offset
  std::vector<Opened> files_;
};

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_CHECKED_FILES_H_
