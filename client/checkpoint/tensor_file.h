// One safetensors file on disk, read and written by ranges of its tensors.
//
// Threads: any number may read and write different ranges at the same time.
#ifndef GEMINID_CLIENT_CHECKPOINT_TENSOR_FILE_H_
#define GEMINID_CLIENT_CHECKPOINT_TENSOR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/checkpoint/safetensors.h"

namespace geminid::checkpoint {

// The same status, with the file's path in its message.
absl::Status Named(const std::string& path, const absl::Status& status);

class TensorFile {
 public:
  // Neither function that opens for writing follows links; see OpenWithoutLinks. Create makes a new
  // file with this header and room for all its tensors, which are zero until written.
  // RESOURCE_EXHAUSTED if the disk has no room for it.
  static absl::StatusOr<TensorFile> Create(const std::string& path, const Header& header);
  // Opens a file for writing that another process created with the same header.
  static absl::StatusOr<TensorFile> OpenToWrite(const std::string& path, const Header& header);
  // Opens a file for reading. DATA_LOSS names the file and what is wrong with it.
  static absl::StatusOr<TensorFile> OpenToRead(const std::string& path);

  const std::string& path() const { return path_; }
  const Header& header() const { return header_; }
  uint64_t file_bytes() const { return header_.data_begin + header_.data_bytes; }
  // The offset of a tensor's element in the file.
  uint64_t PlaceOf(const TensorEntry& tensor, uint64_t element) const {
    return header_.data_begin + tensor.offset + element * SizeOf(tensor.type);
  }

  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes) const;
  absl::Status Read(uint64_t offset, std::span<std::byte> bytes) const;
  // Reads elements of a tensor of any floating-point type, as fp32.
  absl::Status ReadFloats(const TensorEntry& tensor, uint64_t first, std::span<float> values) const;

  // Returns when everything written to the file, by any process, is on the disk.
  absl::Status Sync() const;

 private:
  TensorFile(std::string path, base::UniqueFd fd, Header header);

  std::string path_;
  base::UniqueFd fd_;
  Header header_;
};

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_TENSOR_FILE_H_
