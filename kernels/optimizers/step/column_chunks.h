#ifndef GEMINID_KERNELS_OPTIMIZERS_STEP_COLUMN_CHUNKS_H_
#define GEMINID_KERNELS_OPTIMIZERS_STEP_COLUMN_CHUNKS_H_

#include <cstdint>

// How the squares of a matrix part are added for every column, with the same bits on host and GPU.
// The part's rows form chunks, so that many threads can work on one column; the number of chunks
// depends on the number of rows alone. In a chunk, rows are added in order, from zero. Chunks are
// added in order to the column's previous sum.
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
