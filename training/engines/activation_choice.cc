#include "training/engines/activation_choice.h"

#include <string>
#include <vector>

#include "base/status_macros.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

absl::StatusOr<ActivationSpeed> Measure(const TrainOptions& options, const MicroBatchShape& shape,
                                        const ComputePlace& compute,
                                        collectives::Communicator& communicator) {
  GEMINID_ASSIGN_OR_RETURN(const MeasuredSpeed speed,
                           MeasureSpeed(options.model, options.zero.data_type, shape, compute));
  const double link = options.copy_bytes_per_second > 0
                          ? static_cast<double>(options.copy_bytes_per_second)
                          : speed.link_bytes_per_second;
  std::vector<double> slowest = {speed.operations_per_second, link};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(slowest, slowest, collectives::ReduceOp::kMin));
  // A rank loads its share of a chunk; the rest comes from the other ranks.
  return ActivationSpeed{.operations = RecomputedOperations(LargestPart(options), shape),
                         .operations_per_second = slowest[0],
                         .link_bytes_per_second = slowest[1] * communicator.WorldSize(),
                         .copy_bytes_per_second = slowest[1],
                         .copies_run_beside = compute.place.on_gpu()};
}

// All of the model, and all activations.
uint64_t BytesToKeepAll(const TrainOptions& options, int ranks, size_t threads, OfStage stage) {
  return WholeModelBytes(options, stage) + KeptBytesOfShare(options, ranks, stage) +
         WorkspaceBytesOfShare(options, ranks, threads, stage);
}

uint64_t WeightBytes(const TrainOptions& options) {
  return ParametersOfShare(options) * zero::SizeOf(options.zero.data_type);
}

// The same on all ranks. Of the stages of a pipeline each has its own: the most counts. What one
// needs less than the fullest, its arena may be smaller by.
absl::StatusOr<ActivationRoom> RoomOf(const TrainOptions& options, const RankPart& part,
                                      const zero::Statistics& statistics, size_t threads,
                                      collectives::Communicator& communicator) {
  const uint64_t working_set = StepWorkingSetBytes(options, part.bytes, statistics);
  const int ranks = communicator.WorldSize();
  const uint64_t spared = BytesToKeepAll(options, ranks, threads, {}) -
                          BytesToKeepAll(options, ranks, threads, part.stage);
  std::vector<double> least = {static_cast<double>(statistics.arena_bytes + spared),
                               -static_cast<double>(working_set),
                               -static_cast<double>(statistics.device_state_bytes)};
  GEMINID_RETURN_IF_ERROR(communicator.AllReduce(least, least, collectives::ReduceOp::kMin));
  return ActivationRoom{.placement = options.zero.placement,
                        .arena_bytes = static_cast<uint64_t>(least[0]),
                        .workspace_bytes = WorkspaceBytesOfShare(options, ranks, threads),
                        .kept_bytes = KeptBytesOfShare(options, ranks),
                        .whole_model_bytes = WholeModelBytes(options),
                        .weight_bytes = WeightBytes(options),
                        .working_set_bytes = static_cast<uint64_t>(-least[1]),
                        .state_bytes = static_cast<uint64_t>(-least[2]),
                        .item_bytes = part.item_bytes,
                        .input_bytes = InputBytesOfShare(options, ranks)};
}

}  // namespace

uint64_t StepWorkingSetBytes(const TrainOptions& options, uint64_t part_bytes,
                             const zero::Statistics& statistics) {
  // Sums of gradients over micro-batches lie beside the weights.
  const uint64_t sums = options.zero.accumulate > 1 ? 2 : 1;
  if (options.zero.stage == zero::Stage::kWeights) return sums * part_bytes;
  const double weights = static_cast<double>(WeightBytes(options)) / (1 - statistics.waste_ratio);
  return sums * part_bytes + static_cast<uint64_t>(weights);
}

absl::StatusOr<ActivationChoice> ChooseActivations(const TrainOptions& options,
                                                   const RankPart& part,
                                                   const zero::Statistics& statistics,
                                                   const ComputePlace& compute,
                                                   collectives::Communicator& communicator) {
  if (options.activations == Activations::kKeep || options.activations == Activations::kRecompute) {
    return ActivationChoice{.how = options.activations, .why = "as asked"};
  }
  if (options.parallel.expert > 1) {
    return ActivationChoice{.why = "distributed experts support recompute alone"};
  }
  constexpr char kPlanned[] = "as --parallel auto planned";
  if (part.planned_to_keep == std::optional(false)) return ActivationChoice{.why = kPlanned};
  GEMINID_ASSIGN_OR_RETURN(const ActivationRoom room,
                           RoomOf(options, part, statistics, compute.threads, communicator));
  if (options.activations == Activations::kOffload) {
    return ActivationChoice{
        .how = Activations::kOffload, .places = MostPlaces(room), .why = "as asked"};
  }
  if (auto choice = ChooseByRoom(room)) return *std::move(choice);
  if (part.planned_to_keep.has_value() && KeepingFits(room)) {
    return ActivationChoice{.how = Activations::kKeep, .why = kPlanned};
  }
  // What is timed is a layer that is whole.
  if (options.parallel.tensor.size > 1) {
    return ActivationChoice{.why = "not all activations fit, and sharded layers are not timed"};
  }
  const MicroBatchShape shape = ShapeOfShare(options, communicator.WorldSize());
  GEMINID_ASSIGN_OR_RETURN(const ActivationSpeed speed,
                           Measure(options, shape, compute, communicator));
  return ChooseBySpeed(room, speed);
}

absl::StatusOr<ActivationChoice> PrepareActivations(const TrainOptions& options, RankPart part,
                                                    size_t threads,
                                                    collectives::Communicator& communicator,
                                                    TrainedModel* model) {
  GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, model->engine().GetStatistics());
  part.bytes = model->MostWorkingSetBytes(statistics.chunk_elements);
  part.item_bytes = model->ItemBytes();
  GEMINID_ASSIGN_OR_RETURN(
      ActivationChoice choice,
      ChooseActivations(options, part, statistics, model->ComputesWith(threads), communicator));
  if (choice.how != Activations::kOffload) return choice;
  const absl::Status made = model->OffloadActivations(choice.places);
  if (made.ok()) return choice;
  const bool may_differ = options.activations == Activations::kAuto;
  if (!may_differ || !absl::IsResourceExhausted(made)) return made;
  return ActivationChoice{.why = std::string(made.message())};
}

}  // namespace geminid::trainer
