#include "daemon/core/planner/hierarchy/search.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "daemon/core/planner/hash.h"

namespace geminid::planner {
namespace {

// What an evaluation costs besides its loops, in the same steps.
constexpr std::int64_t kFixedWork = 60;

constexpr OptimizerPlace kOptimizerPlaces[] = {OptimizerPlace::kHost, OptimizerPlace::kDevice,
                                               OptimizerPlace::kStreamed};
constexpr ActivationPlace kActivationPlaces[] = {ActivationPlace::kKeep, ActivationPlace::kOffload,
                                                 ActivationPlace::kRecompute};

std::uint64_t HashOf(const Decisions& decisions) {
  Fnv1a hash;
  for (const OptimizerPlace place : decisions.optimizer) {
    hash.Add(static_cast<std::uint64_t>(place));
  }
  for (const ActivationPlace place : decisions.activations) {
    hash.Add(static_cast<std::uint64_t>(place));
  }
  return hash.value();
}

std::uint64_t Lacking(const HierarchyPlan& plan) {
  return std::accumulate(plan.lacking.begin(), plan.lacking.end(), std::uint64_t{0});
}

// One decision of `decisions` set to its option k of 0 to 2.
void Set(Decisions& decisions, std::size_t item, std::size_t k) {
  if (item < decisions.optimizer.size()) {
    decisions.optimizer[item] = kOptimizerPlaces[k];
  } else {
    decisions.activations[item - decisions.optimizer.size()] = kActivationPlaces[k];
  }
}

std::size_t Get(const Decisions& decisions, std::size_t item) {
  if (item < decisions.optimizer.size()) {
    return static_cast<std::size_t>(decisions.optimizer[item]);
  }
  return static_cast<std::size_t>(decisions.activations[item - decisions.optimizer.size()]);
}

}  // namespace

bool IsBetter(const HierarchyPlan& a, const HierarchyPlan& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return Lacking(a) < Lacking(b);
  const double a_step = a.seconds.step;
  const double b_step = b.seconds.step;
  if (a.everything_on_device != b.everything_on_device) {
    return a.everything_on_device ? a_step * (1 - kWorthwhileGain) <= b_step
                                  : a_step < b_step * (1 - kWorthwhileGain);
  }
  if (a_step != b_step) return a_step < b_step;
  return a.traffic.up() + a.traffic.down() < b.traffic.up() + b.traffic.down();
}

std::int64_t Search::WorkOfOne() const { return prepared_.work + kFixedWork; }

absl::StatusOr<bool> Search::Try(const Decisions& decisions) {
  const std::uint64_t hash = HashOf(decisions);
  const auto at = std::lower_bound(tried_.begin(), tried_.end(), hash);
  if (at != tried_.end() && *at == hash) return false;
  tried_.insert(at, hash);
  if (!CheckDecisions(prepared_, decisions).ok()) return false;
  budget_ -= WorkOfOne();
  absl::StatusOr<HierarchyPlan> plan = Evaluate(prepared_, decisions);
  if (!plan.ok()) return plan.status();
  if (best_ && !IsBetter(*plan, *best_)) return false;
  best_ = *std::move(plan);
  return true;
}

absl::StatusOr<bool> Search::TryChanges() {
  bool better = false;
  const std::size_t items =
      prepared_.problem.optimizer.size() + prepared_.problem.activations.size();
  for (std::size_t i = 0; i < items; ++i) {
    for (std::size_t k = 0; k < std::size(kOptimizerPlaces); ++k) {
      if (!Affordable()) return better;
      Decisions decisions = best_->decisions;
      Set(decisions, i, k);
      absl::StatusOr<bool> improved = Try(decisions);
      if (!improved.ok()) return improved.status();
      better = better || *improved;
    }
  }
  return better;
}

// Two items take new options at once: swaps of room among others.
absl::StatusOr<bool> Search::TryPairs() {
  const std::size_t items =
      prepared_.problem.optimizer.size() + prepared_.problem.activations.size();
  for (std::size_t i = 0; i < items; ++i) {
    for (std::size_t j = i + 1; j < items; ++j) {
      for (std::size_t k = 0; k < 9; ++k) {
        if (!Affordable()) return false;
        Decisions decisions = best_->decisions;
        if (Get(decisions, i) == k / 3 || Get(decisions, j) == k % 3) continue;
        Set(decisions, i, k / 3);
        Set(decisions, j, k % 3);
        absl::StatusOr<bool> improved = Try(decisions);
        if (!improved.ok() || *improved) return improved;
      }
    }
  }
  return false;
}

absl::Status Search::Improve() {
  while (best_->fits && Affordable()) {
    absl::StatusOr<bool> better = TryChanges();
    if (!better.ok()) return better.status();
    if (*better) continue;
    better = TryPairs();
    if (!better.ok()) return better.status();
    if (!*better) break;
  }
  return absl::OkStatus();
}

}  // namespace geminid::planner
