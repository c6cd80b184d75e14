#include <cmath>

#include "base/status_macros.h"
#include "kernels/model/attention/attention.h"
#include "training/transformer/attention_half.h"
#include "training/transformer/attention_heads.h"

namespace geminid::trainer {
namespace {

template <typename T>
absl::Status Project(const Resources& resources, const ModelConfig& config,
                     const AttentionPlaces& places, const ParameterUse& use, Matrix<const T> n,
                     Matrix<T> q, Matrix<T> k, Matrix<T> v) {
  if (!places.qkv) {
    GEMINID_RETURN_IF_ERROR(Forward<T>(resources, n, WeightOf<T>(use, places.q), q));
    GEMINID_RETURN_IF_ERROR(Forward<T>(resources, n, WeightOf<T>(use, places.k), k));
    return Forward<T>(resources, n, WeightOf<T>(use, places.v), v);
  }
  const size_t columns = q.cols + k.cols + v.cols;
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, n.rows * columns));
  const Matrix<T> fused(storage.data(), n.rows, columns);
  GEMINID_RETURN_IF_ERROR(Forward<T>(resources, n, WeightOf<T>(use, *places.qkv), fused));
  return FusedHeads<T>(config, fused).Split(resources, q, k, v);
}

}  // namespace

template <typename T>
absl::Status AttentionHalfExtend(const Resources& resources, const HalfContext& context,
                                 const AttentionPlaces& places, const ParameterUse& use,
                                 const SublayerForward<T>& flow,
                                 const RememberedKeys<T>& remembered) {
  const ModelConfig& config = *context.config;
  const size_t tokens = context.shape.tokens();
  const size_t past = context.positions.first;
  const size_t columns = config.kv_columns();
  GEMINID_ASSIGN_OR_RETURN(
      auto storage,
      Scratch<T>::Allocate(resources, tokens * (config.hidden + 2 * config.query_columns())));
  const Matrix<T> n(storage.data(), tokens, config.hidden);
  const Matrix<T> q(n.data + n.size(), tokens, config.query_columns());
  const Matrix<T> attended(q.data + q.size(), tokens, config.query_columns());
  const Matrix<T> k(remembered.keys + past * columns, tokens, columns);
  const Matrix<T> v(remembered.values + past * columns, tokens, columns);
  GEMINID_RETURN_IF_ERROR(Normalise<T>(resources, context, places.norm, use, flow.x, n.data));
  GEMINID_RETURN_IF_ERROR(Project<T>(resources, config, places, use, n, q, k, v));
  GEMINID_RETURN_IF_ERROR(NormHeads(resources, context, places.q_norm, use, q));
  GEMINID_RETURN_IF_ERROR(NormHeads(resources, context, places.k_norm, use, k));
  GEMINID_RETURN_IF_ERROR(Rotate(resources, context, Turn::kForward, q));
  GEMINID_RETURN_IF_ERROR(Rotate(resources, context, Turn::kForward, k));
  const kernels::AttentionShape shape = {
      .batch = 1,
      .sequence = past + tokens,
      .heads = config.heads,
      .kv_heads = config.kv_heads,
      .head_dim = config.head_dim(),
      .scale = 1.0F / std::sqrt(static_cast<float>(config.head_dim())),
      .first_query = past,
      .window = config.attention_window()};
  GEMINID_ASSIGN_OR_RETURN(auto lse, Scratch<float>::Allocate(resources, tokens * config.heads));
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  GEMINID_RETURN_IF_ERROR(math.AttentionForward(
      resources, shape, q, Matrix<const T>(remembered.keys, past + tokens, columns),
      Matrix<const T>(remembered.values, past + tokens, columns), attended, lse.data()));
  const Matrix<T> out(flow.out, tokens, config.hidden);
  GEMINID_RETURN_IF_ERROR(
      math.Copy(resources, Matrix<const T>(flow.residual, tokens, config.hidden), out));
  return Forward<T>(resources, attended, WeightOf<T>(use, places.output), out,
                    /*accumulate=*/true);
}

#define GEMINID_INSTANTIATE(T)                                                           \
  template absl::Status AttentionHalfExtend(const Resources&, const HalfContext&,        \
                                            const AttentionPlaces&, const ParameterUse&, \
                                            const SublayerForward<T>&, const RememberedKeys<T>&);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
