// The places of a run of geminid-train that offloads its activations.
#ifndef GEMINID_TRAINING_FORECAST_ACTIVATION_PLACES_H_
#define GEMINID_TRAINING_FORECAST_ACTIVATION_PLACES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"

namespace geminid::forecast {

// The most places beside the working set of the weights, by the trainer's own rule (MostPlaces).
// Hardware of the table is a GPU; other hardware is a host device, whose trainer has one thread.
absl::StatusOr<std::uint32_t> ActivationPlaces(const Model& model, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_ACTIVATION_PLACES_H_
