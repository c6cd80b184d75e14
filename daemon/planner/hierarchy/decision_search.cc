#include "daemon/planner/hierarchy/decision_search.h"

#include <cstddef>
#include <numeric>
#include <utility>

#include "base/hash.h"

namespace geminid::planner {
namespace {

// The work of an evaluation besides its loops, in the same steps.
constexpr std::int64_t kFixedWork = 10;

constexpr OptimizerPlace kOptimizerPlaces[] = {OptimizerPlace::kHost, OptimizerPlace::kDevice,
                                               OptimizerPlace::kStreamed};
constexpr ActivationPlace kActivationPlaces[] = {ActivationPlace::kKeep, ActivationPlace::kOffload,
                                                 ActivationPlace::kRecompute};
constexpr std::size_t kPlaces = 3;

// Planning the disk too costs this many evaluations without a disk: it has twice the items, and
// little space to place them in.
constexpr std::int64_t kDiskWork = 10;

// One step of work copies, hashes and checks the decisions of this many items.
constexpr std::int64_t kItemsPerStep = 8;

// A step within this fraction of the bound is not worth more search.
constexpr double kNearBound = 1e-3;
constexpr int kRestarts = 64;
// A restart changes at least kLeastChanges decisions, and fewer than kMoreChanges more.
constexpr std::size_t kLeastChanges = 2;
constexpr std::size_t kMoreChanges = 6;

std::uint64_t HashOf(const Decisions& decisions) {
  base::Fnv1a hash;
  for (const OptimizerPlace place : decisions.optimizer) {
    hash.Add(static_cast<std::uint64_t>(place));
  }
  for (const ActivationPlace place : decisions.activations) {
    hash.Add(static_cast<std::uint64_t>(place));
  }
  return hash.value();
}

// The same numbers on every machine: xorshift (Marsaglia 2003).
class Random {
 public:
  std::size_t Below(std::size_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 11) % limit;
  }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15u;
};

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

Score ScoreOf(const HierarchyPlan& plan) {
  return {
      .fits = plan.fits,
      .everything_on_device = plan.everything_on_device,
      .step_seconds = plan.seconds.step,
      .link_bytes = plan.traffic.up() + plan.traffic.down(),
      .lacking_bytes = std::accumulate(plan.lacking.begin(), plan.lacking.end(), std::uint64_t{0})};
}

bool IsBetter(const Score& a, const Score& b) {
  if (a.fits != b.fits) return a.fits;
  if (!a.fits) return a.lacking_bytes < b.lacking_bytes;
  if (a.everything_on_device != b.everything_on_device) {
    return a.everything_on_device ? a.step_seconds * (1 - kGainWorthHooks) <= b.step_seconds
                                  : a.step_seconds < b.step_seconds * (1 - kGainWorthHooks);
  }
  if (a.step_seconds != b.step_seconds) return a.step_seconds < b.step_seconds;
  return a.link_bytes < b.link_bytes;
}

std::int64_t DecisionSearch::WorkOfOne() const { return prepared_.work + kFixedWork; }

absl::StatusOr<std::optional<Score>> DecisionSearch::Try(const Decisions& decisions) {
  // Copying, hashing and checking are work too.
  budget_ -= 1 + static_cast<std::int64_t>(num_items()) / kItemsPerStep;
  const auto [entry, is_new] = tried_.try_emplace(HashOf(decisions));
  if (!is_new) return entry->second;
  if (!CheckDecisions(prepared_, decisions).ok()) return std::optional<Score>();
  budget_ -= WorkOfOne();
  absl::StatusOr<HierarchyPlan> plan = Evaluate(prepared_, decisions);
  if (!plan.ok()) return plan.status();
  if (plan->disk.used) budget_ -= kDiskWork * WorkOfOne();
  const Score score = ScoreOf(*plan);
  entry->second = score;
  if (!best_ || IsBetter(score, ScoreOf(*best_))) best_ = *std::move(plan);
  return std::optional<Score>(score);
}

bool DecisionSearch::Done(double bound_seconds) const {
  return budget_ < WorkOfOne() || best_->seconds.step <= bound_seconds * (1 + kNearBound);
}

absl::StatusOr<bool> DecisionSearch::MoveIfBetter(Decisions decisions, Candidate& current) {
  if (budget_ < WorkOfOne()) return false;
  const absl::StatusOr<std::optional<Score>> score = Try(decisions);
  if (!score.ok()) return score.status();
  if (!score->has_value() || !IsBetter(**score, current.score)) return false;
  current = {std::move(decisions), **score};
  return true;
}

absl::StatusOr<bool> DecisionSearch::ChangeOne(Candidate& current) {
  bool moved = false;
  if (prepared_.without.Has(HierarchyPart::kChangeOne)) return false;
  for (std::size_t i = 0; i < num_items() && budget_ >= WorkOfOne(); ++i) {
    for (std::size_t k = 0; k < kPlaces; ++k) {
      if (Get(current.decisions, i) == k) continue;
      Decisions decisions = current.decisions;
      Set(decisions, i, k);
      absl::StatusOr<bool> better = MoveIfBetter(std::move(decisions), current);
      if (!better.ok()) return better;
      moved = moved || *better;
    }
  }
  return moved;
}

// Gives two items new options at once. The items may swap space, for example.
absl::StatusOr<bool> DecisionSearch::ChangeTwo(Candidate& current) {
  if (prepared_.without.Has(HierarchyPart::kChangeTwo)) return false;
  for (std::size_t i = 0; i < num_items(); ++i) {
    for (std::size_t j = i + 1; j < num_items() && budget_ >= WorkOfOne(); ++j) {
      for (std::size_t k = 0; k < kPlaces * kPlaces; ++k) {
        if (Get(current.decisions, i) == k / kPlaces || Get(current.decisions, j) == k % kPlaces) {
          continue;
        }
        Decisions decisions = current.decisions;
        Set(decisions, i, k / kPlaces);
        Set(decisions, j, k % kPlaces);
        absl::StatusOr<bool> better = MoveIfBetter(std::move(decisions), current);
        if (!better.ok() || *better) return better;
      }
    }
  }
  return false;
}

absl::Status DecisionSearch::Descend(Candidate current, double bound_seconds) {
  while (!Done(bound_seconds)) {
    absl::StatusOr<bool> moved = ChangeOne(current);
    if (moved.ok() && !*moved) moved = ChangeTwo(current);
    if (!moved.ok()) return moved.status();
    if (!*moved) break;
  }
  return absl::OkStatus();
}

absl::Status DecisionSearch::Improve(double bound_seconds) {
  if (!best_->fits) return absl::OkStatus();
  if (absl::Status status = Descend({best_->decisions, ScoreOf(*best_)}, bound_seconds);
      !status.ok()) {
    return status;
  }
  Random random;
  if (prepared_.without.Has(HierarchyPart::kRestarts)) return absl::OkStatus();
  for (int start = 0; start < kRestarts && !Done(bound_seconds); ++start) {
    Decisions decisions = best_->decisions;
    const std::size_t changes = kLeastChanges + random.Below(kMoreChanges);
    for (std::size_t change = 0; change < changes; ++change) {
      const std::size_t item = random.Below(num_items());
      Set(decisions, item, random.Below(kPlaces));
    }
    const absl::StatusOr<std::optional<Score>> score = Try(decisions);
    if (!score.ok()) return score.status();
    if (!score->has_value()) continue;
    if (absl::Status status = Descend({std::move(decisions), **score}, bound_seconds);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::planner
