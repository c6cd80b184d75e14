#include "training/forecast/activation_places.h"

#include "base/status_macros.h"
#include "training/forecast/costs.h"
#include "training/forecast/hardware.h"
#include "training/forecast/offload_room.h"
#include "training/forecast/trainer_layout.h"
#include "training/forecast/trainer_need.h"
#include "training/models/parameters.h"
#include "training/models/working_set.h"

namespace geminid::forecast {

absl::StatusOr<std::uint32_t> ActivationPlaces(const Model& model, const Job& job) {
  GEMINID_ASSIGN_OR_RETURN(const zero::Layout layout,
                           TrainerLayout(model, job.optimizer, job.ranks));
  trainer::ModelConfig config = model;
  config.fp32_norms = true;
  WorkspaceShape shape = WorkspaceShapeOf(model);
  shape.batch = job.batch;
  if (IsInTable(job.hardware)) shape.UseGpu();
  OffloadRoom room = {
      .arena_bytes = RoundDownToExtent(job.hardware.usable_bytes()),
      .model_bytes = trainer::WorkingSetBytes(trainer::MakeParameters(config),
                                              zero::DataType::kBFloat16, layout.chunk_elements),
      .workspace_bytes = TrainerWorkspaceBytes(shape),
      .input_bytes = kElementBytes * job.batch.tokens() * model.hidden};
  for (std::uint64_t layer = 0; layer < model.layers; ++layer) {
    for (const Operator part : PartsOfLayer(model, layer)) {
      room.item_bytes.push_back(TrainerSavedBytes(model, part, job.batch));
    }
  }
  return MostPlaces(room);
}

}  // namespace geminid::forecast
