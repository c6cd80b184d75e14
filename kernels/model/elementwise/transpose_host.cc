#include <algorithm>

#include "kernels/model/elementwise/transpose.h"
#include "kernels/model/elementwise/transpose_checks.h"

namespace geminid::kernels {
namespace {

constexpr size_t kTile = 32;  // on a side: both of its faces stay in the cache

float As(float value, float /*type*/) { return value; }
BFloat16 As(BFloat16 value, BFloat16 /*type*/) { return value; }
BFloat16 As(float value, BFloat16 /*type*/) { return BFloat16::FromFloat(value); }

}  // namespace

template <typename From, typename To>
Status TransposeMatrix(size_t rows, size_t cols, const From* from, To* to) {
  const Status status = CheckTranspose(rows, cols, from, to);
  if (status != Status::kOk) return status;
  for (size_t row = 0; row < rows; row += kTile) {
    for (size_t column = 0; column < cols; column += kTile) {
      for (size_t r = row; r < std::min(rows, row + kTile); ++r) {
        for (size_t c = column; c < std::min(cols, column + kTile); ++c) {
          to[c * rows + r] = As(from[r * cols + c], To());
        }
      }
    }
  }
  return Status::kOk;
}

template Status TransposeMatrix(size_t, size_t, const float*, float*);
template Status TransposeMatrix(size_t, size_t, const BFloat16*, BFloat16*);
template Status TransposeMatrix(size_t, size_t, const float*, BFloat16*);

}  // namespace geminid::kernels
