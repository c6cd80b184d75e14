// Chooses the operands of an fp32 product that are packed first (copied to dense blocks), and their
// blocks. Internal to matmul. Pure: the choice depends on the shape and its strides alone, so the
// bits of C do not depend on threads.
//
// oneDNN multiplies tiles with an edge of fewer than about 526 elements without packing them. Of
// each long row it then needs few elements at a time. These lie in cache lines of the same set, and
// on a page each, so the product runs at half of its speed.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_PACKING_H_
#define GEMINID_KERNELS_MODEL_MATMUL_PACKING_H_

#include <algorithm>
#include <cstddef>

#include "kernels/model/matmul/tiles.h"

namespace geminid::kernels {

struct Packing {
  bool a = false;
  bool b = false;

  bool any() const { return a || b; }
};

// Whether copying pays for a matrix that is read down its columns. Its rows are `stride` apart, and
// the product reads each element `uses` times. Measured with AVX2: twice as fast for long rows, and
// a few percent faster for shorter ones.
constexpr bool CopyPays(size_t stride, size_t uses) {
  return (stride >= 1024 && uses >= 64) || (stride >= 512 && uses >= 1024);
}

// The packing of a shape whose strides are filled in.
inline Packing PackingOf(const MatmulShape& s) {
  if (!MatmulTiles::Pays(s)) return {};
  // oneDNN reads a transposed B 16 rows at a time: copying pays for short parts of long rows too.
  const bool rows_pay = s.b_stride >= 2048 && s.k <= 512 && s.m >= 256;
  return {.a = s.transpose_a == Transpose::kYes && CopyPays(s.a_stride, s.n),
          .b = s.transpose_b == Transpose::kYes ? rows_pay : CopyPays(s.b_stride, s.m)};
}

// The blocks of a packed product: tiles of C times slices of k, so that each copy has a bounded
// size. There are at least eight tiles, if the matrix allows: 2, 4 and 8 threads share them evenly.
class PackedTiles {
 public:
  PackedTiles(const MatmulShape& s, const Packing& packing)
      : m_(s.m),
        n_(s.n),
        k_(s.k),
        rows_(EdgeOf(m_, kRowsMax)),
        cols_(EdgeOf(n_, kColsMax)),
        depth_(EdgeOf(k_, kDepthMax)) {
    while (row_tiles() * col_tiles() < kTilesMin) {
      const bool can_rows = rows_ >= 2 * kEdgeMin, can_cols = cols_ >= 2 * kEdgeMin;
      if (!can_rows && !can_cols) break;
      // A copy of A is used once for each column of a tile, one of B for each row.
      const bool prefers_rows = packing.a && packing.b ? rows_ > cols_ : packing.a;
      if (can_rows && (prefers_rows || !can_cols)) {
        rows_ = EvenEdge(m_, 2 * row_tiles());
      } else {
        cols_ = EvenEdge(n_, 2 * col_tiles());
      }
    }
  }

  size_t row_tiles() const { return GranuleCount(m_, rows_); }
  size_t col_tiles() const { return GranuleCount(n_, cols_); }
  size_t depths() const { return GranuleCount(k_, depth_); }
  Granule Rows(size_t index) const { return GranuleAt(index, m_, rows_); }
  Granule Cols(size_t index) const { return GranuleAt(index, n_, cols_); }
  Granule Depth(size_t index) const { return GranuleAt(index, k_, depth_); }

 private:
  static constexpr size_t kRowsMax = 256, kColsMax = 512, kDepthMax = 256;
  static constexpr size_t kTilesMin = 8, kEdgeMin = 64;
  static constexpr size_t kMultiple = 16;  // a vector of fp32

  static size_t EvenEdge(size_t size, size_t tiles) {
    return std::min(size, GranuleCount(GranuleCount(size, tiles), kMultiple) * kMultiple);
  }
  static size_t EdgeOf(size_t size, size_t most) {
    return EvenEdge(size, GranuleCount(size, most));
  }

  size_t m_, n_, k_;
  size_t rows_, cols_, depth_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_PACKING_H_
