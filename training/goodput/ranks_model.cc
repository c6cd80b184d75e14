#include "training/goodput/ranks_model.h"

#include <algorithm>
#include <cmath>

#include "training/goodput/line.h"

namespace geminid::trainer {

std::vector<RanksGoodput> GoodputByRanks(const std::map<int, double>& measured,
                                         std::span<const int> numbers) {
  std::map<double, double> points;
  for (const auto& [ranks, seconds] : measured) {
    if (ranks > 0 && std::isfinite(seconds) && seconds > 0) points[1.0 / ranks] = seconds;
  }
  if (points.empty()) return {};
  const Line line = FitLine(points);
  std::vector<RanksGoodput> rows;
  for (const int ranks : numbers) {
    const auto known = points.find(1.0 / ranks);
    const double seconds =
        known != points.end() ? known->second : line.at_zero + line.slope / ranks;
    rows.push_back({ranks, 1 / seconds});
  }
  return rows;
}

void SequenceTimer::Add(double sequences, double seconds) {
  if (!(sequences > 0) || !(seconds > 0)) return;
  ++steps_;
  if (steps_ == 1) return;
  if (times_.size() < kNewest) {
    times_.push_back(seconds / sequences);
  } else {
    times_[steps_ % kNewest] = seconds / sequences;
  }
}

std::optional<double> SequenceTimer::Median() const {
  if (times_.size() < kLeast) return std::nullopt;
  std::vector<double> times = times_;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::ranges::nth_element(times, middle);
  return *middle;
}

}  // namespace geminid::trainer
