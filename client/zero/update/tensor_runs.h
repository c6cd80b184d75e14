// Maps a parameter's elements to the tensors that the optimizer sees: the parameter itself, or,
// with Options::model, the tensors that it has pieces of. Pure.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_TENSOR_RUNS_H_
#define GEMINID_CLIENT_ZERO_UPDATE_TENSOR_RUNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Elements that are consecutive in the tensor and in the parameter.
struct TensorRun {
  uint32_t tensor = 0;
  uint64_t tensor_offset = 0;
  uint64_t offset = 0;  // in the parameter
  uint64_t elements = 0;
};

// In the order of the parameter's elements, without elements of no tensor. `model`: of Options, and
// checked by CheckPieces. `id`: the parameter's, which names its tensor if there is no model.
std::vector<TensorRun> RunsOf(const Parameter& parameter, uint32_t id,
                              const std::vector<Parameter>& model);

// INVALID_ARGUMENT for pieces outside of the parameter or the tensor, that overlap in the
// parameter, or that only one of the two trains. Also for a tensor without elements, and for a
// parameter without pieces that no tensor matches by name and size. Always OK without a model.
absl::Status CheckPieces(const std::vector<Parameter>& parameters,
                         const std::vector<Parameter>& model);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_TENSOR_RUNS_H_
