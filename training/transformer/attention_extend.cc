#include <cmath>

#include "base/status_macros.h"
#include "kernels/model/attention/attention.h"
#include "training/transformer/attention_half.h"
#include "training/transformer/attention_heads.h"

namespace geminid::trainer {

template <typename T>
absl::Status AttentionHalfExtend(const Resources& resources, const HalfContext& context,
                                 const AttentionPlaces& places, const ParameterUse& use, const T* x,
                                 T* out, const RememberedKeys<T>& remembered) {
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
  GEMINID_RETURN_IF_ERROR(Normalise<T>(resources, context, places.norm, use, x, n.data));
  GEMINID_RETURN_IF_ERROR(Forward<T>(resources, n, WeightOf<T>(use, places.q), q));
  GEMINID_RETURN_IF_ERROR(Forward<T>(resources, n, WeightOf<T>(use, places.k), k));
  GEMINID_RETURN_IF_ERROR(Forward<T>(resources, n, WeightOf<T>(use, places.v), v));
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
  GEMINID_RETURN_IF_ERROR(math.Copy(resources, Matrix<const T>(x, tokens, config.hidden),
                                    Matrix<T>(out, tokens, config.hidden)));
  return Forward<T>(resources, attended, WeightOf<T>(use, places.output),
                    Matrix<T>(out, tokens, config.hidden), /*accumulate=*/true);
}

#define GEMINID_INSTANTIATE(T)                                                                     \
  template absl::Status AttentionHalfExtend(const Resources&, const HalfContext&,                  \
                                            const AttentionPlaces&, const ParameterUse&, const T*, \
                                            T*, const RememberedKeys<T>&);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
