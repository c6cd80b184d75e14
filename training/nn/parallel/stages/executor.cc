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
#include "training/nn/parallel/stages/stage_messages.h"

namespace geminid::collectives {
namespace {

// A fixed number of buffers for messages. Any thread.
class MessageBuffers {
 public:
  // The buffer of one message. Its destructor returns the buffer; the MessageBuffers must still
  // exist.
  class Buffer {
   public:
    Buffer() = default;  // none
    Buffer(MessageBuffers* buffers, size_t index) : buffers_(buffers), index_(index) {}
    Buffer(Buffer&& other) noexcept
        : buffers_(std::exchange(other.buffers_, nullptr)), index_(other.index_) {}
    Buffer& operator=(Buffer&& other) noexcept {
      std::swap(buffers_, other.buffers_);
      std::swap(index_, other.index_);
      return *this;
    }
    ~Buffer() {
      if (buffers_ != nullptr) buffers_->GiveBack(index_);
    }
    std::span<float> elements() const {
      return buffers_ == nullptr ? std::span<float>() : buffers_->At(index_);
    }

   private:
    MessageBuffers* buffers_ = nullptr;
    size_t index_ = 0;
  };

  // `room` has the memory of `places` messages.
  MessageBuffers(FloatBlock room, size_t places) : room_(std::move(room)), each_(0), free_(places) {
    if (places > 0) each_ = room_.size() / places;
    std::iota(free_.begin(), free_.end(), size_t{0});
  }

  // Waits for a free buffer. There are as many as the schedule has in use at once. So a caller
  // waits only for a message that its receiver already has and that its sender is about to free.
  Buffer Take() {
    std::unique_lock lock(mutex_);
    came_back_.wait(lock, [this] { return !free_.empty(); });
    const size_t index = free_.back();
    free_.pop_back();
    return Buffer(this, index);
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
  // The connection to another stage, and the messages that come from it, in the order of sending.
  struct Neighbour {
    std::unique_ptr<AsyncCommunicator> out;
    std::unique_ptr<Communicator> in;
    std::vector<StageMessage> arrivals;
    size_t arrived = 0;  // in the current run
  };

  Executor(const PipelineShape& shape, PipelineSchedule schedule, int stage, FloatBlock room,
           size_t places, std::map<int, Neighbour> neighbours)
      : shape_(shape),
        actions_(std::move(schedule[static_cast<size_t>(stage)])),
        stage_(stage),
        buffers_(std::move(room), places),
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
    MessageBuffers::Buffer in;
    if (const std::optional<Delivery> need = NeedOf(shape_, stage_, action)) {
      GEMINID_ASSIGN_OR_RETURN(in, Take(*need));
    }
    const std::optional<Delivery> delivery = DeliveryOf(shape_, stage_, action);
    MessageBuffers::Buffer out;
    if (delivery.has_value()) out = buffers_.Take();
    const absl::Status worked =
        work == PipelineWork::kForward
            ? stage.Forward(part, micro_batch, in.elements(), out.elements())
            : stage.BackwardInput(part, micro_batch, in.elements(), out.elements());
    GEMINID_RETURN_IF_ERROR(worked);
    if (delivery.has_value()) GEMINID_RETURN_IF_ERROR(Deliver(*delivery, std::move(out)));
    return work == PipelineWork::kBackward ? stage.BackwardWeight(part, micro_batch)
                                           : absl::OkStatus();
  }

  absl::Status Deliver(const Delivery& delivery, MessageBuffers::Buffer place) {
    if (delivery.stage == stage_) {  // to this stage's other part
      here_[delivery.stage_message] = std::move(place);
      return absl::OkStatus();
    }
    AsyncCommunicator& out = *neighbours_.at(delivery.stage).out;
    GEMINID_RETURN_IF_ERROR(out.health());
    auto sent = std::make_shared<MessageBuffers::Buffer>(std::move(place));
    (void)out.Run(
        [sent = std::move(sent), tag = delivery.stage_message.micro_batch](Communicator& pair) {
          const absl::Status status = pair.Send(sent->elements(), 1 - pair.Rank(), tag);
          const MessageBuffers::Buffer gone = std::move(*sent);
          return status;
        });
    return absl::OkStatus();
  }

  // Receives the needed message, and stores the messages that come before it until they are needed.
  absl::StatusOr<MessageBuffers::Buffer> Take(const Delivery& need) {
    // If this stage makes the message, the schedule has made it earlier.
    while (!here_.contains(need.stage_message)) {
      Neighbour& neighbour = neighbours_.at(need.stage);
      const StageMessage& next = neighbour.arrivals[neighbour.arrived++];
      MessageBuffers::Buffer place = buffers_.Take();
      GEMINID_RETURN_IF_ERROR(
          neighbour.in->Receive(place.elements(), 1 - neighbour.in->Rank(), next.micro_batch));
      here_[next] = std::move(place);
    }
    return std::move(here_.extract(need.stage_message).mapped());
  }

  const PipelineShape shape_;
  const std::vector<PipelineAction> actions_;
  const int stage_;
  MessageBuffers buffers_;
  std::map<StageMessage, MessageBuffers::Buffer> here_;  // arrived, but not needed yet
  std::map<int, Neighbour> neighbours_;  // by stage
  absl::Status failure_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PipelineExecutor>> PipelineExecutor::Make(const PipelineShape& shape,
                                                                         const PipelineCosts& costs,
                                                                         size_t activation_elements,
                                                                         Communicator& stages,
                                                                         Memory& memory) {
  GEMINID_ASSIGN_OR_RETURN(auto schedule, MakePipelineSchedule(shape, costs));
  if (stages.WorldSize() != shape.stages) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a pipeline of %d stages needs as many ranks, not %d", shape.stages, stages.WorldSize()));
  }
  const int own = stages.Rank();
  const size_t places = MostStageMessages(shape, schedule, own);
  absl::StatusOr<FloatBlock> room = FloatBlock::Allocate(
      memory, "transfer buffers between the stages of a pipeline", places * activation_elements);
  GEMINID_RETURN_IF_ERROR(TellIfRefused(stages, room.status()));
  GEMINID_RETURN_IF_ERROR(stages.Barrier());  // no rank continues unless all have their memory
  std::map<int, Executor::Neighbour> neighbours;
  // Activations go one way and gradients the other, so each pair of neighbours has both directions.
  for (auto& [route, stage_messages] : RoutesOf(shape, schedule)) {
    const auto [from, to] = route;
    if (from != own && to != own) continue;
    GEMINID_ASSIGN_OR_RETURN(
        auto pair, stages.Subset(absl::StrCat("pipeline from ", from), std::array{from, to}));
    Executor::Neighbour& neighbour = neighbours[from == own ? to : from];
    if (from == own) {
      GEMINID_ASSIGN_OR_RETURN(neighbour.out, AsyncCommunicator::Start(std::move(pair)));
    } else {
      neighbour.in = std::move(pair);
      neighbour.arrivals = std::move(stage_messages);
    }
  }
  return std::make_unique<Executor>(shape, std::move(schedule), own, *std::move(room), places,
                                    std::move(neighbours));
}

}  // namespace geminid::collectives
