// A decoder-only or encoder-only transformer that is trained one micro-batch at a time. The forward
// pass stores the input of each sublayer. If there is memory, it also keeps the outputs of matrix
// products and of attention; else the backward pass recomputes them. Both give the same bits. In a
// parallel block both sublayers have one input.
//
// All activations and scratch come from the workspace of the parameter source, in stack order. With
// L layers, T tokens, hidden size H and elements of e bytes the peak is
//   (2 L + 2) T H e  +  the scratch of one sublayer (attention_sublayer.h, mlp_sublayer.h)
// Parallel blocks have L in place of 2 L. KeptBytes is added if activations are kept.
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

// A KV cache: keys and values of all layers.
class KeyValueCache {
 public:
  virtual ~KeyValueCache() = default;
  virtual size_t count() const = 0;
};

// The values of a micro-batch that a part's forward pass stores for its backward pass, in the
// workspace.
class PassedForward {
 public:
  virtual ~PassedForward() = default;
};

// A model, or a part of one. Calls outside the section on parts need the whole model.
class Transformer {
 public:
  virtual ~Transformer() = default;
  virtual const ModelParameters& parameters() const = 0;
  // The elements of [tokens, hidden] that this rank has between two layers.
  virtual size_t BoundaryElements(size_t tokens) const = 0;

  // --- a part, as a stage of a pipeline has it ---
  // [tokens, hidden] come in from the previous part and go out to the next part, in host memory.
  // The spans are empty at the model's ends. They hold values of the model's data type.

  // Runs forward with weights in Pass::kEvaluate. Call this within a micro-batch of the source,
  // before the backward pass.
  virtual absl::StatusOr<std::unique_ptr<PassedForward>> ForwardPart(ParameterSource& source,
                                                                     const MicroBatch& batch,
                                                                     std::span<const float> in,
                                                                     std::span<float> out) = 0;
  // Runs backward from the gradient of the output, or from the loss in the last part, to the
  // gradient of the input. Returns the sum of the cross-entropy in the last part, else 0. Gives the
  // gradients of gradient_scale times the sum to the source of the forward pass, and empties the
  // workspace.
  virtual absl::StatusOr<double> BackwardPart(std::unique_ptr<PassedForward> passed,
                                              float gradient_scale,
                                              std::span<const float> out_gradient,
                                              std::span<float> in_gradient) = 0;
  // BackwardPart in two halves, with the same bits; other calls may come in between. The first half
  // reads weights in Pass::kEvaluate and stores LaterBytes for the second half. The second half
  // gives the gradients to the source in a micro-batch of its own. FAILED_PRECONDITION if the model
  // supports only BackwardPart.
  virtual absl::StatusOr<double> BackwardPartInput(PassedForward& passed, float gradient_scale,
                                                   std::span<const float> out_gradient,
                                                   std::span<float> in_gradient) = 0;
  virtual absl::Status BackwardPartWeights(std::unique_ptr<PassedForward> passed) = 0;
  // Evaluate for a part. Returns 0 unless the part is the last one.
  virtual absl::StatusOr<double> EvaluatePart(ParameterSource& source, const MicroBatch& batch,
                                              std::span<const float> in, std::span<float> out) = 0;

  // The bytes of each item that TrainMicroBatch pushes to MicroBatch::stack. Each sublayer, or each
  // parallel block, has an item: its input and the values that it keeps. Empty: this model keeps
  // its activations in the workspace.
  virtual std::vector<uint64_t> ItemBytes(const MicroBatchShape& /*shape*/) const { return {}; }

  // Returns the sum of the cross-entropy over the tokens, and gives the gradients of gradient_scale
  // times that sum to the source. Calls source.BeginMicroBatch first.
  virtual absl::StatusOr<double> TrainMicroBatch(ParameterSource& source, const MicroBatch& batch,
                                                 float gradient_scale) = 0;

  // Returns the sum of the cross-entropy, with weights in Pass::kEvaluate. Call this between steps.
  // Its memory is that of two sublayer inputs, for any number of layers.
  absl::StatusOr<double> Evaluate(ParameterSource& source, const MicroBatch& batch) {
    return EvaluatePart(source, batch, {}, {});
  }

  // Allocates a KV cache of KeyValueCacheBytes for `tokens` tokens of one sequence in the
  // workspace.
  virtual absl::StatusOr<std::unique_ptr<KeyValueCache>> MakeKeyValueCache(ParameterSource& source,
                                                                           size_t tokens) = 0;

