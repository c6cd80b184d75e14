// The tensors of one prefix in a folder: in PREFIX.safetensors, or in several files with an index.
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
  // Opens all files. INVALID_ARGUMENT where a whole file and an index of others lie in the folder,
  // of which one must be stale; NOT_FOUND for a file that the index names and that is not there;
  // DATA_LOSS for an index or a header that cannot be read. Errors name the file.
  static absl::StatusOr<TensorSet> Open(const std::string& folder, const std::string& prefix);

  struct Found {
    const TensorFile* file = nullptr;
    const TensorEntry* tensor = nullptr;
  };
  // DATA_LOSS if the tensor is not there: the error names tensors that are.
  absl::StatusOr<Found> Find(const std::string& name) const;

  // The file of each tensor by the tensor's name.
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
