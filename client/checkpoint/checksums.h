// Checksums of every byte of a checkpoint's files, as written, piece by piece.
#ifndef GEMINID_CLIENT_CHECKPOINT_CHECKSUMS_H_
#define GEMINID_CLIENT_CHECKPOINT_CHECKSUMS_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace geminid::checkpoint {

// Consecutive bytes of a file.
struct CheckedRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint32_t file = 0;  // index in the list of files
  uint32_t crc32c = 0;
};

// Collects checksums of the pieces that one rank writes. Usable on any thread.
class Checksums {
 public:
  void Add(uint32_t file, uint64_t offset, std::span<const std::byte> bytes);
  std::vector<CheckedRange> Take();

 private:
  std::mutex mutex_;
  std::vector<CheckedRange> pieces_;
};

// "checksums-00000-of-00002.safetensors".
std::string ChecksumsName(int rank, int ranks);

// Writes the checksums of pieces of `files`, and syncs.
absl::Status WriteChecksums(const std::string& path, const std::vector<std::string>& files,
                            const std::vector<CheckedRange>& pieces);

struct CheckedFileRanges {
  std::vector<std::string> files;
  std::vector<CheckedRange> pieces;
};
absl::StatusOr<CheckedFileRanges> ReadChecksums(const std::string& path);
// Of all writers of a checkpoint, which were `ranks`.
absl::StatusOr<CheckedFileRanges> ReadAllChecksums(const std::string& folder, uint64_t ranks);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_CHECKSUMS_H_
