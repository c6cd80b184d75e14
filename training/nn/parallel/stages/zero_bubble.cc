#include "training/nn/parallel/stages/zero_bubble.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "training/nn/parallel/stages/progress.h"
#include "training/nn/parallel/stages/timeline.h"

namespace geminid::collectives {
namespace {

// What a greedy schedule goes by. Which is best depends on the costs, above all on how long it
// takes between stages, so all are tried.
struct Habits {
  // A weights' gradient starts in a gap that is at least this share of its time. Smaller shares
  // keep memory low, larger ones keep others from waiting.
  double gap_share = 0;
  // Part 1's works go before others that could begin sooner, if by no more than so many forwards:
  // they are on the way back, which frees memory.
  double forward_patience = 0;
  double gradient_patience = 0;
  // Places that part 0 leaves to part 1, without which nothing becomes free. At least 1.
  int kept_places = 1;
  // With one place left or none a weights' gradient, which frees one, comes first.
  bool frees_early = false;
  // Made as if messages took next to no time. Such an order is denser, which can be worth more than
  // what it then waits.
  bool ignores_links = false;
};

std::vector<Habits> AllHabits(const PipelineShape& shape) {
  std::vector<Habits> all;
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
  Greedy(const PipelineShape& shape, const PipelineCosts& costs, const Habits& habits)
      : shape_(shape),
        habits_(habits),
        progress_(shape, MadeFor(costs, habits)),
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
    // The next micro-batch, by part.
    std::array<int, 2> forward = {}, input = {}, weight = {};
  };

  // An order for messages that take no time at all would have none to spare for the way from thread
  // to thread.
  static PipelineCosts MadeFor(PipelineCosts costs, const Habits& habits) {
    const double least = 0.01 * costs.forward;
    costs.transfer = habits.ignores_links ? least : std::max(least, costs.transfer);
    return costs;
  }

  // As much as 1F1B holds in its first stage: S whole stages, each of two parts.
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
    if (habits_.frees_early && own.in_flight + 1 >= MostInFlight()) return *weight;
    const double cost = progress_.CostOf(PipelineWork::kBackwardWeight);
    return best.begin - own.free >= habits_.gap_share * cost ? *weight : best;
  }

  // Of what others wait for. Of two that can begin at the same time the first asked for: who waits
  // for it has waited longest.
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
    consider(PipelineWork::kBackwardInput, 1, own.input[1], habits_.gradient_patience);
    if (own.in_flight < MostInFlight()) {
      consider(PipelineWork::kForward, 1, own.forward[1], habits_.forward_patience);
    }
    if (own.in_flight + habits_.kept_places < MostInFlight()) {
      consider(PipelineWork::kForward, 0, own.forward[0], 0);
    }
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
  const Habits habits_;
  PipelineProgress progress_;
  std::vector<Stage> stages_;
  PipelineSchedule schedule_;
};

}  // namespace

absl::StatusOr<PipelineSchedule> ZeroBubbleSchedule(const PipelineShape& shape,
                                                    const PipelineCosts& costs) {
  PipelineSchedule shortest;
  double end = PipelineProgress::kNever;
  for (const Habits& habits : AllHabits(shape)) {
    auto schedule = Greedy(shape, costs, habits).Run();
    if (!schedule.ok()) return schedule.status();
    const auto timeline = RunSchedule(shape, *schedule, costs);
    if (!timeline.ok()) return timeline.status();
    if (timeline->end < end) {
      end = timeline->end;
      shortest = *std::move(schedule);
    }
  }
  return shortest;
}

}  // namespace geminid::collectives
