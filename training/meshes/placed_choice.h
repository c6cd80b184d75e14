// Chooses the mesh of a run from measurements of its ranks. Pure.
#ifndef GEMINID_TRAINING_MESHES_PLACED_CHOICE_H_
#define GEMINID_TRAINING_MESHES_PLACED_CHOICE_H_

#include "absl/status/statusor.h"
#include "training/meshes/choose.h"
#include "training/meshes/place.h"

namespace geminid::parallel {

// INVALID_ARGUMENT if the ranks do not divide the sequences of a step, or the optimizer is unknown.
absl::StatusOr<forecast::Job> JobOf(const PlacedRun& run);

// The choice for the run. Errors as JobOf and Choose.
absl::StatusOr<Choice> ChooseFor(const forecast::Model& model, const PlacedRun& run);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_PLACED_CHOICE_H_
