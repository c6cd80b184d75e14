// The one training loop of all transformers, decoders and encoders: embedding, layers, output layer
// and loss, forward and backward, for a whole model or a part. Activations are kept, recomputed or
// offloaded. DecoderLayers is the strategy by which a rank computes its share of each operator.
#ifndef GEMINID_TRAINING_TRANSFORMER_DECODER_H_
#define GEMINID_TRAINING_TRANSFORMER_DECODER_H_

#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/models/model_config.h"
#include "training/models/parameters.h"
#include "training/nn/micro_batch.h"
#include "training/transformer/micro_batch_run.h"
#include "training/transformer/sublayer.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

// The operators of a model or of a part; T is the type of the residual stream. During a call the
// decoder holds the operator's parameters (`use`), and afterwards it reports written gradients to
// their source. All ranks that share layers make the same calls. One thread at a time.
template <typename T>
class DecoderLayers {
 public:
  using Run = MicroBatchRun<T>;

  DecoderLayers(const ModelConfig& config, ModelParameters parameters)
      : config_(config), parameters_(std::move(parameters)) {}
  virtual ~DecoderLayers() = default;
  DecoderLayers(const DecoderLayers&) = delete;
  DecoderLayers& operator=(const DecoderLayers&) = delete;

  const ModelConfig& config() const { return config_; }
  const ModelParameters& parameters() const { return parameters_; }

  // What these layers support beyond a backward pass in one call.
  struct Capabilities {
    bool halves = true;   // Transformer::BackwardPartInput
    bool items = true;    // Keep takes the same bytes in every micro-batch of a shape
    bool extends = true;  // Transformer::NextLogits
  };
  virtual Capabilities capabilities() const = 0;

  // INVALID_ARGUMENT: these layers cannot compute this micro-batch.
  virtual absl::Status Check(const MicroBatch& batch) const = 0;
  // The context without dropout and without tables of positions.
  virtual SublayerContext ContextOf(const MicroBatch& batch) const = 0;
  // The elements of [tokens, hidden] that this rank has between two layers.
  virtual size_t Elements(size_t tokens) const = 0;
  // Call this once for each micro-batch. Fills run.tokens, and run.rotary if there are tables.
  virtual absl::Status Begin(Run& run, const MicroBatch& batch) = 0;

  virtual absl::Status Embed(Run& run, const ParameterUse& use, T* x) = 0;
  // Reads run.gradient, and may change it.
  virtual absl::Status EmbedBackward(Run& run, ParameterUse& use) = 0;

  // Memory for the values that a sublayer keeps.
  virtual absl::StatusOr<std::unique_ptr<SublayerActivations>> Keep(const Resources& resources,
                                                                    const SublayerContext& context,
                                                                    Sublayer::Kind kind) const = 0;
  // Fills `kept` unless it is null. If run.keys is set, attention reads the earlier tokens there
  // and adds the new ones. `pass` is for the parameters that a sublayer fetches itself, beside
  // `use`.
  virtual absl::Status Forward(Run& run, zero::Pass pass, const Sublayer& which,
                               const ParameterUse& use, const SublayerForward<T>& flow,
                               const SublayerActivations* kept) = 0;
  // Also writes the gradients of the sublayer's parameters. Recomputes what `kept` lacks.
  virtual absl::Status Backward(Run& run, const Sublayer& which, ParameterUse& use,
                                const SublayerBackward<T>& flow,
                                const SublayerActivations* kept) = 0;

  // The sum of the cross-entropy over the tokens; 0 if another rank returns the sum.
  virtual absl::StatusOr<double> Loss(Run& run, const ParameterUse& use, const T* x) = 0;
  // Loss, with the gradients of gradient_scale times that sum. Writes x's gradient to run.gradient.
  virtual absl::StatusOr<double> LossBackward(Run& run, ParameterUse& use, const T* x,
                                              float gradient_scale) = 0;
  // The logits of one token; `x` is its row.
  virtual absl::Status LogitsOfToken(Run& /*run*/, const ParameterUse& /*use*/, const T* /*x*/,
                                     std::span<float> /*logits*/) {
    return absl::UnimplementedError("these layers have no whole row of logits");
  }

 private:
  const ModelConfig config_;
  const ModelParameters parameters_;
};

// `layers` compute with `math`, and host kernels run on `threads`. Both outlive the model;
// `threads` may be null.
template <typename T>
std::unique_ptr<Transformer> MakeDecoder(std::unique_ptr<DecoderLayers<T>> layers,
                                         const ModelKernels& math, kernels::ThreadPool* threads);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_DECODER_H_
