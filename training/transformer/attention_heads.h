// What attention does with each head of queries and keys before it compares them: it takes them out
// of a fused projection, norms them in models that do, and turns them by their positions. Internal
// to attention.
#ifndef GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_
#define GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_

#include <optional>

#include "base/status_macros.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/transformer/norm_layer.h"

namespace geminid::trainer {

// Turns queries or keys, which are dense, by their positions, or gradients back: of each head what
// the tables turn. Without tables: nothing.
template <typename T>
absl::Status Rotate(const Resources& resources, const HalfContext& context, Turn turn,
                    Matrix<T> x) {
  if (context.rotary.cos == nullptr) return absl::OkStatus();
  const size_t head_dim = context.config->head_dim();
  const size_t length = context.shape.sequence_length;
  const kernels::RotaryShape shape = {.batch = context.shape.sequences,
                                      .sequence = length,
                                      .heads = x.cols / head_dim,
                                      .head_dim = context.config->rotary_columns(),
                                      .token_stride = x.stride,
                                      .head_stride = head_dim};
  return KernelsFor<T>(resources).Rotate(resources, turn, shape, context.rotary, x.data);
}

// What AttentionPlaces::qkv gives, dense: of each key/value head of a token the queries that read
// it, its key and its value. Seen as a row for each key/value head, so that a move is one copy of
// rows.
template <typename T>
class FusedHeads {
 public:
  FusedHeads(const ModelConfig& config, Matrix<T> fused)
      : head_dim_(config.head_dim()),
        query_columns_(config.heads / config.kv_heads * head_dim_),
        rows_(fused.data, fused.size() / (query_columns_ + 2 * head_dim_),
              query_columns_ + 2 * head_dim_) {}

  // q, k and v are dense.
  absl::Status Split(const Resources& resources, Matrix<T> q, Matrix<T> k, Matrix<T> v) const {
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    GEMINID_RETURN_IF_ERROR(math.Copy(resources, Queries(), ByHead(q, query_columns_)));
    GEMINID_RETURN_IF_ERROR(math.Copy(resources, Keys(), ByHead(k, head_dim_)));
    return math.Copy(resources, Values(), ByHead(v, head_dim_));
  }
  absl::Status Join(const Resources& resources, Matrix<T> q, Matrix<T> k, Matrix<T> v) const {
    const KernelsOf<T>& math = KernelsFor<T>(resources);
    GEMINID_RETURN_IF_ERROR(math.Copy(resources, ByHead(q, query_columns_), Queries()));
    GEMINID_RETURN_IF_ERROR(math.Copy(resources, ByHead(k, head_dim_), Keys()));
    return math.Copy(resources, ByHead(v, head_dim_), Values());
  }

 private:
  Matrix<T> Queries() const { return rows_.Cols(0, query_columns_); }
  Matrix<T> Keys() const { return rows_.Cols(query_columns_, head_dim_); }
  Matrix<T> Values() const { return rows_.Cols(query_columns_ + head_dim_, head_dim_); }
  Matrix<T> ByHead(Matrix<T> dense, size_t columns) const {
    return {dense.data, rows_.rows, columns};
  }

  size_t head_dim_;
  size_t query_columns_;  // that read one key/value head
  Matrix<T> rows_;
};

// Norms each head of queries or keys, which are dense, in place. Without a norm: nothing.
template <typename T>
absl::Status NormHeads(const Resources& resources, const HalfContext& context,
                       const std::optional<NormPlace>& place, const ParameterUse& use,
                       Matrix<T> x) {
  if (!place) return absl::OkStatus();
  const size_t head_dim = context.config->head_dim();
  GEMINID_ASSIGN_OR_RETURN(
      auto norm, NormLayer<T>::Create(resources, context, *place, x.size() / head_dim, head_dim));
  return norm.Forward(use, x.data, x.data);
}

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_
