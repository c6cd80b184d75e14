// The buffers that stages of a pipeline send to each other, and how many a stage has at once. Pure.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_PARCELS_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_PARCELS_H_

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// An activation on its way forward, or a gradient on its way back, to the part at `position`.
struct Parcel {
  bool gradient = false;
  int position = 0;
  int micro_batch = 0;
  auto operator<=>(const Parcel&) const = default;
};

// A parcel and the stage that sends or receives it.
struct Delivery {
  Parcel parcel;
  int stage = 0;
};
// The parcel that an action of `stage` needs from the part before, or in a backward pass from the
// part after; nothing if it needs none.
std::optional<Delivery> NeedOf(const PipelineShape& shape, int stage, const PipelineAction& action);
// The parcel that an action gives to the next part of its pass; nothing if it gives none.
std::optional<Delivery> DeliveryOf(const PipelineShape& shape, int stage,
                                   const PipelineAction& action);

// The parcels from one stage to another, in order, for each pair of stages that exchange parcels.
using Routes = std::map<std::array<int, 2>, std::vector<Parcel>>;
Routes RoutesOf(const PipelineShape& shape, const PipelineSchedule& schedule);

// The most parcels that a stage has at once in its schedule, however far the other stages lag
// behind. They are the input and output of the current action, parcels that arrived early, and sent
// parcels that may not have been taken.
size_t MostParcels(const PipelineShape& shape, const PipelineSchedule& schedule, int stage);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_PARCELS_H_
