#include "training/transformer/mlp_sublayer.h"

#include "base/status_macros.h"
#include "training/nn/later_gradients.h"
#include "training/nn/layer_share.h"
#include "training/transformer/norm_layer.h"
#include "training/transformer/output_sum.h"

namespace geminid::trainer {

template <typename T>
absl::StatusOr<MlpActivations<T>> MlpActivations<T>::Allocate(const Resources& resources,
                                                              const SublayerContext& context) {
  const ModelConfig& config = *context.config;
  const size_t size = context.shape.tokens() * config.mlps_per_token() * config.intermediate;
  MlpActivations kept;
  kept.width = config.intermediate;
  GEMINID_ASSIGN_OR_RETURN(kept.input, Scratch<T>::Allocate(resources, size));
  if (config.gated_mlp()) {
    GEMINID_ASSIGN_OR_RETURN(kept.up, Scratch<T>::Allocate(resources, size));
  }
  return kept;
}

template <typename T>
MlpColumnActivations<T> RowsOf(const MlpActivations<T>* kept, size_t first, size_t rows) {
  if (kept == nullptr) return {};
  const size_t at = first * kept->width;
  T* const up = kept->up.data();
  return {.input = kept->input.data() + at, .up = up == nullptr ? nullptr : up + at, .rows = rows};
}

template <typename T>
absl::Status MlpSublayerForward(const Resources& resources, const SublayerContext& context,
                                const MlpPlaces& places, const ParameterUse& use,
                                const SublayerForward<T>& flow, const MlpActivations<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto storage, Scratch<T>::Allocate(resources, tokens * hidden));
  const Matrix<T> n(storage.data(), tokens, hidden);
  GEMINID_RETURN_IF_ERROR(Normalise<T>(resources, context, places.norm, use, flow.x, n.data));
  GEMINID_ASSIGN_OR_RETURN(const T* const residual, ResidualOf<T>(resources, context, flow, n));
  GEMINID_ASSIGN_OR_RETURN(auto sum, OutputSum<T>::Begin(resources, context, residual, flow.out));
  GEMINID_RETURN_IF_ERROR(MlpForward<T>(resources, places, use, context.tiling.mlp_columns, n,
                                        sum.values(), RowsOf(kept, 0, tokens)));
  const T* const bias = WeightOf<T>(use, places.output).bias;
  return sum.Finish(resources, bias, n.data);  // n is no longer needed
}

template <typename T>
absl::Status MlpSublayerBackward(const Resources& resources, const SublayerContext& context,
                                 const MlpPlaces& places, ParameterUse& use,
                                 const SublayerBackward<T>& flow, const MlpActivations<T>* kept) {
  const size_t tokens = context.shape.tokens();
  const size_t hidden = context.config->hidden;
  GEMINID_ASSIGN_OR_RETURN(auto norm, NormBackward<T>::Create(resources, context, places.norm));
  const Matrix<T>& n = norm.n;
  const Matrix<float>& dn = norm.dn;
  GEMINID_ASSIGN_OR_RETURN(const DropoutGradient<T> dropped,
                           DropoutGradient<T>::Of(resources, context.dropout, tokens, flow.dy));
  GEMINID_ASSIGN_OR_RETURN(
      const Matrix<const T> dy,
      ReadByWeights<T>(resources, Matrix<const T>(dropped.data, tokens, hidden)));
  GEMINID_RETURN_IF_ERROR(norm.Forward(resources, use, flow.x));
  GEMINID_ASSIGN_OR_RETURN(const bool adds, norm.Begin(resources, flow.dy));
  GEMINID_ASSIGN_OR_RETURN(const Matrix<const T> read, ReadByWeights<T>(resources, n));
  GEMINID_RETURN_IF_ERROR(MlpBackward<T>(resources, places, use, context.tiling.mlp_columns, read,
                                         dy, dn, RowsOf(kept, 0, tokens), {}, adds));
  GEMINID_RETURN_IF_ERROR(BackwardBias<T>(resources, dy, places.output, use));
  GEMINID_RETURN_IF_ERROR(SumOverRanks(resources, context, dn));
  return norm.Finish(resources, use, flow);
}

#define GEMINID_INSTANTIATE(T)                                                                   \
  template struct MlpActivations<T>;                                                             \
  template MlpColumnActivations<T> RowsOf(const MlpActivations<T>*, size_t, size_t);             \
  template absl::Status MlpSublayerForward(const Resources&, const SublayerContext&,             \
                                           const MlpPlaces&, const ParameterUse&,                \
                                           const SublayerForward<T>&, const MlpActivations<T>*); \
  template absl::Status MlpSublayerBackward(const Resources&, const SublayerContext&,            \
                                            const MlpPlaces&, ParameterUse&,                     \
                                            const SublayerBackward<T>&, const MlpActivations<T>*);
GEMINID_INSTANTIATE(float)
GEMINID_INSTANTIATE(kernels::BFloat16)
#undef GEMINID_INSTANTIATE

}  // namespace geminid::trainer
