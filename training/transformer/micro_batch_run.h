// One micro-batch on its way through a model or a part: the values that the forward pass stores for
// the backward pass, and their memory.
#ifndef GEMINID_TRAINING_TRANSFORMER_MICRO_BATCH_RUN_H_
#define GEMINID_TRAINING_TRANSFORMER_MICRO_BATCH_RUN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "geminid/activation_stack.h"
#include "training/nn/blocks.h"
#include "training/nn/item_workspace.h"
#include "training/nn/later_gradients.h"
#include "training/nn/model_kernels.h"
#include "training/nn/parameter_source.h"
#include "training/nn/rotary_upload.h"
#include "training/nn/scratch.h"
#include "training/transformer/attention_sublayer.h"
#include "training/transformer/sublayer.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

// An operator whose backward pass has run its first half; the second half is still to come.
struct LaterOperator {
  std::span<const ParameterId> ids;
  std::unique_ptr<LaterGradients> gradients;
};

// Members are destroyed in reverse order, so the workspace is a stack.
template <typename T>
struct MicroBatchRun final : PassedForward {
  MicroBatchRun(ParameterSource& parameter_source, const ModelKernels& math,
                kernels::ThreadPool* threads)
      : source(parameter_source), resources{parameter_source.workspace(), math, threads} {}

  ParameterSource& source;
  Resources resources;
  SublayerContext context;
  size_t elements = 0;  // of the residual stream, on this rank
  std::shared_ptr<const UploadedRotary::Tables> rotary;
  Scratch<T> patches;       // of images, where the part embeds
  Scratch<int32_t> tokens;  // then the targets
  Scratch<T> gradient;      // of the residual stream
  // Holds the inputs, and the values that the sublayers reading them keep, outside the workspace.
  // Each input but the output layer's is an item. Null: all of them are in the workspace.
  zero::ActivationStack* stack = nullptr;
  std::vector<uint64_t> item_bytes;
  std::vector<std::unique_ptr<ItemWorkspace>> items;
  // The input of each sublayer (of each layer in parallel blocks), then that of the output layer.
  std::vector<Scratch<T>> inputs;
  bool goes_back = false;  // else an input is freed when its readers have run
  // Each sublayer's kept values, if activations are kept. They lie between an input and the next.
  bool keeps = false;
  std::vector<std::unique_ptr<SublayerActivations>> kept;
  LayerKeyValueCache<T> keys;  // the KV cache of the layer that runs; null: it extends no sequence
  bool in_halves = false;  // the backward pass runs in two halves; `later` is for the second
  std::vector<LaterOperator> later;

  const int32_t* targets() const { return tokens.data() + context.shape.tokens(); }
  T* Top() { return inputs.back().data(); }
  // The memory of values that lie with the newest input.
  Resources ForInput() const {
    const bool in_item = stack != nullptr && inputs.size() <= item_bytes.size();
    return in_item ? Resources{*items.back(), resources.math} : resources;
  }
  absl::Status Push() {
    if (stack != nullptr && inputs.size() < item_bytes.size()) {
      GEMINID_ASSIGN_OR_RETURN(std::byte* const place, stack->Push());
      items.push_back(std::make_unique<ItemWorkspace>(place, item_bytes[inputs.size()]));
      return PushTo(Resources{*items.back(), resources.math});
    }
    return PushTo(resources);
  }
  absl::Status PushTo(const Resources& place) {
    GEMINID_ASSIGN_OR_RETURN(auto input, Scratch<T>::Allocate(place, elements));
    inputs.push_back(std::move(input));
    return absl::OkStatus();
  }
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_MICRO_BATCH_RUN_H_
