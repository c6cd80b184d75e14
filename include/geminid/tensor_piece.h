// What one part of a model has of the whole model's tensors, for optimizers that look at whole
// tensors (geminid/zero.h, Options::model).
#ifndef GEMINID_TENSOR_PIECE_H_
#define GEMINID_TENSOR_PIECE_H_

#include <cstdint>

namespace geminid::zero {

// Rows of elements of a tensor, which lie in a parameter as rows, too: a block of a matrix, or part
// of a vector as one row.
struct TensorPiece {
  uint32_t tensor = 0;  // in Options::model
  uint64_t rows = 1;
  uint64_t columns = 0;       // elements of each, consecutive on both sides
  uint64_t tensor_first = 0;  // element of the tensor where they begin, and from row to row
  uint64_t tensor_stride = 0;
  uint64_t first = 0;  // likewise of the parameter
  uint64_t stride = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_TENSOR_PIECE_H_
