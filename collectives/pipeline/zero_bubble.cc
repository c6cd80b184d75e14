#include "collectives/pipeline/zero_bubble.h"

#include <algorithm>
#include <array>
#include <optional>

#include "absl/status/status.h"
#include "collectives/pipeline/progress.h"

namespace geminid::collectives {
namespace {

// A weights' gradient starts in a gap that is at least this share of its time. Smaller shares keep
// memory low, larger ones keep others from waiting; which is better depends on the costs.
constexpr std::array<double, 4> kGapShares = {0.01, 0.34, 0.67, 1.0};

struct Candidate {
  PipelineAction action;
  double begin = PipelineProgress::kNever;
};

class Greedy {
 public:
  Greedy(const PipelineShape& shape, const PipelineCosts& costs, double gap_share)
      : shape_(shape),
        gap_share_(gap_share),
        progress_(shape, costs),
        stages_(static_cast<size_t>(shape.stages)),
        schedule_(stages_.size()) {}

  absl::StatusOr<PipelineSchedule> Run() {
    const size_t actions = stages_.size() * 2 * 3 * static_cast<size_t>(shape_.micro_batches);
    for (size_t done = 0; done < actions; ++done) {
      int first = 0;
      Candidate best;
      for (int stage = 0; stage < shape_.stages; ++stage) {
        const Candidate candidate = Next(stage);
        if (candidate.begin < best.begin) {
          best = candidate;
          first = stage;
        }
      }
      if (best.begin == PipelineProgress::kNever) {
        return absl::InternalError("the zero-bubble schedule of this pipeline does not end");
      }
      Take(first, best);
    }
    return std::move(schedule_);
  }

  double end() const {
    double end = 0;
    for (const Stage& stage : stages_) end = std::max(end, stage.free);
    return end;
  }

 private:
  struct Stage {
    double free = 0;
    int in_flight = 0;
    // The next micro-batch, by part.
    std::array<int, 2> forward = {}, input = {}, weight = {};
  };

  // As much as 1F1B holds in its first stage: S whole stages, each of two parts.
  int MostInFlight() const { return 2 * shape_.stages; }

  Candidate At(int stage, PipelineWork work, int part, int micro_batch) const {
    Candidate candidate{{work, part, micro_batch}};
    if (micro_batch == shape_.micro_batches) return candidate;
    const double ready = progress_.ReadyAt(stage, candidate.action);
    candidate.begin = std::max(ready, stages_[static_cast<size_t>(stage)].free);
    return candidate;
  }

  // Of two that can begin at the same time the first asked for: who waits for it has waited
  // longest.
  Candidate Next(int stage) const {
    const Stage& own = stages_[static_cast<size_t>(stage)];
    Candidate best;
    const auto consider = [&](const Candidate& candidate) {
      if (candidate.begin < best.begin) best = candidate;
    };
    for (const int part : {0, 1}) {
      consider(At(stage, PipelineWork::kBackwardInput, part, own.input[static_cast<size_t>(part)]));
    }
    if (own.in_flight < MostInFlight()) {
      consider(At(stage, PipelineWork::kForward, 1, own.forward[1]));
    }
    // The last place is kept for the way back, without which nothing becomes free.
    if (own.in_flight + 1 < MostInFlight()) {
      consider(At(stage, PipelineWork::kForward, 0, own.forward[0]));
    }
    const std::optional<Candidate> weight = NextWeight(stage);
    const double cost = progress_.CostOf(PipelineWork::kBackwardWeight);
    if (weight && best.begin - own.free >= gap_share_ * cost) return *weight;
    return best;
  }

  // The oldest that is ready at once.
  std::optional<Candidate> NextWeight(int stage) const {
    const Stage& own = stages_[static_cast<size_t>(stage)];
    for (const int part : {1, 0}) {
      const auto index = static_cast<size_t>(part);
      if (own.weight[index] == own.input[index]) continue;
      return At(stage, PipelineWork::kBackwardWeight, part, own.weight[index]);
    }
    return std::nullopt;
  }

  void Take(int stage, const Candidate& candidate) {
    const PipelineAction& action = candidate.action;
    Stage& own = stages_[static_cast<size_t>(stage)];
    const auto part = static_cast<size_t>(action.part);
    own.free = candidate.begin + progress_.CostOf(action.work);
    progress_.Finish(stage, action, own.free);
    schedule_[static_cast<size_t>(stage)].push_back(action);
    switch (action.work) {
      case PipelineWork::kForward:
        ++own.forward[part];
        ++own.in_flight;
        break;
      case PipelineWork::kBackwardInput:
        ++own.input[part];
        break;
      case PipelineWork::kBackward:
      case PipelineWork::kBackwardWeight:
        ++own.weight[part];
        --own.in_flight;
        break;
    }
  }

  const PipelineShape shape_;
  const double gap_share_;
  PipelineProgress progress_;
  std::vector<Stage> stages_;
  PipelineSchedule schedule_;
};

}  // namespace

absl::StatusOr<PipelineSchedule> ZeroBubbleSchedule(const PipelineShape& shape,
                                                    const PipelineCosts& costs) {
  PipelineSchedule shortest;
  double end = PipelineProgress::kNever;
  for (const double share : kGapShares) {
    Greedy greedy(shape, costs, share);
    auto schedule = greedy.Run();
    if (!schedule.ok()) return schedule.status();
    if (greedy.end() < end) {
      end = greedy.end();
      shortest = *std::move(schedule);
    }
  }
  return shortest;
}

}  // namespace geminid::collectives
