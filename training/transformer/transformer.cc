#include "training/transformer/transformer.h"

#include <utility>

#include "base/status_macros.h"
#include "training/nn/compute.h"
#include "training/nn/rotary_upload.h"
#include "training/transformer/attention_sublayer.h"
#include "training/transformer/decoder.h"
#include "training/transformer/ends.h"
#include "training/transformer/mlp_sublayer.h"
#include "training/transformer/routed_sublayer.h"

namespace geminid::trainer {
namespace {

using zero::Pass;

// Layers that a rank computes by itself, except for sums over ranks. They are whole layers, or the
// rank's shard of each layer as a layer of its own (training/nn/layer_share.h). Sequences may be
// partitioned over ranks.
template <typename T>
class OwnLayers final : public DecoderLayers<T> {
 public:
  using typename DecoderLayers<T>::Run;
  using typename DecoderLayers<T>::Capabilities;
  using DecoderLayers<T>::config;
  using DecoderLayers<T>::parameters;

  OwnLayers(const ModelConfig& model, ModelParameters places, const Tiling& tiling,
            const SequenceExchange& cut, LayerShare* layers, collectives::Communicator* experts)
      : DecoderLayers<T>(model, std::move(places)),
        tiling_(tiling),
        cut_(cut),
        layers_(layers),
        experts_(experts),
        rotary_(model) {}

  // With experts on other ranks, those ranks decide how many rows this rank's experts have. So the
  // size of an item is not known.
  Capabilities capabilities() const override {
    const bool alone = layers_ == nullptr && experts_ == nullptr;
    return {.halves = !config().encodes(),
            .items = experts_ == nullptr,
            .extends = alone && !config().encodes()};
  }
  absl::Status Check(const MicroBatch& batch) const override {
    return CheckMicroBatch(batch, config());
  }
  SublayerContext ContextOf(const MicroBatch& batch) const override {
    return {.config = &config(),
            .shape = batch.shape,
            .tiling = tiling_,
            .positions = batch.positions,
            .cut = cut_,
            .layers = layers_,
            .experts = experts_,
            .expert_capacity = config().expert_capacity};
  }
  size_t Elements(size_t tokens) const override { return tokens * config().hidden; }

  absl::Status Begin(Run& run, const MicroBatch& batch) override {
    if (config().rotary()) {
      GEMINID_ASSIGN_OR_RETURN(run.rotary,
                               rotary_.template Of<T>(run.resources, run.context.positions,
                                                      batch.shape.sequence_length));
      run.context.rotary = rotary_.Pointers(*run.rotary);
    }
    if (config().image && parameters().part.embeds) {
      GEMINID_ASSIGN_OR_RETURN(run.patches, UploadPatches<T>(run.resources, batch));
    }
    if (config().chooses_rows()) {
      run.context.targets.right = batch.right;
      GEMINID_ASSIGN_OR_RETURN(run.tokens,
                               UploadChosen(run.resources, batch, &run.context.targets));
      return absl::OkStatus();
    }
    GEMINID_ASSIGN_OR_RETURN(run.tokens, UploadTokens(run.resources, layers_, batch));
    return absl::OkStatus();
  }

  absl::Status Embed(Run& run, const ParameterUse& use, T* x) override {
    GEMINID_RETURN_IF_ERROR(EmbeddingForward<T>(run.resources, run.context, parameters(), use,
                                                {run.tokens.data(), run.patches.data()}, x));
    return Drop(run, x);
  }
  absl::Status EmbedBackward(Run& run, ParameterUse& use) override {
    GEMINID_RETURN_IF_ERROR(Drop(run, run.gradient.data()));
    return EmbeddingBackward<T>(run.resources, run.context, parameters(), use,
                                {run.tokens.data(), run.patches.data()}, run.gradient.data());
  }

  absl::StatusOr<std::unique_ptr<SublayerActivations>> Keep(const Resources& resources,
                                                            const SublayerContext& context,
                                                            Sublayer::Kind kind) const override {
    if (IsAttention(kind)) return Made(AttentionActivations<T>::Allocate(resources, context));
    return Made(MlpActivations<T>::Allocate(resources, context));
  }

  absl::Status Forward(Run& run, Pass pass, const Sublayer& which, const ParameterUse& use,
                       const SublayerForward<T>& flow, const SublayerActivations* kept) override {
    TakePlace(run, which);
    if (!IsAttention(which.kind)) return MlpForward(run, pass, which.layer, use, flow, kept);
    const AttentionPlaces& places = parameters().attention[which.layer];
    if (run.keys.keys != nullptr) {
      return AttentionSublayerExtend<T>(run.resources, run.context, places, use, flow, run.keys);
    }
    return AttentionSublayerForward<T>(run.resources, run.context, places, use, flow,
                                       static_cast<const AttentionActivations<T>*>(kept));
  }

