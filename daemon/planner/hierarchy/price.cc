#include "daemon/planner/hierarchy/price.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace geminid::planner {
namespace {

// After this many iterations without a better bound, the step length is halved.
constexpr int kPatience = 8;
constexpr double kFirstStep = 1.5;
constexpr double kLeastStep = 1e-3;
// The least distance to the target, as a fraction of the target: the bound may have reached it.
constexpr double kLeastMissing = 1e-3;

struct Demand {
  PricedSeconds seconds = {};
  std::vector<double> excess;  // per segment, bytes above the room
  double host_excess = 0;
};

void AddSeconds(const PricedSeconds& more, PricedSeconds& seconds) {
  for (std::size_t r = 0; r < kNumPriced; ++r) seconds[r] += more[r];
}

// Sums the bytes of spans at the moments of the segments. Stores differences between neighbours.
class SegmentBytes {
 public:
  explicit SegmentBytes(const PriceModel& model)
      : next_(model.free_bytes.size() + 1), differences_(model.segments.size() + 1, 0) {
    std::size_t s = model.segments.size();
    for (std::size_t t = next_.size(); t-- > 0;) {
      while (s > 0 && model.segments[s - 1] >= static_cast<std::int64_t>(t)) --s;
      next_[t] = s;  // the first segment whose moment is t or later
    }
  }
  void Add(const PricedSpan& span) {
    if (span.last < span.first) return;
    differences_[next_[static_cast<std::size_t>(span.first)]] += span.bytes;
    differences_[next_[static_cast<std::size_t>(span.last) + 1]] -= span.bytes;
  }
  std::vector<double> TakeSums() {
    std::vector<double> sums(differences_.size() - 1);
    double sum = 0;
    for (std::size_t s = 0; s < sums.size(); ++s) sums[s] = sum += differences_[s];
    std::fill(differences_.begin(), differences_.end(), 0.0);
    return sums;
  }

 private:
  std::vector<std::size_t> next_;
  std::vector<double> differences_;
};

class Dual {
 public:
  explicit Dual(const PriceModel& model) : model_(model), bytes_(model) {}

  // Returns D at the prices. Sets the minimising selection and its demand, which is the
  // subgradient.
  double Evaluate(const ResourcePrices& prices, Selection& selection, Demand& demand) {
    const SpanPrice span_price(model_, prices);
    demand.seconds = model_.base;
    demand.host_excess = -model_.host_room;
    selection.option.assign(model_.items.size(), 0);
    selection.kept.assign(model_.gaps.size(), 0);
    double total = Weighted(prices.resource, model_.base);
    for (std::size_t i = 0; i < model_.items.size(); ++i) {
      total += ChooseItem(prices, span_price, i, selection, demand);
    }
    demand.excess = bytes_.TakeSums();
    for (std::size_t s = 0; s < demand.excess.size(); ++s) {
      const double free_bytes = model_.free_bytes[static_cast<std::size_t>(model_.segments[s])];
      demand.excess[s] -= free_bytes;
      total -= prices.segment[s] * free_bytes;
    }
    total -= prices.host * model_.host_room;
    for (const Spill& spill : model_.spills) {
      const double cost = Weighted(prices.resource, spill.seconds_per_byte) - prices.host;
      if (cost >= 0) continue;
      total += cost * spill.limit_bytes;
      demand.host_excess -= spill.limit_bytes;
      for (std::size_t r = 0; r < kNumPriced; ++r) {
        demand.seconds[r] += spill.limit_bytes * spill.seconds_per_byte[r];
      }
    }
    return total;
  }

 private:
  double ChooseItem(const ResourcePrices& prices, const SpanPrice& span_price, std::size_t i,
                    Selection& selection, Demand& demand) {
    const PricedItem& item = model_.items[i];
    double gaps = 0;
    for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) {
      const double keep = span_price.Of(model_.gaps[g].span);
      const double drop = Weighted(prices.resource, model_.gaps[g].drop);
      selection.kept[g] = keep < drop;
      gaps += std::min(keep, drop);
    }
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t o = 0; o < item.options.size(); ++o) {
      const Option& option = item.options[o];
      double cost = Weighted(prices.resource, option.seconds) + prices.host * option.host_bytes;
      for (const PricedSpan& span : option.spans) cost += span_price.Of(span);
      if (!IsDevice(item, option)) cost += gaps;
      if (cost >= best) continue;
      best = cost;
      selection.option[i] = static_cast<std::uint8_t>(o);
    }
    const Option& chosen = item.options[selection.option[i]];
    AddSeconds(chosen.seconds, demand.seconds);
    demand.host_excess += chosen.host_bytes;
    for (const PricedSpan& span : chosen.spans) bytes_.Add(span);
    for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) {
      if (IsDevice(item, chosen)) {
        selection.kept[g] = 0;
      } else if (selection.kept[g]) {
        bytes_.Add(model_.gaps[g].span);
      } else {
        AddSeconds(model_.gaps[g].drop, demand.seconds);
      }
    }
    return best;
  }

  static bool IsDevice(const PricedItem& item, const Option& option) {
    return item.is_chunk && option.place == static_cast<std::uint8_t>(OptimizerPlace::kDevice);
  }

  const PriceModel& model_;
  SegmentBytes bytes_;
};

