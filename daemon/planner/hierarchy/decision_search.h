#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_DECISION_SEARCH_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_DECISION_SEARCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/planner/hierarchy/evaluate.h"

// Tries decisions and stores the best plan.

namespace geminid::planner {

// The values that decide between two plans.
struct Score {
  bool fits = false;
  bool everything_on_device = false;
  double step_seconds = 0;
  std::uint64_t link_bytes = 0;
  std::uint64_t lacking_bytes = 0;
};
Score ScoreOf(const HierarchyPlan& plan);

// Whether `a` is better than `b`: it fits, or lacks less. Then the shorter step is better, and then
// fewer bytes. A plan that leaves everything on the device gives way only to a gain of
// kGainWorthHooks.
bool IsBetter(const Score& a, const Score& b);

// Hooks, threads and transfers have costs that no model shows. A smaller gain is not worth them.
inline constexpr double kGainWorthHooks = 0.01;

class DecisionSearch {
 public:
  explicit DecisionSearch(const PreparedProblem& prepared) : prepared_(prepared) {}

  // Evaluates the decisions unless they were tried before. None if they are not allowed.
  absl::StatusOr<std::optional<Score>> Try(const Decisions& decisions);

  // Changes one decision at a time, then two, while that improves the step. Starts from the best
  // decisions, then from the best with a few decisions changed. Ends when the step is nearly as
  // short as `bound_seconds`, which no decisions beat. Ends also after a fixed number of starts, or
  // when the budget is used up.
  absl::Status Improve(double bound_seconds);

  bool found() const { return best_.has_value(); }
  const HierarchyPlan& best() const { return *best_; }

 private:
  struct Candidate {
    Decisions decisions;
    Score score;
  };
  // One step of work takes about a microsecond: half a second of planning.
  static constexpr std::int64_t kBudget = 400'000;

  absl::Status Descend(Candidate current, double bound_seconds);
  // Moves `current` to a better neighbour; false if there is none.
  absl::StatusOr<bool> ChangeOne(Candidate& current);
  absl::StatusOr<bool> ChangeTwo(Candidate& current);
  absl::StatusOr<bool> MoveIfBetter(Decisions decisions, Candidate& current);
  bool Done(double bound_seconds) const;
  std::int64_t WorkOfOne() const;
  std::size_t num_items() const {
    return prepared_.problem.optimizer.size() + prepared_.problem.activations.size();
  }

  const PreparedProblem& prepared_;
  std::int64_t budget_ = kBudget;
  std::unordered_map<std::uint64_t, std::optional<Score>> tried_;  // looked up, never iterated
  std::optional<HierarchyPlan> best_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_DECISION_SEARCH_H_
