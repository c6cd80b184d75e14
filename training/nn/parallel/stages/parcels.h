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

// With the stage at the other end.
struct Delivery {
  Parcel parcel;
  int stage = 0;
};
// What an action of `stage` needs of the part before, or behind in a backward pass, if anything.
std::optional<Delivery> NeedOf(const PipelineShape& shape, int stage, const PipelineAction& action);
// What it leaves for the next part, if anything.
std::optional<Delivery> DeliveryOf(const PipelineShape& shape, int stage,
                                   const PipelineAction& action);

// By pair of stages that have something for each other, what goes from the first to the second, in
// order.
using Routes = std::map<std::array<int, 2>, std::vector<Parcel>>;
Routes RoutesOf(const PipelineShape& shape, const PipelineSchedule& schedule);

// How many parcels a stage has at once in its schedule, at most: what an action works on and gives,
// what has come and is not asked for yet, and what was sent and may not have been taken, however
// far the other stages lag behind.
size_t MostParcels(const PipelineShape& shape, const PipelineSchedule& schedule, int stage);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_PARCELS_H_