// The nearest point that has no negative entry and sums to 1 (Held, Wolfe, Crowder 1974).
void ProjectOnSimplex(PricedSeconds& weights) {
  PricedSeconds sorted = weights;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0;
  double shift = 0;
  for (std::size_t k = 0; k < kNumPriced; ++k) {
    sum += sorted[k];
    const double candidate = (sum - 1) / static_cast<double>(k + 1);
    if (sorted[k] > candidate) shift = candidate;
  }
  for (double& weight : weights) weight = std::max(0.0, weight - shift);
}

// How far to go along a block of the subgradient of squared length `norm`. Polyak's rule gives each
// of the three blocks a third of the missing seconds. Their scales differ too much to share a step:
// a chunk has the same bytes at all segments at once.
double StepLength(double missing, double norm) { return norm > 0 ? missing / (3 * norm) : 0; }

double Square(double value) { return value * value; }

// Moves the prices along the subgradient, in seconds and in bytes.
void Follow(const Demand& demand, double missing, ResourcePrices& prices) {
  // The projection undoes a constant that is added to all resources, so the mean is subtracted.
  const double mean = Weighted(prices.resource, demand.seconds);
  double norm = 0;
  for (const double seconds : demand.seconds) norm += Square(seconds - mean);
  double step = StepLength(missing, norm);
  for (std::size_t r = 0; r < kNumPriced; ++r) {
    prices.resource[r] += step * (demand.seconds[r] - mean);
  }
  ProjectOnSimplex(prices.resource);
  norm = 0;
  for (const double excess : demand.excess) norm += Square(excess);
  step = StepLength(missing, norm);
  for (std::size_t s = 0; s < prices.segment.size(); ++s) {
    prices.segment[s] = std::max(0.0, prices.segment[s] + step * demand.excess[s]);
  }
  step = StepLength(missing, Square(demand.host_excess));
  prices.host = std::max(0.0, prices.host + step * demand.host_excess);
}

}  // namespace

SpanPrice::SpanPrice(const PriceModel& model, const ResourcePrices& prices)
    : before_(model.free_bytes.size() + 1, 0) {
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    before_[static_cast<std::size_t>(model.segments[s]) + 1] += prices.segment[s];
  }
  for (std::size_t t = 1; t < before_.size(); ++t) before_[t] += before_[t - 1];
}

double Weighted(const PricedSeconds& weights, const PricedSeconds& seconds) {
  double sum = 0;
  for (std::size_t r = 0; r < kNumPriced; ++r) sum += weights[r] * seconds[r];
  return sum;
}

DualResult MaximizeDual(const PriceModel& model, const PricedSeconds& first_weights,
                        double step_seconds, int iterations) {
  Dual dual(model);
  DualResult result;
  ResourcePrices prices;
  prices.segment.assign(model.segments.size(), 0);
  prices.resource = first_weights;
  result.bound = -std::numeric_limits<double>::infinity();
  Demand demand;
  Selection selection;
  double relax = kFirstStep;
  int since_better = 0;
  for (int k = 0; k < iterations && relax > kLeastStep; ++k) {
    const double bound = dual.Evaluate(prices, selection, demand);
    if (bound > result.bound) {
      result = {bound, prices, selection};
      since_better = 0;
    } else if (++since_better >= kPatience) {
      relax /= 2;
      since_better = 0;
      prices = result.prices;
      dual.Evaluate(prices, selection, demand);
    }
    const double missing = std::max(step_seconds - result.bound, kLeastMissing * step_seconds);
    Follow(demand, relax * missing, prices);
  }
  result.bound = std::max(result.bound, 0.0);
  return result;
}

}  // namespace geminid::planner
