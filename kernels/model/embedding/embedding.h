// Token and learned position embeddings.
//
//   y[t] = tokens_table[ids[t]] (+ position_table[t mod sequence])
//
// The table may hold only the rows [first_row, first_row + rows) of a vocabulary that is sharded
// over ranks. Ids of other rows give zeros, so that the sum over ranks is the embedding. Give
// position_table to one rank only.
// A row's gradients are summed in fp32 in token order, kEmbeddingChunkTokens tokens to a chunk; the
// chunks' sums are then added in order and rounded to T once. There are no atomics: the bits are
// the same on every run. T is float or BFloat16.
#ifndef GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_H_
#define GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernels {

inline constexpr size_t kEmbeddingChunkTokens = 64;

struct EmbeddingShape {
  size_t tokens = 0;
  size_t hidden = 0;
  size_t vocabulary = 0;  // every id is in [0, vocabulary), or the call fails
  size_t first_row = 0;   // the first vocabulary row that the table holds
  size_t rows = 0;        // rows of the table
};

// Writes y[tokens,hidden]. Adds position_table[t mod sequence] (one rounding) unless position_table
// is null; without a position_table `sequence` is ignored.
template <typename T>
Status EmbeddingForward(const EmbeddingShape& shape, const int32_t* ids, const T* table,
                        const T* position_table, size_t sequence, T* y);

// Bytes of workspace for EmbeddingBackward: 8 (rows + 1 + tokens), rounded up to 64.
size_t EmbeddingWorkspaceBytes(const EmbeddingShape& shape);

// dtable[rows,hidden] (+)= scatter of dy. Without `accumulate` rows that no token names are zeroed.
// Cost: O(tokens * hidden + rows). `workspace` is 64-byte aligned.
template <typename T>
Status EmbeddingBackward(const EmbeddingShape& shape, const int32_t* ids, const T* dy, T* dtable,
                         bool accumulate, void* workspace, size_t workspace_bytes);

// dpositions[sequence,hidden] (+)= sum over the batch entries of dy[batch*sequence,hidden].
template <typename T>
Status PositionEmbeddingBackward(size_t batch, size_t sequence, size_t hidden, const T* dy,
                                 T* dpositions, bool accumulate);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_EMBEDDING_EMBEDDING_H_
