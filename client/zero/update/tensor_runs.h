// Which elements of a parameter are which of the tensors that the optimizer looks at: the parameter
// itself, or with Options::model what it has pieces of. Pure.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_TENSOR_RUNS_H_
#define GEMINID_CLIENT_ZERO_UPDATE_TENSOR_RUNS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "geminid/zero.h"

namespace geminid::zero {

// Consecutive elements on both sides.
struct TensorRun {
  uint32_t tensor = 0;
  uint64_t tensor_offset = 0;
  uint64_t offset = 0;  // in the parameter
  uint64_t elements = 0;
};

// In the order of the parameter's elements, those of no tensor left out. `model` is of Options, and
// CheckPieces has passed. `id`: of the parameter, which is its tensor where there is no model.
std::vector<TensorRun> RunsOf(const Parameter& parameter, uint32_t id,
                              const std::vector<Parameter>& model);

// INVALID_ARGUMENT for pieces that are not within parameter and tensor, that overlap in the
// parameter, or that are trained in only one of the two. So is a parameter without pieces whose
// name and size no tensor has, and a tensor without elements. Without a model nothing is wrong.
absl::Status CheckPieces(const std::vector<Parameter>& parameters,
                         const std::vector<Parameter>& model);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_TENSOR_RUNS_H_
