#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_COLUMN_CHUNKS_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_COLUMN_CHUNKS_H_

#include <cstdint>

// How squares are added over the rows of a part of a matrix, for every column, on the host and on a
// GPU with the same bits: rows, from the part's first on, are cut into chunks, whose number depends
// on that of the rows alone, so that many threads can work on one column. In a chunk rows are added
// in order, from zero; chunks are added in order to what the column's sum was before.
namespace geminid::kernels {

struct ColumnChunks {
  static constexpr uint64_t kMost = 64;
  static constexpr uint64_t kLeastRows = 64;

  uint64_t rows_per_chunk;
  uint64_t chunks;

  explicit constexpr ColumnChunks(uint64_t rows)
      : rows_per_chunk(rows <= kMost * kLeastRows ? kLeastRows : (rows + kMost - 1) / kMost),
        chunks((rows + rows_per_chunk - 1) / rows_per_chunk) {}
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_STEP_COLUMN_CHUNKS_H_
