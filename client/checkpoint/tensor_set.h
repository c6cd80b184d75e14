// A folder's tensors with one prefix: in PREFIX.safetensors, or in several files with an index.
#ifndef GEMINID_CLIENT_CHECKPOINT_TENSOR_SET_H_
#define GEMINID_CLIENT_CHECKPOINT_TENSOR_SET_H_

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/tensor_file.h"

namespace geminid::checkpoint {

class TensorSet {
 public:
  // Opens all files. INVALID_ARGUMENT if the folder has both a single file and an index of others,
  // one of which must be outdated. NOT_FOUND if a file of the index is missing. DATA_LOSS if an
  // index or a header cannot be read. Errors name the file.
  static absl::StatusOr<TensorSet> Open(const std::string& folder, const std::string& prefix);

  struct Found {
    const TensorFile* file = nullptr;
    const TensorEntry* tensor = nullptr;
  };
  // DATA_LOSS if there is no such tensor: the error names tensors that exist.
  absl::StatusOr<Found> Find(const std::string& name) const;

  // By the tensor's name: its file.
  const std::map<std::string, std::string>& file_of() const { return file_of_; }

 private:
  explicit TensorSet(std::string folder) : folder_(std::move(folder)) {}
  absl::Status OpenFile(const std::string& name);
  absl::Status OpenIndexed(const std::string& index);

  std::string folder_;
  std::map<std::string, TensorFile> files_;
  std::map<std::pair<std::string, std::string>, const TensorEntry*> entries_;
  std::map<std::string, std::string> file_of_;
};

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_TENSOR_SET_H_
