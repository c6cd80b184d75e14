// Names the elements of the whole model's tensors that one part of the model has, for optimizers
// that need sums over whole tensors (geminid/zero.h, Options::model).
#ifndef GEMINID_TENSOR_PIECE_H_
#define GEMINID_TENSOR_PIECE_H_

#include <cstdint>

namespace geminid::zero {

// Rows of elements of a tensor, which are also rows in a parameter: a block of a matrix, or a part
// of a vector as one row.
struct TensorPiece {
  uint32_t tensor = 0;  // index in Options::model
  uint64_t rows = 1;
  uint64_t columns = 0;       // elements of each row, consecutive on both sides
  uint64_t tensor_first = 0;  // where they begin in the tensor, and the step from row to row
  uint64_t tensor_stride = 0;
  uint64_t first = 0;  // the same in the parameter
  uint64_t stride = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_TENSOR_PIECE_H_
