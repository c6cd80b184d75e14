// What is chosen for a run where ranks were measured. Pure.
#ifndef GEMINID_TOOLS_PARALLEL_PLACED_CHOICE_H_
#define GEMINID_TOOLS_PARALLEL_PLACED_CHOICE_H_

#include "absl/status/statusor.h"
#include "tools/parallel/choose.h"
#include "tools/parallel/place.h"

namespace geminid::parallel {

// INVALID_ARGUMENT where the ranks do not share the sequences of a step out evenly, and for an
// optimizer that is not known.
absl::StatusOr<forecast::Job> JobOf(const PlacedRun& run);

// What is chosen for it. Errors as JobOf and Choose.
absl::StatusOr<Choice> ChooseFor(const forecast::Model& model, const PlacedRun& run);

}  // namespace geminid::parallel

#endif  // GEMINID_TOOLS_PARALLEL_PLACED_CHOICE_H_
