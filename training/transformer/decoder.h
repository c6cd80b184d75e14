// The one loop of a transformer that is trained, decoder or encoder: embedding, layers, output
// layer and loss, forward and backward, whole or in parts, with activations that are kept,
// recomputed or offloaded. How a rank computes its share of each operator is a strategy,
// DecoderLayers.
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

// The operators of a model or of a part of one, with T as the type of the residual stream. The
// decoder holds an operator's parameters (`use`) while a call runs, and tells their source that
// gradients are written. All ranks that share layers make the same calls. One thread at a time.
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

  // What these layers can do beyond training in one piece.
  struct Abilities {
    bool halves = true;   // Transformer::BackwardPartInput
    bool items = true;    // Keep takes as much in each micro-batch of a shape
    bool extends = true;  // Transformer::NextLogits
  };
  virtual Abilities abilities() const = 0;

  // INVALID_ARGUMENT: a micro-batch that the layers are not for.
  virtual absl::Status Check(const MicroBatch& batch) const = 0;
  // Without dropout and tables of positions.
  virtual HalfContext ContextOf(const MicroBatch& batch) const = 0;
  // Elements of [tokens, hidden] that this rank has between two layers.
  virtual size_t Elements(size_t tokens) const = 0;
  // Once for each micro-batch: fills run.tokens, and run.rotary where there are tables.
  virtual absl::Status Begin(Run& run, const MicroBatch& batch) = 0;

  virtual absl::Status Embed(Run& run, const ParameterUse& use, T* x) = 0;
  // From run.gradient, which it may change.
  virtual absl::Status EmbedBackward(Run& run, ParameterUse& use) = 0;

  // Room for what a sublayer keeps.
  virtual absl::StatusOr<std::unique_ptr<KeptSublayer>> Keep(const Resources& resources,
                                                             const HalfContext& context,
                                                             Sublayer::Kind kind) const = 0;
  // Fills `kept` unless it is null. Attention takes the tokens before, and leaves these, in
  // run.keys where they are set. `pass` is for what a sublayer fetches beside `use`.
  virtual absl::Status Forward(Run& run, zero::Pass pass, const Sublayer& which,
                               const ParameterUse& use, const SublayerForward<T>& flow,
                               const KeptSublayer* kept) = 0;
  // Writes the gradients of the sublayer's parameters, too. Computes again what is not kept.
  virtual absl::Status Backward(Run& run, const Sublayer& which, ParameterUse& use,
                                const SublayerBackward<T>& flow, const KeptSublayer* kept) = 0;

  // The sum of the cross-entropy over the tokens; 0 where another rank has it.
  virtual absl::StatusOr<double> Loss(Run& run, const ParameterUse& use, const T* x) = 0;
  // The same, with the gradients of gradient_scale times that sum: of x to run.gradient.
  virtual absl::StatusOr<double> LossBackward(Run& run, ParameterUse& use, const T* x,
                                              float gradient_scale) = 0;
  // Of one row of x.
  virtual absl::Status LogitsOfToken(Run& /*run*/, const ParameterUse& /*use*/, const T* /*x*/,
                                     std::span<float> /*logits*/) {
    return absl::UnimplementedError("these layers have no whole row of logits");
  }

 private:
  const ModelConfig config_;
  const ModelParameters parameters_;
};

// `layers` compute by `math`, and on the host on `threads`, which outlive the model and may be
// null.
template <typename T>
std::unique_ptr<Transformer> MakeDecoder(std::unique_ptr<DecoderLayers<T>> layers,
                                         const ModelKernels& math, kernels::ThreadPool* threads);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_DECODER_H_
