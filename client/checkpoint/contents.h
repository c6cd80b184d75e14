// Which tensors are in which files of a checkpoint. Pure.
#ifndef GEMINID_CLIENT_CHECKPOINT_CONTENTS_H_
#define GEMINID_CLIENT_CHECKPOINT_CONTENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/checkpoint/safetensors.h"
#include "geminid/zero.h"

namespace geminid::checkpoint {

inline constexpr char kModelPrefix[] = "model";
inline constexpr char kOptimizerPrefix[] = "optimizer";
// The optimizer's tensor state, as bytes.
inline constexpr char kTensorStateName[] = "geminid.tensor_state";

struct PlannedFile {
  std::string name;
  Header header;
};

// Where a tensor is: the file, and the entry of its header.
struct TensorPlace {
  uint32_t file = 0;
  uint32_t entry = 0;
};

struct Contents {
  std::vector<PlannedFile> files;
  std::map<std::string, TensorPlace> places;  // by tensor name
};

// INVALID_ARGUMENT names a parameter whose name a file cannot hold.
absl::Status CheckNames(const std::vector<zero::Parameter>& parameters);

// The tensor name of a parameter's state in the files.
std::string TensorName(const std::string& parameter, zero::StateKind kind);

// The element type of a kind of state in the files. `state_type`: of the optimizer's arrays.
ElementType TypeInFiles(zero::StateKind kind, zero::DataType state_type);

// First the values in order, in files of at most `max_file_bytes`. Then, in files of their own, the
// optimizer's arrays for which `has_state` is true, and at the end `tensor_state_bytes`.
absl::StatusOr<Contents> PlanContents(
    const std::vector<zero::Parameter>& parameters,
    const std::function<bool(zero::ParameterId, zero::StateKind)>& has_state,
    zero::DataType state_type, uint64_t tensor_state_bytes, uint64_t max_file_bytes);

// Lays out tensors, whose name, type, shape and bytes are set, in order in files of the model.
absl::StatusOr<Contents> PlanModel(std::vector<TensorEntry> tensors, uint64_t max_file_bytes);

// The text of "PREFIX.safetensors.index.json" if the prefix has several files; else empty.
std::string IndexText(const Contents& contents, const std::string& prefix);

// The file of each tensor, from an index's text. DATA_LOSS if the text is invalid.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& text);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_CONTENTS_H_