  absl::Status Backward(Run& run, const Sublayer& which, ParameterUse& use,
                        const SublayerBackward<T>& flow, const SublayerActivations* kept) override {
    TakePlace(run, which);
    if (IsAttention(which.kind)) {
      return AttentionSublayerBackward<T>(run.resources, run.context,
                                          parameters().attention[which.layer], use, flow,
                                          static_cast<const AttentionActivations<T>*>(kept));
    }
    const auto* const of_mlp = static_cast<const MlpActivations<T>*>(kept);
    if (!config().routed()) {
      return MlpSublayerBackward<T>(run.resources, run.context, parameters().mlp[which.layer], use,
                                    flow, of_mlp);
    }
    return RoutedSublayerBackward<T>(run.resources, run.context, parameters().routed[which.layer],
                                     use, {run.source, Pass::kBackward}, flow.x, flow.dx, of_mlp);
  }

  absl::StatusOr<double> Loss(Run& run, const ParameterUse& use, const T* x) override {
    return OutputLoss<T>(run.resources, run.context, parameters(), use, x, run.targets());
  }
  absl::StatusOr<double> LossBackward(Run& run, ParameterUse& use, const T* x,
                                      float gradient_scale) override {
    return OutputAndLoss<T>(run.resources, run.context, parameters(), use, x, run.targets(),
                            gradient_scale, run.gradient.data());
  }
  absl::Status LogitsOfToken(Run& run, const ParameterUse& use, const T* x,
                             std::span<float> logits) override {
    return trainer::LogitsOfToken<T>(run.resources, run.context, parameters(), use, x, logits);
  }

 private:
  template <typename Kept>
  static absl::StatusOr<std::unique_ptr<SublayerActivations>> Made(absl::StatusOr<Kept> kept) {
    if (!kept.ok()) return kept.status();
    return std::make_unique<Kept>(*std::move(kept));
  }

  absl::Status MlpForward(Run& run, Pass pass, size_t layer, const ParameterUse& use,
                          const SublayerForward<T>& flow, const SublayerActivations* kept) {
    const auto* const of_mlp = static_cast<const MlpActivations<T>*>(kept);
    if (!config().routed()) {
      return MlpSublayerForward<T>(run.resources, run.context, parameters().mlp[layer], use, flow,
                                   of_mlp);
    }
    return RoutedSublayerForward<T>(run.resources, run.context, parameters().routed[layer], use,
                                    {run.source, pass}, flow.x, flow.out, of_mlp);
  }

  // Sets the number of a dropout layer: 0 is the embedding, then each layer of the whole model has
  // two.
  void TakePlace(Run& run, const Sublayer& which) const {
    const uint64_t layer = parameters().part.first_layer + which.layer;
    DropoutPlace& dropout = run.context.dropout;
    dropout.place = 2 * layer + (IsAttention(which.kind) ? 1 : 2);
    run.context.drops_norm =
        config().norms_after() && dropout.place == 1 && dropout.dropout.active();
  }

  absl::Status Drop(Run& run, T* x) {
    if (!run.context.dropout.dropout.active() || config().norms_after()) return absl::OkStatus();
    run.context.dropout.place = 0;
    const Matrix<const T> rows(x, run.context.shape.tokens(), config().hidden);
    return KernelsFor<T>(run.resources).Drop(run.resources, run.context.dropout, rows, x);
  }

  const Tiling tiling_;
  const SequenceExchange cut_;
  LayerShare* const layers_;
  collectives::Communicator* const experts_;
  UploadedRotary rotary_;  // unused if the model has none
};

std::unique_ptr<Transformer> Make(const ModelConfig& config, zero::DataType data_type,
                                  ModelParameters parameters, const Tiling& tiling,
                                  kernels::ThreadPool* threads, const ModelKernels& math,
                                  const SequenceExchange& cut, LayerShare* layers,
                                  collectives::Communicator* experts) {
  const auto make = [&]<typename T>(T) {
    return MakeDecoder<T>(
        std::make_unique<OwnLayers<T>>(config, std::move(parameters), tiling, cut, layers, experts),
        math, threads);
  };
  return data_type == zero::DataType::kFloat32 ? make(float{}) : make(kernels::BFloat16{});
}

}  // namespace

std::unique_ptr<Transformer> MakeTransformerPart(const ModelConfig& config,
                                                 zero::DataType data_type, const ModelPart& part,
                                                 const Tiling& tiling, kernels::ThreadPool* threads,
                                                 const ModelKernels& math,
                                                 const SequenceExchange& cut,
                                                 collectives::Communicator* experts) {
  return Make(config, data_type, MakeParameters(config, part), tiling, threads, math, cut,
              /*layers=*/nullptr, experts);
}

std::unique_ptr<Transformer> MakeTransformerShare(
    const ModelConfig& share, zero::DataType data_type, ModelParameters parameters,
    LayerShare* layers, const Tiling& tiling, kernels::ThreadPool* threads,
    const ModelKernels& math, const SequenceExchange& cut) {
  return Make(share, data_type, std::move(parameters), tiling, threads, math, cut, layers,
              /*experts=*/nullptr);
}

std::unique_ptr<Transformer> MakeTransformer(const ModelConfig& config, zero::DataType data_type,
                                             const Tiling& tiling, kernels::ThreadPool* threads,
                                             const ModelKernels& math) {
  return MakeTransformerPart(config, data_type, WholeModel(config), tiling, threads, math);
}

}  // namespace geminid::trainer
