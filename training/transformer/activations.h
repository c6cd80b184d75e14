// What becomes of a micro-batch's activations between the forward and the backward pass. Pure.
#ifndef GEMINID_TRAINING_TRANSFORMER_ACTIVATIONS_H_
#define GEMINID_TRAINING_TRANSFORMER_ACTIVATIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "geminid/zero.h"
#include "training/models/model_config.h"
#include "training/models/parameters.h"
#include "training/nn/blocks.h"

namespace geminid::trainer {

enum class Activations {
  kAuto,
  kKeep,       // on the device
  kOffload,    // in host memory, but for those that are written or needed soon
  kRecompute,  // only the input of each half layer is kept
};
const char* Name(Activations activations);

// Fewer places do not let an item leave, and another one come, while a third one is in use.
inline constexpr uint32_t kFewestPlaces = 3;

// Of one rank, the same on all.
struct ActivationRoom {
  zero::Placement placement = zero::Placement::kAuto;
  uint64_t arena_bytes = 0;
  uint64_t workspace_bytes = 0;    // of a micro-batch that recomputes
  uint64_t kept_bytes = 0;         // more than that where activations are kept
  uint64_t whole_model_bytes = 0;  // what of the model may lie on the device at once
  uint64_t weight_bytes = 0;       // of all gathered weights
  uint64_t working_set_bytes = 0;  // with how much of them a step surely runs
  uint64_t state_bytes = 0;        // that never leaves the device
  // Of the items that can be offloaded (Transformer::ItemBytes), in order; empty: none can.
  std::vector<uint64_t> item_bytes{};
  uint64_t input_bytes = 0;  // of the workspace, which an item has in it
};

// What is at stake in one micro-batch, and how fast it goes.
struct ActivationSpeed {
  double operations = 0;  // RecomputedOperations
  double operations_per_second = 0;
  double link_bytes_per_second = 0;  // of this rank's share of the weights
  double copy_bytes_per_second = 0;  // of its own activations
  // Copies cost the computation nothing as long as they are shorter than it: those of a GPU.
  bool copies_run_beside = false;
};

struct ActivationChoice {
  Activations how = Activations::kRecompute;
  uint32_t places = 0;  // kOffload
  std::string why{};

  bool keeps() const { return how != Activations::kRecompute; }
};

// Device memory beside the model with so many places, of items that there are.
uint64_t OffloadingBytes(const ActivationRoom& room, uint32_t places);

// All that a step needs fits beside activations that are kept.
bool KeepingFits(const ActivationRoom& room);

// The choice where room alone decides: there is enough for all, or too little for any but
// kRecompute, or no weight would have to come again. Otherwise weights or activations would leave:
// nullopt.
std::optional<ActivationChoice> ChooseByRoom(const ActivationRoom& room);

// The fastest of what there is room for: loading again the weights that leave for activations,
// copying activations both ways, or computing them again.
ActivationChoice ChooseBySpeed(const ActivationRoom& room, const ActivationSpeed& speed);

// The most places that there is room for beside the working set, or kFewestPlaces, or as many as
// there are items: for kOffload as asked. 0: no item can be offloaded.
uint32_t MostPlaces(const ActivationRoom& room);

// The floating-point operations that keeping activations spares in a micro-batch: with T tokens, S
// in a sequence, query columns q, key/value columns v, intermediate i and a gate (g = 2, else 1)
// L (2 T H (q + 2 v) + 2 T S q + 2 T H g i); of i those of all MLPs that a token is computed by.
double RecomputedOperations(const ModelConfig& config, const MicroBatchShape& shape);

// Twice the largest operator with its chunks: one computes while the one before or after it is
// reduced or gathered. And twice all that is of a type of its own, as norms are.
uint64_t WorkingSetBytes(const ModelParameters& parameters, zero::DataType data_type,
                         uint64_t chunk_elements);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_ACTIVATIONS_H_
