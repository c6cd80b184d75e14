// The buffers that stages of a pipeline send to each other, and how many a stage has at once. Pure.
#ifndef GEMINID_TRAINING_NN_PARALLEL_STAGES_STAGE_MESSAGES_H_
#define GEMINID_TRAINING_NN_PARALLEL_STAGES_STAGE_MESSAGES_H_

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <vector>

#include "training/nn/parallel/stages/schedule.h"

namespace geminid::collectives {

// An activation on its way forward, or a gradient on its way back, to the part at `position`.
struct StageMessage {
  bool gradient = false;
  int position = 0;
  int micro_batch = 0;
  auto operator<=>(const StageMessage&) const = default;
};

// A message and the stage that sends or receives it.
struct Delivery {
  StageMessage stage_message;
  int stage = 0;
};
// The message that an action of `stage` needs from the part before, or in a backward pass from the
// part after; nothing if it needs none.
std::optional<Delivery> NeedOf(const PipelineShape& shape, int stage, const PipelineAction& action);
// The message that an action gives to the next part of its pass; nothing if it gives none.
std::optional<Delivery> DeliveryOf(const PipelineShape& shape, int stage,
                                   const PipelineAction& action);

// The messages from one stage to another, in order, for each pair of stages that exchange messages.
using Routes = std::map<std::array<int, 2>, std::vector<StageMessage>>;
Routes RoutesOf(const PipelineShape& shape, const PipelineSchedule& schedule);

// The most messages that a stage has at once in its schedule, however far the other stages lag
// behind. They are the input and output of the current action, messages that arrived early, and
// sent messages that may not have been taken.
size_t MostStageMessages(const PipelineShape& shape, const PipelineSchedule& schedule, int stage);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_STAGES_STAGE_MESSAGES_H_
