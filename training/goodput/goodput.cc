#include "training/goodput/goodput.h"

#include <algorithm>
#include <cmath>

namespace geminid::trainer {
namespace {

constexpr uint64_t kMostRows = 4096;  // totals that are tried one by one

uint64_t DivideUp(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

}  // namespace

double Efficiency(double noise_scale, double base, double batch) {
  return (noise_scale + base) / (noise_scale + batch);
}

BatchRow RowOf(const StepModel& model, double noise_scale, const BatchShape& now,
               const BatchShape& shape) {
  const auto total = static_cast<double>(shape.total());
  BatchRow row = {.shape = shape,
                  .step_seconds = model.StepSeconds(static_cast<double>(shape.sequences),
                                                    static_cast<double>(shape.micro_batches))};
  row.efficiency = Efficiency(noise_scale, static_cast<double>(now.total()), total);
  row.goodput = total / row.step_seconds * row.efficiency;
  return row;
}

BatchShape ShapeOf(uint64_t total, const BatchLimits& limits) {
  const uint64_t most = std::max(limits.most_sequences / limits.multiple, uint64_t{1});
  const uint64_t groups = std::max(DivideUp(total, limits.multiple), uint64_t{1});
  const uint64_t micro_batches = DivideUp(groups, most);
  return {DivideUp(groups, micro_batches) * limits.multiple, micro_batches};
}

BatchRow BestBatch(const StepModel& model, double noise_scale, const BatchShape& now,
                   const BatchLimits& limits) {
  BatchRow best = RowOf(model, noise_scale, now, ShapeOf(limits.multiple, limits));
  // Beyond kMostRows one total is as good as the next.
  const uint64_t totals = std::max(limits.most_total / limits.multiple, uint64_t{1});
  const uint64_t stride = DivideUp(totals, kMostRows);
  for (uint64_t i = stride; i <= totals; i += stride) {
    const BatchShape shape = ShapeOf(i * limits.multiple, limits);
    if (shape.total() > std::max(limits.most_total, limits.multiple)) continue;
    const BatchRow row = RowOf(model, noise_scale, now, shape);
    if (row.goodput > best.goodput) best = row;
  }
  return best;
}

std::vector<BatchRow> BatchTable(const StepModel& model, double noise_scale, const BatchShape& now,
                                 const BatchLimits& limits) {
  std::vector<BatchRow> rows;
  for (uint64_t quarters = 1; quarters <= 64; quarters *= 2) {
    const bool is_now = quarters == 4;
    const BatchShape shape = is_now ? now : ShapeOf(now.total() * quarters / 4, limits);
    if (!is_now && shape.total() > limits.most_total) continue;
    if (!rows.empty() && shape.total() <= rows.back().shape.total()) continue;
    rows.push_back(RowOf(model, noise_scale, now, shape));
  }
  return rows;
}

const char* Name(RateRule rule) {
  switch (rule) {
    case RateRule::kAdaScale:
      return "adascale";
    case RateRule::kSquareRoot:
      return "square root";
  }
  return "?";
}

double RateFactor(RateRule rule, double noise_scale, double base, double batch) {
  if (rule == RateRule::kSquareRoot) return std::sqrt(batch / base);
  // (tr/base + |G|^2) / (tr/batch + |G|^2), divided by |G|^2.
  return (noise_scale / base + 1) / (noise_scale / batch + 1);
}

}  // namespace geminid::trainer
