// Decides whether the backward pass recomputes activations or finds them kept. Pure.
#ifndef GEMINID_TRAINING_TRANSFORMER_RECOMPUTE_H_
#define GEMINID_TRAINING_TRANSFORMER_RECOMPUTE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "geminid/zero.h"
#include "training/models/model_config.h"
#include "training/models/parameters.h"
#include "training/nn/blocks.h"

namespace geminid::trainer {

enum class Recompute { kAuto, kOn, kOff };
const char* Name(Recompute recompute);

// Of one rank, the same on all.
struct RecomputeRoom {
  zero::Placement placement = zero::Placement::kAuto;
  uint64_t arena_bytes = 0;
  uint64_t workspace_bytes = 0;    // of a micro-batch that recomputes
  uint64_t kept_bytes = 0;         // more than that where activations are kept
  uint64_t whole_model_bytes = 0;  // what of the model may lie on the device at once
  uint64_t weight_bytes = 0;       // of all gathered weights
  uint64_t working_set_bytes = 0;  // with how much of them a step surely runs
  uint64_t state_bytes = 0;        // that never leaves the device
};

// What is at stake in one micro-batch, and how fast it goes.
struct RecomputeSpeed {
  double operations = 0;  // RecomputedOperations
  double operations_per_second = 0;
  double link_bytes_per_second = 0;  // of this rank's share of the weights
};

struct RecomputeChoice {
  bool keeps = false;
  std::string why;
};

// The choice where room alone decides: there is enough for all, or too little, or no weight would
// have to come again. Otherwise weights would leave for the activations: nullopt.
std::optional<RecomputeChoice> ChooseByRoom(const RecomputeRoom& room);

// The choice between computing again and loading again what leaves: the shorter one.
RecomputeChoice ChooseBySpeed(const RecomputeRoom& room, const RecomputeSpeed& speed);

// The floating-point operations that keeping activations spares in a micro-batch: with T tokens, S
// in a sequence, query columns q, key/value columns v, intermediate i and a gate (g = 2, else 1)
// L (2 T H (q + 2 v) + 2 T S q + 2 T H g i); of i those of all MLPs that a token is computed by.
double RecomputedOperations(const ModelConfig& config, const MicroBatchShape& shape);

// Twice the largest operator with its chunks: one computes while the one before or after it is
// reduced or gathered. And twice all that is of a type of its own, as norms are.
uint64_t WorkingSetBytes(const ModelParameters& parameters, zero::DataType data_type,
                         uint64_t chunk_elements);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_TRANSFORMER_RECOMPUTE_H_
