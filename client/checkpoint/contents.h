// Which tensors lie in which files of a checkpoint. Pure.
#ifndef GEMINID_CLIENT_CHECKPOINT_CONTENTS_H_
#define GEMINID_CLIENT_CHECKPOINT_CONTENTS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/checkpoint/safetensors.h"
#include "geminid/zero.h"

namespace geminid::checkpoint {

inline constexpr char kModelPrefix[] = "model";
inline constexpr char kOptimizerPrefix[] = "optimizer";
// The optimizer's numbers per tensor, as bytes.
inline constexpr char kTensorStateName[] = "geminid.tensor_state";

struct PlannedFile {
  std::string name;
  Header header;
};

// Where a tensor is: file, and entry of its header.
struct TensorPlace {
  uint32_t file = 0;
  uint32_t entry = 0;
};

struct Contents {
  std::vector<PlannedFile> files;
  std::map<std::string, TensorPlace> places;  // by name of the tensor
};

// What a parameter's state is called in the files.
std::string TensorName(const std::string& parameter, zero::StateKind kind);

// How the files have a kind of state, where the optimizer's arrays are of `state_type`.
ElementType TypeInFiles(zero::StateKind kind, zero::DataType state_type);

// The values in order in files of at most `max_file_bytes`, then the optimizer's arrays, for those
// that `has_state` says exist, in files of their own, and at their end `tensor_state_bytes`.
absl::StatusOr<Contents> PlanContents(
    const std::vector<zero::Parameter>& parameters,
    const std::function<bool(zero::ParameterId, zero::StateKind)>& has_state,
    zero::DataType state_type, uint64_t tensor_state_bytes, uint64_t max_file_bytes);

// Tensors whose name, type, shape and bytes are set, in order in files of the model.
absl::StatusOr<Contents> PlanModel(std::vector<TensorEntry> tensors, uint64_t max_file_bytes);

// "model.safetensors.index.json", when the prefix's tensors are in several files; else empty.
std::string IndexText(const Contents& contents, const std::string& prefix);

// The file of each tensor, from such a text. DATA_LOSS.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& text);

}  // namespace geminid::checkpoint

#endif  // GEMINID_CLIENT_CHECKPOINT_CONTENTS_H_
