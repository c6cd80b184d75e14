// How the matrices of a product are stored. Internal to matmul.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_CHECKS_H_
#define GEMINID_KERNELS_MODEL_MATMUL_CHECKS_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/model/matmul/matmul.h"

namespace geminid::kernels {

// A stored matrix: `rows` rows of `cols` elements, `stride` elements apart.
struct MatrixStorage {
  size_t rows;
  size_t cols;
  size_t stride;

  size_t dense() const { return rows * cols; }
  size_t span() const { return (rows - 1) * stride + cols; }
};

inline MatrixStorage StorageA(const MatmulShape& s) {
  if (s.transpose_a == Transpose::kYes) return {s.k, s.m, s.a_stride};
  return {s.m, s.k, s.a_stride};
}

inline MatrixStorage StorageB(const MatmulShape& s) {
  if (s.transpose_b == Transpose::kYes) return {s.n, s.k, s.b_stride};
  return {s.k, s.n, s.b_stride};
}

inline MatrixStorage StorageC(const MatmulShape& s) { return {s.m, s.n, s.c_stride}; }

// Fills in the strides that were left 0, then checks every dimension.
inline Status NormaliseMatmul(MatmulShape* shape) {
  constexpr size_t kDimensionMax = std::numeric_limits<int32_t>::max();
  for (const size_t dimension : {shape->m, shape->n, shape->k}) {
    if (dimension == 0 || dimension > kDimensionMax) return Status::kInvalidShape;
  }
  if (shape->a_stride == 0) shape->a_stride = StorageA(*shape).cols;
  if (shape->b_stride == 0) shape->b_stride = StorageB(*shape).cols;
  if (shape->c_stride == 0) shape->c_stride = StorageC(*shape).cols;
  for (const MatrixStorage& storage : {StorageA(*shape), StorageB(*shape), StorageC(*shape)}) {
    if (storage.stride < storage.cols || storage.stride > kDimensionMax) {
      return Status::kInvalidShape;
    }
  }
  return Status::kOk;
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_CHECKS_H_
