// A transformer, a decoder or an encoder alone, that is trained one micro-batch at a time. Of the
// forward pass it keeps the input of each half layer, and computes the rest again or, where there
// is room, keeps what matrix products and the attention gave. Both give the same bits. In a
// parallel block both halves have one input.
//
// All activations and scratch come from the workspace of the parameter source, in the order of a
// stack. With L layers, T tokens, hidden size H and elements of e bytes the peak is
//   (2 L + 2) T H e  +  the scratch of one half layer (attention_half.h, mlp_half.h)
// with parallel blocks L in place of 2 L, and KeptBytes where activations are kept.
#ifndef GEMINID_TRAINING_TRANSFORMER_TRANSFORMER_H_
#define GEMINID_TRAINING_TRANSFORMER_TRANSFORMER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/thread_pool.h"
#include "training/models/model_config.h"
#include "training/models/parameters.h"
#include "training/nn/blocks.h"
#include "training/nn/micro_batch.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// Keys and values of all layers (a KV cache).
class RememberedTokens {
 public:
  virtual ~RememberedTokens() = default;
  virtual size_t count() const = 0;
};

// What the forward pass of a part left of a micro-batch for the backward pass; workspace.
class PassedForward {
 public:
  virtual ~PassedForward() = default;
};

// A model, or a part of one; what is said of the model below needs the whole one.
class Transformer {
 public:
  virtual ~Transformer() = default;
  virtual const ModelParameters& parameters() const = 0;
  // Of [tokens, hidden], how many this rank has between two layers.
  virtual size_t BoundaryElements(size_t tokens) const = 0;

  // --- a part, as a stage of a pipeline has it ---
  // [tokens, hidden] come in from the part before and go out to the part after, in memory of the
  // host: empty where there is none. They hold values of the model's data type.

  // Forward, with weights in Pass::kEvaluate, in a micro-batch of the source before its backward.
  virtual absl::StatusOr<std::unique_ptr<PassedForward>> ForwardPart(ParameterSource& source,
                                                                     const MicroBatch& batch,
                                                                     std::span<const float> in,
                                                                     std::span<float> out) = 0;
  // Backward, from the gradient of what went out to that of what came in, or from the loss where
  // the part outputs: the sum of the cross-entropy, else 0. Leaves the gradients of gradient_scale
  // times the sum with the source of the forward pass, and nothing in the workspace.
  virtual absl::StatusOr<double> BackwardPart(std::unique_ptr<PassedForward> passed,
                                              float gradient_scale,
                                              std::span<const float> out_gradient,
                                              std::span<float> in_gradient) = 0;
  // The same in two halves, with other calls in between. The first reads weights in Pass::kEvaluate
  // and keeps LaterBytes for the second, which leaves the gradients with the source in a
  // micro-batch of its own. The same bits. FAILED_PRECONDITION for models that go back in one
  // piece.
  virtual absl::StatusOr<double> BackwardPartInput(PassedForward& passed, float gradient_scale,
                                                   std::span<const float> out_gradient,
                                                   std::span<float> in_gradient) = 0;
  virtual absl::Status BackwardPartWeights(std::unique_ptr<PassedForward> passed) = 0;
  // Evaluate of a part: 0 where it does not output.
  virtual absl::StatusOr<double> EvaluatePart(ParameterSource& source, const MicroBatch& batch,
                                              std::span<const float> in, std::span<float> out) = 0;

  // Of the items that TrainMicroBatch pushes to MicroBatch::stack: for each half layer, or each
  // parallel block, its input and what keeping takes. Empty: this model keeps what it keeps in the
  // workspace.
  virtual std::vector<uint64_t> ItemBytes(const MicroBatchShape& /*shape*/) const { return {}; }

  // Computes the sum of the cross-entropy over the tokens, and leaves the gradients of
  // gradient_scale times that sum with the source. Calls source.BeginMicroBatch first.
  virtual absl::StatusOr<double> TrainMicroBatch(ParameterSource& source, const MicroBatch& batch,
                                                 float gradient_scale) = 0;

  // The sum of the cross-entropy alone, with weights in Pass::kEvaluate. Between steps. Takes the
  // memory of two inputs of a half layer, whatever the number of layers.
  absl::StatusOr<double> Evaluate(ParameterSource& source, const MicroBatch& batch) {
    return EvaluatePart(source, batch, {}, {});
  }

