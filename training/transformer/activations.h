// Chooses where a micro-batch's activations are between the forward and the backward pass. Pure.
#ifndef GEMINID_TRAINING_TRANSFORMER_ACTIVATIONS_H_
#define GEMINID_TRAINING_TRANSFORMER_ACTIVATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "geminid/zero.h"
#include "training/forecast/offload_room.h"
#include "training/models/model_config.h"
#include "training/nn/blocks.h"

namespace geminid::trainer {

enum class Activations {
  kAuto,
  kKeep,       // on the device
  kOffload,    // in host memory, except for the items that are written or needed soon
  kRecompute,  // only the input of each sublayer is kept
};
const char* Name(Activations activations);

using forecast::kFewestPlaces;

// The memory of one rank; equal on all ranks.
struct ActivationRoom {
  zero::Placement placement = zero::Placement::kAuto;
  uint64_t arena_bytes = 0;
  uint64_t workspace_bytes = 0;    // of a micro-batch that recomputes
  uint64_t kept_bytes = 0;         // added to workspace_bytes if activations are kept
  uint64_t whole_model_bytes = 0;  // the most of the model that may lie on the device at once
  uint64_t weight_bytes = 0;       // of all gathered weights
  uint64_t working_set_bytes = 0;  // enough of the weights for a step to run
  uint64_t state_bytes = 0;        // of the state that always stays on the device
  // The bytes of each item that can be offloaded (Transformer::ItemBytes), in order; empty: none
  // can.
  std::vector<uint64_t> item_bytes{};
  uint64_t input_bytes = 0;  // of each item's input, which workspace_bytes includes
};

// The work that keeping activations saves in one micro-batch, and the speeds of the alternatives.
struct ActivationSpeed {
  double operations = 0;  // RecomputedOperations
  double operations_per_second = 0;
  double link_bytes_per_second = 0;  // of this rank's shard of the weights
  double copy_bytes_per_second = 0;  // of this rank's activations
  // A copy that is shorter than the computation takes no extra time: true on a GPU.
  bool copies_run_beside = false;
};

struct ActivationChoice {
  Activations how = Activations::kRecompute;
  uint32_t places = 0;  // kOffload
  std::string why{};

  bool keeps() const { return how != Activations::kRecompute; }
};

// The device memory beside the model with so many places. There are at least as many items.
uint64_t OffloadingBytes(const ActivationRoom& room, uint32_t places);

// Whether the memory that a step needs fits beside kept activations.
bool KeepingFits(const ActivationRoom& room);

// The choice, if memory alone decides: there is enough for everything, or too little for anything
// but kRecompute, or the weights are loaded again in any case. nullopt if keeping would evict
// weights or activations: speed decides then.
std::optional<ActivationChoice> ChooseByRoom(const ActivationRoom& room);

// The fastest choice that fits in memory: reload the weights that kept activations evict, copy
// activations to the host and back, or recompute them.
ActivationChoice ChooseBySpeed(const ActivationRoom& room, const ActivationSpeed& speed);

// For kOffload by the user's choice: the most places that fit beside the working set, at least
// kFewestPlaces and at most the number of items. 0: no item can be offloaded.
uint32_t MostPlaces(const ActivationRoom& room);

// The floating-point operations that keeping activations saves in a micro-batch:
//   L (2 T H (q + 2 v) + 2 T S q + 2 T H g i)
// with L layers, T tokens, S tokens in a sequence, hidden size H, q query columns, v key/value
// columns, and g = 2 with a gate, else 1. i counts the columns of all MLPs that compute one token.
double RecomputedOperations(const ModelConfig& config, const MicroBatchShape& shape);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ACTIVATIONS_H_
