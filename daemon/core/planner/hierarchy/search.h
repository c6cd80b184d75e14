#ifndef GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_SEARCH_H_
#define GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_SEARCH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/core/planner/hierarchy/evaluate.h"

// Tries decisions and remembers the best.

namespace geminid::planner {

class Search {
 public:
  explicit Search(const Prepared& prepared) : prepared_(prepared) {}

  // Evaluates the decisions unless they were tried before. Returns whether they are the best so
  // far.
  absl::StatusOr<bool> Try(const Decisions& decisions);

  // Changes one decision at a time, then two, while that helps and the budget lasts.
  absl::Status Improve();

  // Work left, in the steps of Prepared::work.
  std::int64_t budget() const { return budget_; }
  bool found() const { return best_.has_value(); }
  const HierarchyPlan& best() const { return *best_; }

 private:
  absl::StatusOr<bool> TryChanges();
  absl::StatusOr<bool> TryPairs();
  bool Affordable() const { return budget_ >= WorkOfOne(); }
  std::int64_t WorkOfOne() const;

  const Prepared& prepared_;
  std::int64_t budget_ = kBudget;
  std::vector<std::uint64_t> tried_;  // hashes, sorted
  std::optional<HierarchyPlan> best_;

  // About half a second of planning: a step of work takes about a microsecond.
  static constexpr std::int64_t kBudget = 400'000;
};

// Whether plan `a` is to be preferred: it fits, or lacks less; then the shorter step, where one
// that leaves everything on the device gives way only to a gain of kWorthwhileGain; then fewer
// bytes.
bool IsBetter(const HierarchyPlan& a, const HierarchyPlan& b);

// Hooks, threads and transfers have costs that no model shows; below this gain they are not worth
// having.
inline constexpr double kWorthwhileGain = 0.01;

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_CORE_PLANNER_HIERARCHY_SEARCH_H_
