// Divides a product into tiles of C for several threads. Internal to matmul. Pure.
//
// The tiles depend on the shape alone, so the bits of C do not depend on threads. Tiles are so
// large that packing the operands again for each costs little. There are at least eight, if the
// matrix allows: 2, 4 and 8 threads share them evenly. Small products are one tile.
#ifndef GEMINID_KERNELS_MODEL_MATMUL_TILES_H_
#define GEMINID_KERNELS_MODEL_MATMUL_TILES_H_

#include <algorithm>
#include <cstddef>

#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/parallel/granules.h"

namespace geminid::kernels {

struct MatmulTile {
  size_t row = 0;
  size_t rows = 0;
  size_t col = 0;
  size_t cols = 0;
};

// The row stride of a matrix copy: one cache line more than a row. So neighbouring rows do not
// share a cache set when the row length is a power of two.
inline size_t PaddedStride(size_t cols) {
  constexpr size_t kLine = 16;
  return GranuleCount(cols, kLine) * kLine + kLine;
}

class MatmulTiles {
 public:
  explicit MatmulTiles(const MatmulShape& s) : m_(s.m), n_(s.n), rows_(s.m), cols_(s.n) {
    if (!Pays(s)) return;
    constexpr size_t kTilesMin = 8, kRowsMax = 256;
    const size_t row_tiles =
        std::max(std::clamp<size_t>(m_ / kEdgeMin, 1, kTilesMin), GranuleCount(m_, kRowsMax));
    rows_ = Edge(m_, row_tiles);
    const size_t wanted = kTilesMin / std::min(kTilesMin, GranuleCount(m_, rows_));
    cols_ = Edge(n_, std::clamp<size_t>(n_ / kEdgeMin, 1, wanted));
  }

  // Small products take less time than waking some threads.
  static bool Pays(const MatmulShape& s) {
    constexpr double kTiledOperationsMin = 4e6;
    return 2 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) >=
           kTiledOperationsMin;
  }

  size_t row_tiles() const { return GranuleCount(m_, rows_); }
  size_t col_tiles() const { return GranuleCount(n_, cols_); }
  size_t count() const { return row_tiles() * col_tiles(); }

  // Tiles in the same columns, which read the same part of B, follow each other.
  MatmulTile At(size_t index) const {
    const Granule row = GranuleAt(index % row_tiles(), m_, rows_);
    const Granule col = GranuleAt(index / row_tiles(), n_, cols_);
    return {row.begin, row.size(), col.begin, col.size()};
  }

 private:
  static constexpr size_t kEdgeMin = 64;
  static constexpr size_t kEdgeMultiple = 16;  // a vector of fp32

  static size_t Edge(size_t size, size_t tiles) {
    return std::min(size, GranuleCount(GranuleCount(size, tiles), kEdgeMultiple) * kEdgeMultiple);
  }

  size_t m_;
  size_t n_;
  size_t rows_;
  size_t cols_;
};

// The tiles of a product of fp32 copies. Columns form panels. A panel is narrow enough that its
// copy of B and its tile of C stay in a core's cache and are never written to memory.
class WideTiles {
 public:
  explicit WideTiles(const MatmulShape& s) : m_(s.m), n_(s.n), cols_(Width(s)) {}

  size_t panels() const { return GranuleCount(n_, cols_); }
  Granule Panel(size_t index) const { return GranuleAt(index, n_, cols_); }
  size_t row_tiles() const { return GranuleCount(m_, kRowsMax); }
  Granule Rows(size_t index) const { return GranuleAt(index, m_, kRowsMax); }

 private:
  static constexpr size_t kRowsMax = 256;

  static size_t Width(const MatmulShape& s) {
    // 384 KiB, of an L2 cache of 512 KiB to 2 MiB.
    constexpr size_t kPanelElements = size_t{96} << 10;
    constexpr size_t kLeast = 64, kMost = 512, kMultiple = 16;
    constexpr size_t kTilesMin = 8;  // 2, 4 and 8 threads share them evenly
    const size_t wanted_panels = GranuleCount(kTilesMin, GranuleCount(s.m, kRowsMax));
    const size_t even = std::max(kLeast, GranuleCount(s.n, wanted_panels));
    const size_t width = std::min(std::clamp(kPanelElements / s.k, kLeast, kMost), even);
    return std::min(s.n, GranuleCount(width, kMultiple) * kMultiple);
  }

  size_t m_;
  size_t n_;
  size_t cols_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_MATMUL_TILES_H_
