// One micro-batch on its way through a model or a part of one: what the forward pass has left for
// the backward pass, and where.
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
#include "training/transformer/attention_half.h"
#include "training/transformer/sublayer.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {

// The second half of an operator's backward pass.
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
  HalfContext context;
  size_t elements = 0;  // of the residual stream, on this rank
  std::shared_ptr<const UploadedRotary::Tables> rotary;
  Scratch<int32_t> tokens;  // then the targets
  Scratch<T> gradient;      // of the residual stream
  // Where inputs lie, and what is kept by the halves that read them, if not in the workspace: an
  // item for each input but the output layer's.
  zero::ActivationStack* stack = nullptr;
  std::vector<uint64_t> item_bytes;
  std::vector<std::unique_ptr<ItemWorkspace>> items;
  // Of each sublayer, or of each layer whose sublayers read the same, and of the output layer.
  std::vector<Scratch<T>> inputs;
  bool goes_back = false;  // else an input is given back when what reads it has run
  // Of each sublayer, between an input and the next, where they are kept.
  bool keeps = false;
  std::vector<std::unique_ptr<KeptSublayer>> kept;
  RememberedKeys<T> keys;  // of the layer that extends a sequence; null: none does
  bool in_halves = false;  // it goes back, and what is left for the second
  std::vector<LaterOperator> later;

  const int32_t* targets() const { return tokens.data() + context.shape.tokens(); }
  T* Top() { return inputs.back().data(); }
  // For what lies with the newest input.
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
