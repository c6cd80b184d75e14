#include "training/nn/parallel/stages/executor.h"

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "geminid/async_communicator.h"
#include "training/nn/parallel/stages/parcels.h"

namespace geminid::collectives {
namespace {

// A fixed number of buffers for parcels. Any thread.
class Shelf {
 public:
  // The buffer of one parcel. Its destructor returns the buffer; the shelf must still exist.
  class Place {
   public:
    Place() = default;  // none
    Place(Shelf* shelf, size_t index) : shelf_(shelf), index_(index) {}
    Place(Place&& other) noexcept
        : shelf_(std::exchange(other.shelf_, nullptr)), index_(other.index_) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(shelf_, other.shelf_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Place() {
      if (shelf_ != nullptr) shelf_->GiveBack(index_);
    }
    std::span<float> elements() const {
      return shelf_ == nullptr ? std::span<float>() : shelf_->At(index_);
    }

   private:
    Shelf* shelf_ = nullptr;
    size_t index_ = 0;
  };

  // `room` has the memory of `places` parcels.
  Shelf(FloatBlock room, size_t places) : room_(std::move(room)), each_(0), free_(places) {
    if (places > 0) each_ = room_.size() / places;
    std::iota(free_.begin(), free_.end(), size_t{0});
  }

  // Waits for a free buffer. There are as many as the schedule has in use at once. So a caller
  // waits only for a parcel that its receiver already has and that its sender is about to free.
  Place Take() {
    std::unique_lock lock(mutex_);
    came_back_.wait(lock, [this] { return !free_.empty(); });
    const size_t index = free_.back();
    free_.pop_back();
    return Place(this, index);
  }

 private:
  std::span<float> At(size_t index) const { return room_.all().subspan(index * each_, each_); }
  void GiveBack(size_t index) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(index);
    }
    came_back_.notify_one();
  }

  const FloatBlock room_;
  size_t each_;  // elements
  std::mutex mutex_;
  std::condition_variable came_back_;
  std::vector<size_t> free_;
};

class Executor : public PipelineExecutor {
 public:
  // The connection to another stage, and the parcels that come from it, in the order of sending.
  struct Neighbour {
    std::unique_ptr<AsyncCommunicator> out;
    std::unique_ptr<Communicator> in;
    std::vector<Parcel> arrivals;
    size_t arrived = 0;  // in the current run
  };

  Executor(const PipelineShape& shape, PipelineSchedule schedule, int stage, FloatBlock room,
           size_t places, std::map<int, Neighbour> neighbours)
      : shape_(shape),
        actions_(std::move(schedule[static_cast<size_t>(stage)])),
        stage_(stage),
        shelf_(std::move(room), places),
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
    Shelf::Place in;
    if (const std::optional<Delivery> need = NeedOf(shape_, stage_, action)) {
      GEMINID_ASSIGN_OR_RETURN(in, Take(*need));
    }
    const std::optional<Delivery> delivery = DeliveryOf(shape_, stage_, action);
    Shelf::Place out;
    if (delivery.has_value()) out = shelf_.Take();
    const absl::Status worked =
        work == PipelineWork::kForward
            ? stage.Forward(part, micro_batch, in.elements(), out.elements())
            : stage.BackwardInput(part, micro_batch, in.elements(), out.elements());
    GEMINID_RETURN_IF_ERROR(worked);
    if (delivery.has_value()) GEMINID_RETURN_IF_ERROR(Deliver(*delivery, std::move(out)));
    return work == PipelineWork::kBackward ? stage.BackwardWeight(part, micro_batch)
                                           : absl::OkStatus();
  }

  absl::Status Deliver(const Delivery& delivery, Shelf::Place place) {
    if (delivery.stage == stage_) {  // to this stage's other part
      here_[delivery.parcel] = std::move(place);
      return absl::OkStatus();
    }
    AsyncCommunicator& out = *neighbours_.at(delivery.stage).out;
    GEMINID_RETURN_IF_ERROR(out.health());
    auto sent = std::make_shared<Shelf::Place>(std::move(place));
    (void)out.Run([sent = std::move(sent), tag = delivery.parcel.micro_batch](Communicator& pair) {
      const absl::Status status = pair.Send(sent->elements(), 1 - pair.Rank(), tag);
      const Shelf::Place gone = std::move(*sent);
      return status;
    });
    return absl::OkStatus();
  }

  // Receives the needed parcel, and stores the parcels that come before it until they are needed.
  absl::StatusOr<Shelf::Place> Take(const Delivery& need) {
    // If this stage makes the parcel, the schedule has made it earlier.
    while (!here_.contains(need.parcel)) {
      Neighbour& neighbour = neighbours_.at(need.stage);
      const Parcel& next = neighbour.arrivals[neighbour.arrived++];
      Shelf::Place place = shelf_.Take();
      GEMINID_RETURN_IF_ERROR(
          neighbour.in->Receive(place.elements(), 1 - neighbour.in->Rank(), next.micro_batch));
      here_[next] = std::move(place);
    }
    return std::move(here_.extract(need.parcel).mapped());
  }

  const PipelineShape shape_;
  const std::vector<PipelineAction> actions_;
  const int stage_;
  Shelf shelf_;
  std::map<Parcel, Shelf::Place> here_;  // arrived, but not needed yet
  std::map<int, Neighbour> neighbours_;  // by stage
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineExecutor>> PipelineExecutor::Make(const PipelineShape& shape,
                                                                         const PipelineCosts& costs,
                                                                         size_t activation_elements,
                                                                         Communicator& stages,
                                                                         Memory& memory) {
  auto schedule = MakePipelineSchedule(shape, costs);
  if (!schedule.ok()) return schedule.status();
  if (stages.WorldSize() != shape.stages) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a pipeline of %d stages needs as many ranks, not %d", shape.stages, stages.WorldSize()));
  }
  const int own = stages.Rank();
  const size_t places = MostParcels(shape, *schedule, own);
  absl::StatusOr<FloatBlock> room = FloatBlock::Allocate(
      memory, "transfer buffers between the stages of a pipeline", places * activation_elements);
  GEMINID_RETURN_IF_ERROR(TellIfRefused(stages, room.status()));
  GEMINID_RETURN_IF_ERROR(stages.Barrier());  // no rank continues unless all have their memory
  std::map<int, Executor::Neighbour> neighbours;
  // Activations go one way and gradients the other, so each pair of neighbours has both directions.
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
  return std::make_unique<Executor>(shape, *std::move(schedule), own, *std::move(room), places,
                                    std::move(neighbours));
}

}  // namespace geminid::collectives
