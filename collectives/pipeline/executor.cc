#include "collectives/pipeline/executor.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "geminid/async_communicator.h"

namespace geminid::collectives {
namespace {

// What passes between two stages: an activation on its way forward, or a gradient on its way back,
// to the part at `position`.
struct Parcel {
  bool gradient = false;
  int position = 0;
  int micro_batch = 0;
  auto operator<=>(const Parcel&) const = default;
};

// What an action of `stage` leaves for the next part, if anything, and on which stage that is.
struct Delivery {
  Parcel parcel;
  int stage = 0;
};
std::optional<Delivery> DeliveryOf(const PipelineShape& shape, int stage,
                                   const PipelineAction& action) {
  if (action.work == PipelineWork::kBackwardWeight) return std::nullopt;
  const bool gradient = action.work != PipelineWork::kForward;
  const int own = PositionOf(shape, stage, action.part);
  const int next = gradient ? own - 1 : own + 1;
  if (next < 0 || next == shape.stages * shape.parts) return std::nullopt;
  return Delivery{{gradient, next, action.micro_batch}, PlaceAt(shape, next).stage};
}

class Executor : public PipelineExecutor {
 public:
  // The way to one other stage, and what comes from there, in the order in which it is sent.
  struct Neighbour {
    std::unique_ptr<AsyncCommunicator> out;
    std::unique_ptr<Communicator> in;
    std::vector<Parcel> arrivals;
    size_t arrived = 0;  // in this run
  };

  Executor(const PipelineShape& shape, PipelineSchedule schedule, int stage,
           size_t activation_elements, std::map<int, Neighbour> neighbours)
      : shape_(shape),
        actions_(std::move(schedule[static_cast<size_t>(stage)])),
        stage_(stage),
        activation_elements_(activation_elements),
        neighbours_(std::move(neighbours)) {}

  absl::Status Run(PipelineStage& stage) override {
    if (!failure_.ok()) return failure_;
    for (auto& [number, neighbour] : neighbours_) neighbour.arrived = 0;
    failure_ = RunActions(stage);
    if (!failure_.ok()) {
      here_.clear();
      const std::string reason(failure_.message());
      for (auto& [number, neighbour] : neighbours_) {
        neighbour.out->Abort(reason);
        neighbour.in->Abort(reason);
      }
    }
    return failure_;
  }

 private:
  absl::Status RunActions(PipelineStage& stage) {
    for (const PipelineAction& action : actions_) GEMINID_RETURN_IF_ERROR(RunAction(stage, action));
    for (auto& [number, neighbour] : neighbours_) {
      GEMINID_RETURN_IF_ERROR(neighbour.out->Synchronize());
    }
    return absl::OkStatus();
  }

  absl::Status RunAction(PipelineStage& stage, const PipelineAction& action) {
    const auto& [work, part, micro_batch] = action;
    if (work == PipelineWork::kBackwardWeight) return stage.BackwardWeight(part, micro_batch);
    const bool gradient = work != PipelineWork::kForward;
    const int position = PositionOf(shape_, stage_, part);
    const int from = gradient ? position + 1 : position - 1;
    std::vector<float> in;
    if (from >= 0 && from < shape_.stages * shape_.parts) {
      auto taken = Take({gradient, position, micro_batch}, PlaceAt(shape_, from).stage);
      if (!taken.ok()) return taken.status();
      in = *std::move(taken);
    }
    const std::optional<Delivery> delivery = DeliveryOf(shape_, stage_, action);
    std::vector<float> out(delivery.has_value() ? activation_elements_ : 0);
    const absl::Status worked = gradient ? stage.BackwardInput(part, micro_batch, in, out)
                                         : stage.Forward(part, micro_batch, in, out);
    GEMINID_RETURN_IF_ERROR(worked);
    if (delivery.has_value()) GEMINID_RETURN_IF_ERROR(Deliver(*delivery, std::move(out)));
    return work == PipelineWork::kBackward ? stage.BackwardWeight(part, micro_batch)
                                           : absl::OkStatus();
  }

  absl::Status Deliver(const Delivery& delivery, std::vector<float> elements) {
    if (delivery.stage == stage_) {  // to this stage's other part
      here_[delivery.parcel] = std::move(elements);
      return absl::OkStatus();
    }
    AsyncCommunicator& out = *neighbours_.at(delivery.stage).out;
    GEMINID_RETURN_IF_ERROR(out.health());
    (void)out.Run([elements = std::move(elements), tag = delivery.parcel.micro_batch](
                      Communicator& pair) { return pair.Send(elements, 1 - pair.Rank(), tag); });
    return absl::OkStatus();
  }

  // What comes before it is kept until it is asked for.
  absl::StatusOr<std::vector<float>> Take(const Parcel& parcel, int from) {
    while (!here_.contains(parcel)) {  // the schedule has it made before, if this stage makes it
      Neighbour& neighbour = neighbours_.at(from);
      const Parcel& next = neighbour.arrivals[neighbour.arrived++];
      std::vector<float> elements(activation_elements_);
      GEMINID_RETURN_IF_ERROR(
          neighbour.in->Receive(elements, 1 - neighbour.in->Rank(), next.micro_batch));
      here_[next] = std::move(elements);
    }
    return std::move(here_.extract(parcel).mapped());
  }

  const PipelineShape shape_;
  const std::vector<PipelineAction> actions_;
  const int stage_;
  const size_t activation_elements_;
  std::map<int, Neighbour> neighbours_;        // by stage
  std::map<Parcel, std::vector<float>> here_;  // arrived, and not asked for yet
  absl::Status failure_;
};

// By pair of stages that have something for each other, what goes from the first to the second.
using Routes = std::map<std::array<int, 2>, std::vector<Parcel>>;

Routes RoutesOf(const PipelineShape& shape, const PipelineSchedule& schedule) {
  Routes routes;
  for (int stage = 0; stage < shape.stages; ++stage) {
    for (const PipelineAction& action : schedule[static_cast<size_t>(stage)]) {
      const std::optional<Delivery> delivery = DeliveryOf(shape, stage, action);
      if (!delivery.has_value() || delivery->stage == stage) continue;
      routes[{stage, delivery->stage}].push_back(delivery->parcel);
    }
  }
  return routes;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineExecutor>> PipelineExecutor::Make(const PipelineShape& shape,
                                                                         const PipelineCosts& costs,
                                                                         size_t activation_elements,
                                                                         Communicator& stages) {
  auto schedule = MakePipelineSchedule(shape, costs);
  if (!schedule.ok()) return schedule.status();
  if (stages.WorldSize() != shape.stages) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a pipeline of %d stages needs as many ranks, not %d", shape.stages, stages.WorldSize()));
  }
  const int own = stages.Rank();
  std::map<int, Executor::Neighbour> neighbours;
  // Activations one way and gradients the other: whoever has an in of a stage has an out to it.
  for (auto& [route, parcels] : RoutesOf(shape, *schedule)) {
    const auto [from, to] = route;
    if (from != own && to != own) continue;
    auto pair = stages.Subset(absl::StrCat("pipeline from ", from), std::array{from, to});
    if (!pair.ok()) return pair.status();
    Executor::Neighbour& neighbour = neighbours[from == own ? to : from];
    if (from == own) {
      GEMINID_ASSIGN_OR_RETURN(neighbour.out, AsyncCommunicator::Start(*std::move(pair)));
    } else {
      neighbour.in = *std::move(pair);
      neighbour.arrivals = std::move(parcels);
    }
  }
  return std::make_unique<Executor>(shape, *std::move(schedule), own, activation_elements,
                                    std::move(neighbours));
}

}  // namespace geminid::collectives
