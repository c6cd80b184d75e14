#ifndef GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ROW_PIECES_H_
#define GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ROW_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/optimizers/adafactor/factors.h"

// Part of a tensor, cut at the ends of rows.
namespace geminid::kernels {

struct RowPiece {
  size_t begin;  // within the part
  size_t count;
  uint64_t row;
  uint64_t column;  // of the first element
};

// Calls `body` for the elements [offset, offset + count) of a tensor, in order. A tensor that is no
// matrix has one row.
template <class Body>
void ForEachRowPiece(const FactorShape& shape, uint64_t offset, size_t count, Body body) {
  const uint64_t width = shape.Columns();
  for (size_t begin = 0; begin < count;) {
    const uint64_t at = offset + begin;
    const uint64_t column = at % width;
    const auto length = static_cast<size_t>(std::min<uint64_t>(width - column, count - begin));
    body(RowPiece{begin, length, at / width, column});
    begin += length;
  }
}

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_ADAFACTOR_ROW_PIECES_H_