  // The logits for the token after tokens[last], by kind of token. `tokens` are one sequence, or
  // continue the cached tokens; this call then adds them to the cache. Tokens after `last` do not
  // change the logits, and caching changes no bit. `cache` is this model's cache, or null.
  // Call this between steps, like Evaluate.
  virtual absl::StatusOr<std::vector<float>> NextLogits(ParameterSource& source,
                                                        std::span<const int32_t> tokens,
                                                        size_t last,
                                                        KeyValueCache* cache = nullptr) = 0;
};

// `config` is valid. Computes with `math`. Host kernels run on `threads`, or on the calling thread.
// `math` and `threads` outlive the model, and one call at a time uses them.
std::unique_ptr<Transformer> MakeTransformer(const ModelConfig& config, zero::DataType data_type,
                                             const Tiling& tiling = {},
                                             kernels::ThreadPool* threads = nullptr,
                                             const ModelKernels& math = HostKernels());
// MakeTransformer for a part. If `experts` is set, its other ranks have the other experts of each
// layer; it outlives the model. Sequences may be partitioned over ranks.
std::unique_ptr<Transformer> MakeTransformerPart(const ModelConfig& config,
                                                 zero::DataType data_type, const ModelPart& part,
                                                 const Tiling& tiling = {},
                                                 kernels::ThreadPool* threads = nullptr,
                                                 const ModelKernels& math = HostKernels(),
                                                 const SequenceExchange& cut = {},
                                                 collectives::Communicator* experts = nullptr);

// One rank's shard of a model, or of a part: training/nn/layer_share.h makes `share` and
// `parameters`. All ranks make the same calls with the same tokens. Each rank has the whole inputs
// and outputs of a part, and returns the loss of the tokens whose targets are its words. Without
// dropout; NextLogits is UNIMPLEMENTED. `layers` outlive the model.
std::unique_ptr<Transformer> MakeTransformerShare(
    const ModelConfig& share, zero::DataType data_type, ModelParameters parameters,
    LayerShare* layers, const Tiling& tiling, kernels::ThreadPool* threads = nullptr,
    const ModelKernels& math = HostKernels(), const SequenceExchange& cut = {});

// An upper bound of the workspace of one micro-batch of `shape`. Except for tiny models it is at
// most twice the measured peak.
uint64_t WorkspaceBytesBound(const ModelConfig& config, zero::DataType data_type,
                             const MicroBatchShape& shape, const Tiling& tiling = {},
                             size_t threads = 1);

// Upper bounds of the memory that attention needs beside WorkspaceBytesBound if sequences are
// partitioned into so many pieces; `mine` is one of them. RingBytesBound is for an fp32 ring
// (training/nn/parallel/sequence/ring_attention.h), UlyssesExchangeBytesBound for exchanges of
// heads.
uint64_t RingBytesBound(const ModelConfig& config, zero::DataType data_type,
                        const MicroBatchShape& mine, uint64_t pieces, const Tiling& tiling = {},
                        size_t threads = 1);
uint64_t UlyssesExchangeBytesBound(const ModelConfig& config, zero::DataType data_type,
                                   const MicroBatchShape& mine, uint64_t pieces,
                                   const Tiling& tiling = {});

// The bytes of a KV cache: 2 L kv_heads head_dim e for each token.
uint64_t KeyValueCacheBytes(const ModelConfig& config, zero::DataType data_type, uint64_t tokens);

// The bytes of one micro-batch of a part that are stored between the two halves of its backward
// pass:
//   T e L ((4 hidden + q + 2 kv) + hidden + (2 + g) intermediate), with g of KeptBytes, and in the
//   last part T e (hidden + vocabulary)
// plus the gradients of norms and, in the first part, of the embedding's output. Not for routed
// models. The vocabulary is rounded up to `logit_alignment`: 1 on the host, kLogitAlignment on a
// GPU.
uint64_t LaterBytes(const ModelConfig& config, zero::DataType data_type, const ModelPart& part,
                    const MicroBatchShape& shape, uint64_t logit_alignment);

// The bytes beside WorkspaceBytesBound that kept activations of one micro-batch take:
//   L T ((2 heads + 2 kv_heads) head_dim e + 4 heads + g m intermediate e), g = 2 with a gate,
//   else 1, m MLPs for each token.
// Exact except for the alignment of blocks.
uint64_t KeptBytes(const ModelConfig& config, zero::DataType data_type,
                   const MicroBatchShape& shape);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_TRANSFORMER_H_
