// The embedding of tokens with a table that is sharded over a tensor-parallel grid along the
// vocabulary and, in 2D, 2.5D and 3D, also along the features. In fp32.
//
//   mode         table [vocabulary, features]          ids of              gives Y as
//   1D-sequence  words by column                       all tokens          X of a first layer
//   2D, 2.5D     words by row, features by column      the depth's tokens  "
//   3D           words by input, then weight;          the tokens of its   "
//                features by output                    weight coordinate
//
// A rank looks up the words that it has, for more tokens than are its own; zeros stand for the
// others, and the sum over the axis that cuts the words is scattered along the tokens. In
// 1D-sequence and 3D the table lies as the W of a first layer with the vocabulary as its outputs,
// so that one block serves both where the weights are tied. In 2D and 2.5D rows and columns of the
// grid are exchanged between the two. 1D has the blocks of 1D-sequence, and no layer here.
//
// Elements that each rank receives; |Y| = tokens * features, |W| = the table's elements:
//
//   mode         forward                  backward                                   partners
//   1D-sequence  (P-1)/P |Y|              (P-1)/P |Y|                                P-1
//   2D           (q-1)/q^2 |Y|            (q-1)/q^2 |Y|                              q-1
//   2.5D         (q-1)/(d q^2) |Y|        (q-1)/(d q^2) |Y| + 2 (d-1)/(d q^2) |W|    q-1 + d-1
//   3D           (d-1)/d^3 (|W| + |Y|)    (d-1)/d^3 (|W| + |Y|)                      2 (d-1)
//
// All-reduces of up to kDirectAllReduceBytes, along the depth, receive d-1 times their size
// instead. In 2D and 2.5D a rank holds its features of all the depth's tokens for a moment, in 3D
// its table d times.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_EMBEDDING_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_EMBEDDING_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/model/embedding/embedding.h"
#include "training/nn/parallel/tensor/linear_scratch.h"
#include "training/nn/parallel/tensor/tensor_groups.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {

struct EmbeddingShape {
  size_t tokens = 0;
  size_t vocabulary = 0;  // need not be divisible: tables have PaddedVocabulary() rows
  size_t hidden = 0;
};

struct EmbeddingBlocks {
  Range ids;    // of the tokens
  Block table;  // [PaddedVocabulary(), hidden]
  Block y;      // [tokens, hidden]
};

// INVALID_ARGUMENT names the size that must be divisible, and the divisor.
absl::StatusOr<EmbeddingBlocks> BlocksOf(const TensorGrid& grid, const EmbeddingShape& shape,
                                         int rank);

// All ranks of the grid call the same methods in the same order. One thread at a time. Errors are
// those of the communicators. INVALID_ARGUMENT, before anything is sent, for a span that does not
// have its block's size and for an id outside the vocabulary. If only some ranks have this error,
// the others wait for them until their timeout. On a GPU ids are not checked: the embedding of an
// id outside the vocabulary is 0.
class ParallelEmbedding {
 public:
  // `groups` and `scratch` outlive the layer, which holds no memory of its own. INVALID_ARGUMENT as
  // BlocksOf, and in 1D.
  static absl::StatusOr<std::unique_ptr<ParallelEmbedding>> Make(TensorGroups& groups,
                                                                 const EmbeddingShape& shape,
                                                                 LinearScratch& scratch);

  const EmbeddingBlocks& blocks() const { return blocks_; }

  absl::Status Forward(std::span<const int32_t> ids, std::span<const float> table,
                       std::span<float> y);

  // Overwrites the table's gradient. Depths that store the same block each get its whole gradient.
  absl::Status Backward(std::span<const int32_t> ids, std::span<const float> dy,
                        std::span<float> dtable);

 private:
  ParallelEmbedding(TensorGroups& groups, const EmbeddingShape& shape,
                    const EmbeddingBlocks& blocks, LinearScratch& scratch);

  absl::Status CheckIds(std::span<const int32_t> ids) const;
  // The table of all that this rank looks up in, where that is more than it is given, and Y of all
  // tokens that it does so for.
  struct Room {
    FloatBlock table, y;
  };
  absl::StatusOr<Room> Take();

  TensorGroups& groups_;
  const EmbeddingShape shape_;
  const EmbeddingBlocks blocks_;
  LinearScratch& scratch_;
  AxisRanks& words_;           // along which Y is added up
  AxisRanks* const gathered_;  // along which the table is gathered; null but in 3D
  const kernels::EmbeddingShape part_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_PARALLEL_EMBEDDING_H_
