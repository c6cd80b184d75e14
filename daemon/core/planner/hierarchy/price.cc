#include "daemon/core/planner/hierarchy/price.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace geminid::planner {
namespace {

constexpr int kIterations = 160;
// Without a better bound for so many iterations the step length is halved.
constexpr int kPatience = 8;
constexpr double kFirstStep = 1.5;
constexpr double kLeastStep = 1e-3;

struct Demand {
  ResourceSeconds seconds = {};
  std::vector<double> excess;  // per segment, bytes above the room
  double host_excess = 0;
};

void AddSeconds(const ResourceSeconds& more, ResourceSeconds& seconds) {
  for (std::size_t r = 0; r < kNumResources; ++r) seconds[r] += more[r];
}

// Bytes of spans summed at the segments' moments: differences between neighbours first.
class SegmentBytes {
 public:
  explicit SegmentBytes(const PriceModel& model)
      : next_(model.room.size() + 1), differences_(model.segments.size() + 1, 0) {
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

  // D at the prices; the minimising selection, and what it demands: the subgradient.
  double Evaluate(const Prices& prices, Selection& selection, Demand& demand) {
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
      const double room = model_.room[static_cast<std::size_t>(model_.segments[s])];
      demand.excess[s] -= room;
      total -= prices.segment[s] * room;
    }
    total -= prices.host * model_.host_room;
    for (const Spill& spill : model_.spills) {
      const double cost = Weighted(prices.resource, spill.seconds_per_byte) - prices.host;
      if (cost >= 0) continue;
      total += cost * spill.limit_bytes;
      demand.host_excess -= spill.limit_bytes;
      for (std::size_t r = 0; r < kNumResources; ++r) {
        demand.seconds[r] += spill.limit_bytes * spill.seconds_per_byte[r];
      }
    }
    return total;
  }

 private:
  double ChooseItem(const Prices& prices, const SpanPrice& span_price, std::size_t i,
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

// The nearest point with no negative entry and sum 1 (Held, Wolfe, Crowder 1974).
void ProjectOnSimplex(ResourceSeconds& weights) {
  ResourceSeconds sorted = weights;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0;
  double shift = 0;
  for (std::size_t k = 0; k < kNumResources; ++k) {
    sum += sorted[k];
    const double candidate = (sum - 1) / static_cast<double>(k + 1);
    if (sorted[k] > candidate) shift = candidate;
  }
  for (double& weight : weights) weight = std::max(0.0, weight - shift);
}

// Seconds, device bytes and host bytes are made comparable: everything in units of the step, of the
// arena's largest room and of the host's.
struct Scale {
  double seconds;
  double device_bytes;
  double host_bytes;
};

void Follow(const Demand& demand, const Scale& scale, double bound, double target, double relax,
            Prices& prices) {
  double norm = 0;
  for (const double seconds : demand.seconds)
    norm += seconds / scale.seconds * seconds / scale.seconds;
  for (const double excess : demand.excess) {
    norm += excess / scale.device_bytes * excess / scale.device_bytes;
  }
  norm += demand.host_excess / scale.host_bytes * demand.host_excess / scale.host_bytes;
  if (norm <= 0) return;
  const double step = relax * std::max(target - bound, 1e-3 * target) / scale.seconds / norm;
  for (std::size_t r = 0; r < kNumResources; ++r) {
    prices.resource[r] += step * demand.seconds[r] / scale.seconds;
  }
  ProjectOnSimplex(prices.resource);
  const double per_byte = step * scale.seconds / scale.device_bytes / scale.device_bytes;
  for (std::size_t s = 0; s < prices.segment.size(); ++s) {
    prices.segment[s] = std::max(0.0, prices.segment[s] + per_byte * demand.excess[s]);
  }
  const double per_host_byte = step * scale.seconds / scale.host_bytes / scale.host_bytes;
  prices.host = std::max(0.0, prices.host + per_host_byte * demand.host_excess);
}

}  // namespace

SpanPrice::SpanPrice(const PriceModel& model, const Prices& prices)
    : before_(model.room.size() + 1, 0) {
  for (std::size_t s = 0; s < model.segments.size(); ++s) {
    before_[static_cast<std::size_t>(model.segments[s]) + 1] += prices.segment[s];
  }
  for (std::size_t t = 1; t < before_.size(); ++t) before_[t] += before_[t - 1];
}

double Weighted(const ResourceSeconds& weights, const ResourceSeconds& seconds) {
  double sum = 0;
  for (std::size_t r = 0; r < kNumResources; ++r) sum += weights[r] * seconds[r];
  return sum;
}

DualResult MaximizeDual(const PriceModel& model, double step_seconds) {
  Dual dual(model);
  DualResult result;
  Prices prices;
  prices.segment.assign(model.segments.size(), 0);
  // Start on the computation alone: it bounds every step.
  prices.resource[static_cast<std::size_t>(Resource::kCompute)] = 1;
  Scale scale = {step_seconds > 0 ? step_seconds : 1, 1, std::max(1.0, model.host_room)};
  for (const double room : model.room) scale.device_bytes = std::max(scale.device_bytes, room);
  result.bound = -std::numeric_limits<double>::infinity();
  Demand demand;
  Selection selection;
  double relax = kFirstStep;
  int since_better = 0;
  for (int k = 0; k < kIterations && relax > kLeastStep; ++k) {
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
    Follow(demand, scale, result.bound, step_seconds, relax, prices);
  }
  result.bound = std::max(result.bound, 0.0);
  return result;
}

}  // namespace geminid::planner
