#include "training/goodput/step_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "training/goodput/line.h"

namespace geminid::trainer {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

std::optional<StepModel> FitStepModel(std::span<const StepTimes> times) {
  std::map<double, std::vector<double>> micro_batches;               // by sequences
  std::map<std::pair<double, double>, std::vector<double>> updates;  // by both sizes
  for (const StepTimes& step : times) {
    if (!(step.sequences > 0) || !(step.micro_batches > 0)) continue;
    if (!(step.micro_batch_seconds > 0) || !std::isfinite(step.step_seconds)) continue;
    micro_batches[step.sequences].push_back(step.micro_batch_seconds);
    const double rest = step.step_seconds - step.micro_batches * step.micro_batch_seconds;
    updates[{step.sequences, step.micro_batches}].push_back(std::max(rest, 0.0));
  }
  if (micro_batches.empty()) return std::nullopt;
  std::map<double, double> points;
  for (auto& [sequences, seconds] : micro_batches) points[sequences] = Median(std::move(seconds));
  const Line line = FitLine(points);
  double update_seconds = 0;
  for (auto& [sizes, seconds] : updates) update_seconds += Median(std::move(seconds));
  return StepModel{.fixed_seconds = line.at_zero,
                   .seconds_per_sequence = line.slope,
                   .update_seconds = update_seconds / static_cast<double>(updates.size()),
                   .fixed_known = points.size() > 1};
}

}  // namespace geminid::trainer