  // Room in the source's workspace to remember `tokens` tokens of one sequence: RememberedBytes.
  virtual absl::StatusOr<std::unique_ptr<RememberedTokens>> Remember(ParameterSource& source,
                                                                     size_t tokens) = 0;

  // The logits of what follows tokens[last], by kind of token; `tokens` are one sequence, or what
  // comes after the tokens that are remembered; then they are remembered too. What comes after
  // `last` changes nothing, and remembering changes no bit. `remembered` is this model's, or null.
  // As Evaluate.
  virtual absl::StatusOr<std::vector<float>> NextLogits(ParameterSource& source,
                                                        std::span<const int32_t> tokens,
                                                        size_t last,
                                                        RememberedTokens* remembered = nullptr) = 0;
};

// `config` is valid. Computes by `math`, and on the host on `threads`, which outlive the model and
// are used by one call at a time, or on the calling thread.
std::unique_ptr<Transformer> MakeTransformer(const ModelConfig& config, zero::DataType data_type,
                                             const Tiling& tiling = {},
                                             kernels::ThreadPool* threads = nullptr,
                                             const ModelKernels& math = HostKernels());
// The same of a part, with the other experts of each layer on other ranks if there are `experts`,
// which outlive the model, on sequences that may be cut over ranks.
std::unique_ptr<Transformer> MakeTransformerPart(const ModelConfig& config,
                                                 zero::DataType data_type, const ModelPart& part,
                                                 const Tiling& tiling = {},
                                                 kernels::ThreadPool* threads = nullptr,
                                                 const ModelKernels& math = HostKernels(),
                                                 const SequenceCut& cut = {},
                                                 collectives::Communicator* experts = nullptr);

// One rank's shard of a model, or of a part of one: training/nn/layer_share.h makes `share` and
// `parameters`. All ranks make the same calls with the same tokens, and have the whole of what goes
// in and out of a part; each has the loss of those tokens whose targets are its words. Without
// dropout; does not say what follows (UNIMPLEMENTED). `layers` outlive it.
std::unique_ptr<Transformer> MakeTransformerShare(
    const ModelConfig& share, zero::DataType data_type, ModelParameters parameters,
    LayerShare* layers, const Tiling& tiling, kernels::ThreadPool* threads = nullptr,
    const ModelKernels& math = HostKernels(), const SequenceCut& cut = {});

// More workspace than one micro-batch of `shape` needs, but not by much: within a factor of two of
// the measured peak where the model is not tiny.
uint64_t WorkspaceBytesBound(const ModelConfig& config, zero::DataType data_type,
                             const MicroBatchShape& shape, const Tiling& tiling = {},
                             size_t threads = 1);

// More than what attention takes beside that where sequences are cut into so many pieces, of which
// `mine` is one: in a ring, in fp32 (training/nn/parallel/sequence/ring_attention.h), or for
// exchanges of heads.
uint64_t RingBytesBound(const ModelConfig& config, zero::DataType data_type,
                        const MicroBatchShape& mine, uint64_t pieces, const Tiling& tiling = {},
                        size_t threads = 1);
uint64_t HeadSwapBytesBound(const ModelConfig& config, zero::DataType data_type,
                            const MicroBatchShape& mine, uint64_t pieces,
                            const Tiling& tiling = {});

// What remembering tokens takes: 2 L kv_heads head_dim e for each.
uint64_t RememberedBytes(const ModelConfig& config, zero::DataType data_type, uint64_t tokens);

// What is kept of one micro-batch of a part, from the first half of its backward pass to the
// second:
//   T e L ((4 hidden + q + 2 kv) + hidden + (2 + g) intermediate), g as below, and of the part that
//   outputs T e (hidden + vocabulary)
// and the gradients of norms and, where the part embeds, of its output. Not of routed models. The
// vocabulary is rounded up to `logit_alignment`: 1 on the host, kLogitAlignment on a GPU.
uint64_t LaterBytes(const ModelConfig& config, zero::DataType data_type, const ModelPart& part,
                    const MicroBatchShape& shape, uint64_t logit_alignment);

// What keeping the activations of one micro-batch takes beside that:
//   L T ((2 heads + 2 kv_heads) head_dim e + 4 heads + g m intermediate e), g = 2 with a gate,
//   else 1, m MLPs for each token.
// Exact but for the alignment of blocks.
uint64_t KeptBytes(const ModelConfig& config, zero::DataType data_type,
                   const MicroBatchShape& shape);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TRANSFORMER_H_
