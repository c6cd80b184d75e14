// The heads of attention: their groups, and the steps on queries and keys before attention compares
// them. These steps split a fused projection, norm the heads in models that do, and apply rotary
// positions. Internal to attention.
#ifndef GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_
#define GEMINID_TRAINING_TRANSFORMER_ATTENTION_HEADS_H_

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "base/pages.h"
#include "base/status_macros.h"
#include "kernels/model/attention/attention.h"
#include "training/nn/blocks.h"
#include "training/nn/compute.h"
#include "training/nn/parallel/sequence/ulysses_exchange.h"
#include "training/transformer/attention_sublayer.h"
#include "training/transformer/norm_layer.h"

namespace geminid::trainer {

// Consecutive key/value heads and the query heads that read them.
struct Group {
  size_t first_query;  // column
  size_t query_columns;
  size_t first_kv;  // column
  size_t kv_columns;
  kernels::AttentionShape shape;
};

// Divides the heads into groups of about tiling.attention_columns query columns.
class Groups {
 public:
  explicit Groups(const SublayerContext& context) : context_(context) {
    const ModelConfig& config = *context.config;
    queries_per_kv_ = config.heads / config.kv_heads;
    const size_t columns_per_kv = queries_per_kv_ * config.head_dim();
    kv_heads_per_group_ =
        config.norms_heads() ? config.kv_heads
                             : std::clamp<size_t>(context.tiling.attention_columns / columns_per_kv,
                                                  1, config.kv_heads);
    if (context.cut.swap == nullptr) return;  // else each rank has equally many
    const size_t ranks = context.cut.swap->ranks();
    kv_heads_per_group_ = base::RoundUp(kv_heads_per_group_, ranks);
  }

  size_t count() const {
    return (context_.config->kv_heads + kv_heads_per_group_ - 1) / kv_heads_per_group_;
  }

  Group At(size_t index) const {
    const ModelConfig& config = *context_.config;
    const size_t first = index * kv_heads_per_group_;
    const size_t kv_heads = std::min<size_t>(kv_heads_per_group_, config.kv_heads - first);
    const size_t head_dim = config.head_dim();
    return {.first_query = first * queries_per_kv_ * head_dim,
            .query_columns = kv_heads * queries_per_kv_ * head_dim,
            .first_kv = first * head_dim,
            .kv_columns = kv_heads * head_dim,
            .shape = AttentionShapeOf(config, context_.shape, kv_heads)};
  }

 private:
  const SublayerContext& context_;
  size_t queries_per_kv_ = 1;
  size_t kv_heads_per_group_ = 1;
};

// Queries, keys and values of one group, or their gradients. Dense, in this order.
template <typename T>
struct Qkv {
  Scratch<T> storage;  // empty: another object owns the memory
  Matrix<T> q, k, v;

  Qkv(T* data, size_t tokens, const Group& group)
      : q(data, tokens, group.query_columns),
        k(data + q.size(), tokens, group.kv_columns),
        v(k.data + k.size(), tokens, group.kv_columns) {}

  static size_t Elements(size_t tokens, const Group& group) {
    return tokens * (group.query_columns + 2 * group.kv_columns);
  }
  static absl::StatusOr<Qkv> Allocate(const Resources& resources, size_t tokens,
                                      const Group& group) {
    GEMINID_ASSIGN_OR_RETURN(auto storage,
                             Scratch<T>::Allocate(resources, Elements(tokens, group)));
    Qkv qkv(storage.data(), tokens, group);
    qkv.storage = std::move(storage);
    return qkv;
  }
};

// Rotates dense queries or keys by their positions, or rotates their gradients back. Of each head
// only the columns in the tables turn. Without tables: nothing.
template <typename T>
absl::Status Rotate(const Resources& resources, const SublayerContext& context, PassDirection turn,
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

// The dense output of AttentionPlaces::qkv. A token has, for each key/value head: the queries that
// read this head, its key and its value. The matrix has one row for each token and key/value head,
// so that one copy of rows moves all queries, keys or values.
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
  size_t query_columns_;  // of the queries that read one key/value head
  Matrix<T> rows_;
};

// Norms each head of dense queries or keys in place. Without a norm: nothing.
template <typename T>
absl::Status NormHeads(const Resources& resources, const SublayerContext& context,
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
