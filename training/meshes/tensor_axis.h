// The axis tensor of --parallel, in the planner and in the trainer:
//
//   tensor=1d:2    tensor=2d:size=4    tensor=2.5d:size=8:depth=2
//
// "1d:2" is short for "1d:size=2". Pure.
#ifndef GEMINID_TRAINING_MESHES_TENSOR_AXIS_H_
#define GEMINID_TRAINING_MESHES_TENSOR_AXIS_H_

#include <string>

#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::parallel {

// The ranks that share each layer.
struct TensorAxis {
  collectives::TensorMode mode = collectives::TensorMode::k1D;
  int size = 1;
  int depth = 1;  // of 2.5D
};

// INVALID_ARGUMENT says what is wrong: an unknown mode, sizes that are no numbers from 1 to `most`,
// or ranks that make no grid.
absl::StatusOr<TensorAxis> ReadTensor(const std::string& value, int most);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_TENSOR_AXIS_H_
