#include "training/nn/parallel/stages/zero_bubble.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "training/nn/parallel/stages/progress.h"
#include "training/nn/parallel/stages/timeline.h"

namespace geminid::collectives {
namespace {

// The parameters of a greedy schedule. The best ones depend on the costs, above all on the transfer
// time between stages, so all combinations are tried.
struct GreedyParameters {
  // The gradients of weights start in a gap of at least this share of their time. Smaller shares
  // hold less memory; larger shares delay other stages less.
  double gap_share = 0;
  // Part 1's actions go before others that could begin earlier by at most so many forwards. Part 1
  // leads back to the first stage, which frees memory.
  double forward_patience = 0;
  double gradient_patience = 0;
  // The number of places that part 0 leaves for part 1, which frees places. At least 1.
  int kept_places = 1;
  // With at most one free place, the gradients of weights come first, because they free a place.
  bool frees_early = false;
  // Plans as if transfers took almost no time. Such a schedule is denser, which can save more than
  // the transfers then cost.
  bool ignores_links = false;
};

std::vector<GreedyParameters> AllHabits(const PipelineShape& shape) {
  std::vector<GreedyParameters> all;
  for (const double gap_share : {0.01, 0.34, 1.0}) {
    for (const double forward_patience : {0.0, 0.5, 1.0}) {
      for (const double gradient_patience : {0.0, 0.5, 1.0}) {
        for (const int kept_places : {1, std::min(3, 2 * shape.stages - 1)}) {
          for (const bool frees_early : {false, true}) {
            for (const bool ignores_links : {false, true}) {
              all.push_back({gap_share, forward_patience, gradient_patience, kept_places,
                             frees_early, ignores_links});
            }
          }
        }
      }
    }
  }
  return all;
}

struct Candidate {
  PipelineAction action;
  double begin = PipelineProgress::kNever;
};

class Greedy {
 public:
  Greedy(const PipelineShape& shape, const PipelineCosts& costs, const GreedyParameters& parameters)
      : shape_(shape),
        parameters_(parameters),
        progress_(shape, MadeFor(costs, parameters)),
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

 private:
  struct Stage {
    double free = 0;
    int in_flight = 0;
    // The next micro-batch of each part.
    std::array<int, 2> forward = {}, input = {}, weight = {};
  };

  // A transfer never takes zero time, because the threads of two stages need time to meet.
  static PipelineCosts MadeFor(PipelineCosts costs, const GreedyParameters& parameters) {
    const double least = 0.01 * costs.forward;
    costs.transfer = parameters.ignores_links ? least : std::max(least, costs.transfer);
    return costs;
  }

  // The activations that 1F1B holds in its first stage: S stages with two parts each.
  int MostInFlight() const { return 2 * shape_.stages; }

  Candidate At(int stage, PipelineWork work, int part, int micro_batch) const {
    Candidate candidate{{work, part, micro_batch}};
    if (micro_batch == shape_.micro_batches) return candidate;
    const double ready = progress_.ReadyAt(stage, candidate.action);
    candidate.begin = std::max(ready, stages_[static_cast<size_t>(stage)].free);
    return candidate;
  }

  Candidate Next(int stage) const {
    const Stage& own = stages_[static_cast<size_t>(stage)];
    const Candidate best = NextUrgent(stage);
    const std::optional<Candidate> weight = NextWeight(stage);
    if (!weight.has_value()) return best;
    if (parameters_.frees_early && own.in_flight + 1 >= MostInFlight()) return *weight;
    const double cost = progress_.CostOf(PipelineWork::kBackwardWeight);
    return best.begin - own.free >= parameters_.gap_share * cost ? *weight : best;
  }

  // The next action for which other stages wait. Of two that can begin at the same time, the one
  // that is considered first wins: others have waited longer for it.
  Candidate NextUrgent(int stage) const {
    const Stage& own = stages_[static_cast<size_t>(stage)];
    Candidate best;
    double soonest = PipelineProgress::kNever;
    const auto consider = [&](PipelineWork work, int part, int micro_batch, double patience) {
      const Candidate candidate = At(stage, work, part, micro_batch);
      const double begin = candidate.begin - patience * progress_.CostOf(PipelineWork::kForward);
      if (begin >= soonest) return;
      soonest = begin;
      best = candidate;
    };
    consider(PipelineWork::kBackwardInput, 0, own.input[0], 0);
    consider(PipelineWork::kBackwardInput, 1, own.input[1], parameters_.gradient_patience);
    if (own.in_flight < MostInFlight()) {
      consider(PipelineWork::kForward, 1, own.forward[1], parameters_.forward_patience);
    }
    if (own.in_flight + parameters_.kept_places < MostInFlight()) {
      consider(PipelineWork::kForward, 0, own.forward[0], 0);
    }
    return best;
  }

  // The oldest gradients of weights that can be computed now; those of part 1 first.
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
  const GreedyParameters parameters_;
  PipelineProgress progress_;
  std::vector<Stage> stages_;
  PipelineSchedule schedule_;
};

}  // namespace

absl::StatusOr<PipelineSchedule> ZeroBubbleSchedule(const PipelineShape& shape,
                                                    const PipelineCosts& costs) {
  PipelineSchedule shortest;
  double end = PipelineProgress::kNever;
  for (const GreedyParameters& parameters : AllHabits(shape)) {
    GEMINID_ASSIGN_OR_RETURN(auto schedule, Greedy(shape, costs, parameters).Run());
    GEMINID_ASSIGN_OR_RETURN(const auto timeline, RunSchedule(shape, schedule, costs));
    if (timeline.end < end) {
      end = timeline.end;
      shortest = std::move(schedule);
    }
  }
  return shortest;
}

}  // namespace geminid::collectives
