#include "daemon/planner/bound/byte_bound.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/numeric/int128.h"
#include "daemon/planner/retention/farthest_first.h"
#include "daemon/planner/retention/retention.h"

namespace geminid::planner {
namespace {

constexpr std::size_t kMaxIterations = 8;
constexpr std::size_t kMaxLevels = 8;
// Covers the rounding of a few hundred additions and products in a bound with several levels.
constexpr double kRoundingMargin = 1e-9;

// Transfer bytes per byte of extent, as a fraction, compared exactly.
struct Ratio {
  std::uint64_t transfer_bytes;
  std::uint64_t extent_bytes;

  double value() const {
    return static_cast<double>(transfer_bytes) / static_cast<double>(extent_bytes);
  }
  friend bool operator<(const Ratio& a, const Ratio& b) {
    return absl::uint128(a.transfer_bytes) * b.extent_bytes <
           absl::uint128(b.transfer_bytes) * a.extent_bytes;
  }
};

Ratio RatioOf(const Item& item) {
  return {item.transfer_bytes, static_cast<std::uint64_t>(item.extent_bytes)};
}

// Distinct ratios above zero, ascending, thinned to kMaxLevels. The smallest always stays.
std::vector<Ratio> Levels(const Problem& problem) {
  std::vector<Ratio> all;
  for (const Item& item : problem.items) {
    if (item.transfer_bytes > 0) all.push_back(RatioOf(item));
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Ratio& a, const Ratio& b) { return !(a < b) && !(b < a); }),
            all.end());
  if (all.size() <= kMaxLevels) return all;
  std::vector<Ratio> levels;
  for (std::size_t k = 0; k < kMaxLevels; ++k) levels.push_back(all[k * all.size() / kMaxLevels]);
  return levels;
}

// Bytes lost over some iterations.
struct Loss {
  std::uint64_t bytes = 0;
  std::uint64_t iterations = 1;
};

Loss LeastLoss(const Problem& problem, const std::vector<std::int64_t>& free_bytes,
               const std::vector<std::uint8_t>& takes_part) {
  FarthestFirst eviction(problem, free_bytes, takes_part, FarthestFirst::EvictionUnit::kBytes);
  std::vector<std::vector<std::int64_t>> states = {eviction.held_bytes()};
  std::vector<std::uint64_t> lost;
  const std::size_t max_iterations = problem.cyclic ? kMaxIterations : 1;
  std::size_t repeat_from = 0;
  while (lost.size() < max_iterations) {
    eviction.RunIteration();
    lost.push_back(static_cast<std::uint64_t>(eviction.lost_bytes()));
    const auto same = std::find(states.begin(), states.end(), eviction.held_bytes());
    if (same != states.end()) {
      repeat_from = static_cast<std::size_t>(same - states.begin());
      break;
    }
    states.push_back(eviction.held_bytes());
  }
  Loss loss;
  for (std::size_t i = repeat_from; i < lost.size(); ++i) loss.bytes += lost[i];
  loss.iterations = lost.size() - repeat_from;
  return loss;
}

std::uint64_t ForcedBytes(const Problem& problem) {
  std::uint64_t bytes = 0;
  for (const Gap& gap : problem.gaps) {
    if (!gap.valued) bytes += problem.items[gap.item].transfer_bytes;
  }
  return bytes;
}

// ceil(loss * ratio / iterations): the true cost is a whole number of bytes.
std::uint64_t ExactCost(const Loss& loss, const Ratio& ratio) {
  const absl::uint128 divisor = absl::uint128(ratio.extent_bytes) * loss.iterations;
  const absl::uint128 product = absl::uint128(loss.bytes) * ratio.transfer_bytes;
  return absl::Uint128Low64((product + divisor - 1) / divisor);
}

}  // namespace

std::uint64_t LowerBoundBytes(const Problem& problem) {
  const std::uint64_t forced_bytes = ForcedBytes(problem);
  const std::vector<Ratio> levels = Levels(problem);
  const std::vector<std::int64_t> free_bytes = FreeBytesForGaps(problem);
  double cost = 0;
  double below = 0;
  for (const Ratio& level : levels) {
    std::vector<std::uint8_t> takes_part = RetainAll(problem);
    for (std::size_t g = 0; g < takes_part.size(); ++g) {
      if (RatioOf(problem.items[problem.gaps[g].item]) < level) takes_part[g] = 0;
    }
    const Loss loss = LeastLoss(problem, free_bytes, takes_part);
    if (levels.size() == 1) return forced_bytes + ExactCost(loss, level);
    cost += (level.value() - below) * static_cast<double>(loss.bytes) /
            static_cast<double>(loss.iterations);
    below = level.value();
  }
  return forced_bytes + static_cast<std::uint64_t>(cost * (1 - kRoundingMargin));
}

}  // namespace geminid::planner
