// How the engine lays out the parameters of geminid-train.
#ifndef GEMINID_TRAINING_FORECAST_TRAINER_LAYOUT_H_
#define GEMINID_TRAINING_FORECAST_TRAINER_LAYOUT_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "client/zero/basics/layout.h"
#include "training/forecast/model.h"
#include "training/forecast/optimizer.h"

namespace geminid::forecast {

// For each tensor of Tensors(model), whether it is a norm's gain or shift.
std::vector<bool> NormsAmongTensors(const Model& model);

// Parameters in bf16, norms in fp32. Each part of a layer, and each expert, is a unit. Tensors that
// the optimizer steps as a whole are not divided. Errors as MakeLayout.
absl::StatusOr<zero::Layout> TrainerLayout(const Model& model, const Optimizer& optimizer,
                                           std::uint64_t sharing_ranks);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_TRAINER_LAYOUT_H_
