#include "training/nn/parallel/stages/timeline.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_format.h"
#include "training/nn/parallel/stages/progress.h"

namespace geminid::collectives {
namespace {

bool IsLegal(const PipelineShape& shape, const PipelineAction& action) {
  return action.part >= 0 && action.part < shape.parts && action.micro_batch >= 0 &&
         action.micro_batch < shape.micro_batches;
}

const char* Name(PipelineWork work) {
  switch (work) {
    case PipelineWork::kForward:
      return "forward";
    case PipelineWork::kBackward:
      return "backward";
    case PipelineWork::kBackwardInput:
      return "gradient of the input";
    case PipelineWork::kBackwardWeight:
      return "gradients of the weights";
  }
  return "?";
}

absl::Status Refuse(int stage, const PipelineAction& action, const char* why) {
  return absl::InvalidArgumentError(absl::StrFormat("stage %d, micro-batch %d, part %d: the %s %s",
                                                    stage, action.micro_batch, action.part,
                                                    Name(action.work), why));
}

class Runner {
 public:
  Runner(const PipelineShape& shape, const PipelineSchedule& schedule, const PipelineCosts& costs)
      : shape_(shape),
        schedule_(schedule),
        progress_(shape, costs),
        next_(schedule.size(), 0),
        in_flight_(schedule.size(), 0) {
    timeline_.spans.resize(schedule.size());
    timeline_.busy.resize(schedule.size(), 0);
    timeline_.most_in_flight.resize(schedule.size(), 0);
  }

  absl::StatusOr<PipelineTimeline> Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < schedule_.size(); ++stage) {
        while (next_[stage] < schedule_[stage].size()) {
          const absl::StatusOr<bool> ran = RunNext(stage);
          if (!ran.ok()) return ran.status();
          if (!*ran) break;
          moved = true;
        }
      }
    }
    if (absl::Status status = CheckEnd(); !status.ok()) return status;
    return std::move(timeline_);
  }

 private:
  // False while the stage's next action waits for another stage.
  absl::StatusOr<bool> RunNext(size_t stage) {
    const PipelineAction& action = schedule_[stage][next_[stage]];
    const int number = static_cast<int>(stage);
    if (!IsLegal(shape_, action))
      return Refuse(number, action, "is of no such part or micro-batch");
    if (progress_.IsDone(number, action)) return Refuse(number, action, "is there twice");
    const double ready = progress_.ReadyAt(number, action);
    if (ready == PipelineProgress::kNever) return false;
    auto& spans = timeline_.spans[stage];
    const double begin = std::max(ready, spans.empty() ? 0.0 : spans.back().end);
    const double cost = progress_.CostOf(action.work);
    spans.push_back({begin, begin + cost});
    progress_.Finish(number, action, begin + cost);
    timeline_.end = std::max(timeline_.end, begin + cost);
    timeline_.busy[stage] += cost;
    CountInFlight(stage, action.work);
    ++next_[stage];
    return true;
  }

  void CountInFlight(size_t stage, PipelineWork work) {
    int& now = in_flight_[stage];
    if (work == PipelineWork::kForward) ++now;
    timeline_.most_in_flight[stage] = std::max(timeline_.most_in_flight[stage], now);
    if (work == PipelineWork::kBackward || work == PipelineWork::kBackwardWeight) --now;
  }

  absl::Status CheckEnd() const {
    for (size_t stage = 0; stage < schedule_.size(); ++stage) {
      const int number = static_cast<int>(stage);
      if (next_[stage] < schedule_[stage].size()) {
        return Refuse(number, schedule_[stage][next_[stage]], "waits for ever");
      }
      for (int part = 0; part < shape_.parts; ++part) {
        for (int micro_batch = 0; micro_batch < shape_.micro_batches; ++micro_batch) {
          const PipelineAction last{PipelineWork::kBackwardWeight, part, micro_batch};
          if (!progress_.IsDone(number, last)) return Refuse(number, last, "are left out");
        }
      }
    }
    return absl::OkStatus();
  }

  const PipelineShape& shape_;
  const PipelineSchedule& schedule_;
  PipelineProgress progress_;
  std::vector<size_t> next_;
  std::vector<int> in_flight_;
  PipelineTimeline timeline_;
};

}  // namespace

double PipelineTimeline::bubble() const {
  const double all = end * static_cast<double>(busy.size());
  return all == 0 ? 0 : 1 - std::accumulate(busy.begin(), busy.end(), 0.0) / all;
}

absl::StatusOr<PipelineTimeline> RunSchedule(const PipelineShape& shape,
                                             const PipelineSchedule& schedule,
                                             const PipelineCosts& costs) {
  if (schedule.size() != static_cast<size_t>(shape.stages)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "a schedule of %d stages for a pipeline of %d", schedule.size(), shape.stages));
  }
  return Runner(shape, schedule, costs).Run();
}

}  // namespace geminid::collectives
