#include "daemon/planner/hierarchy/round.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>

#include "daemon/planner/hierarchy/update.h"
#include "daemon/planner/problem/free_bytes.h"

namespace geminid::planner {
namespace {

constexpr std::uint8_t kDevicePlace = static_cast<std::uint8_t>(OptimizerPlace::kDevice);
constexpr std::uint8_t kStreamedPlace = static_cast<std::uint8_t>(OptimizerPlace::kStreamed);

double ByteMoments(const Option& option) {
  double sum = 0;
  for (const PricedSpan& span : option.spans) {
    if (span.last >= span.first) {
      sum += span.bytes * static_cast<double>(span.last - span.first + 1);
    }
  }
  return sum;
}

std::vector<std::int64_t> WholeBytes(const std::vector<double>& free_bytes, std::uint64_t staging,
                                     const std::vector<std::uint64_t>& reserved) {
  std::vector<std::int64_t> whole;
  whole.reserve(free_bytes.size());
  for (std::size_t t = 0; t < free_bytes.size(); ++t) {
    const std::uint64_t taken = staging + (reserved.empty() ? 0 : reserved[t]);
    whole.push_back(static_cast<std::int64_t>(free_bytes[t]) - static_cast<std::int64_t>(taken));
  }
  return whole;
}

// Adds the decisions' excess over the arena to `reserved`, per moment. False if there is no excess.
bool ReserveExcess(const PreparedProblem& prepared, const Decisions& decisions,
                   std::vector<std::uint64_t>& reserved) {
  const Occupancy occupancy = ComputeOccupancy(prepared.problem, decisions);
  const Trace& trace = prepared.problem.trace;
  bool exceeds = false;
  reserved.resize(trace.moments.size(), 0);
  for (std::size_t t = 0; t < reserved.size(); ++t) {
    const std::uint64_t taken = prepared.required_bytes[t] + occupancy.device_activations[t] +
                                occupancy.device_constant() + trace.moments[t].workspace_bytes;
    if (taken <= trace.arena_bytes) continue;
    reserved[t] += taken - trace.arena_bytes;
    exceeds = true;
  }
  return exceeds;
}

std::uint64_t LargestState(const PreparedProblem& prepared) {
  std::uint64_t largest = 0;
  for (ChunkIndex c = 0; c < prepared.problem.optimizer.size(); ++c) {
    if (prepared.updated(c)) {
      largest = std::max(largest, prepared.problem.optimizer[c].state_bytes());
    }
  }
  return largest;
}

class Rounding {
 public:
  Rounding(const PreparedProblem& prepared, const PriceModel& model, const ResourcePrices& prices,
           const RoundOptions& options)
      : prepared_(prepared),
        model_(model),
        prices_(prices),
        options_(options),
        span_price_(model, prices),
        free_bytes_(WholeBytes(model.free_bytes,
                               options.allow_streamed ? kStreamBuffers * LargestState(prepared) : 0,
                               options.reserved)),
        seconds_(model.base),
        host_left_(model.host_room - static_cast<double>(LargestState(prepared)) +
                   model.spills[0].limit_bytes + model.spills[1].limit_bytes),
        chosen_(model.items.size()),
        kept_(model.gaps.size(), 0) {}

  RoundedDecisions Run() {
    StartSmall();
    for (const std::size_t i : ByDensity()) TakeBest(i);
    return {Result(), seconds_};
  }

 private:
  bool Allowed(const PricedItem& item, const Option& option) const {
    if (!item.is_chunk) return true;
    if (option.place == kStreamedPlace && !options_.allow_streamed) return false;
    return option.place != kDevicePlace ||
           state_bytes_ + option.state_bytes <= prepared_.device_state_limit;
  }

  bool IsDevice(std::size_t i) const {
    return model_.items[i].is_chunk && model_.items[i].options[chosen_[i]].place == kDevicePlace;
  }

  // Adds (sign 1) or removes (-1) the demand of the chosen option. Gaps are separate.
  void Apply(std::size_t i, int sign) {
    const Option& option = model_.items[i].options[chosen_[i]];
    for (const PricedSpan& span : option.spans) {
      free_bytes_.Add(span.first, span.last, -sign * static_cast<std::int64_t>(span.bytes));
    }
    for (std::size_t r = 0; r < kNumPriced; ++r) seconds_[r] += sign * option.seconds[r];
    host_left_ -= sign * option.host_bytes;
    state_bytes_ += static_cast<std::uint64_t>(sign) * option.state_bytes;
  }

  void DropGap(std::size_t g, int sign) {
    for (std::size_t r = 0; r < kNumPriced; ++r) {
      seconds_[r] += sign * model_.gaps[g].drop[r];
    }
  }

  void ApplyGaps(std::size_t i, int sign) {
    const PricedItem& item = model_.items[i];
    for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) {
      const PricedSpan& span = model_.gaps[g].span;
      if (kept_[g]) {
        free_bytes_.Add(span.first, span.last, -sign * static_cast<std::int64_t>(span.bytes));
      } else {
        DropGap(g, sign);
      }
    }
  }

  void StartSmall() {
    for (std::size_t i = 0; i < model_.items.size(); ++i) {
      const PricedItem& item = model_.items[i];
      std::size_t least = 0;
      for (std::size_t o = 1; o < item.options.size(); ++o) {
        const bool smaller = ByteMoments(item.options[o]) < ByteMoments(item.options[least]);
        if (smaller && Allowed(item, item.options[o])) least = o;
      }
      chosen_[i] = static_cast<std::uint8_t>(least);
      Apply(i, 1);
      if (!IsDevice(i)) ApplyGaps(i, 1);
    }
  }

  // The order of items by savings per byte and moment, at the prices of the resources; most first.
  std::vector<std::size_t> ByDensity() const {
    const PricedSeconds& weights = prices_.resource;
    std::vector<double> density(model_.items.size(), 0);
    for (std::size_t i = 0; i < density.size(); ++i) {
      const PricedItem& item = model_.items[i];
      const Option& least = item.options[chosen_[i]];
      double gaps = 0;
      for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) {
        gaps += Weighted(weights, model_.gaps[g].drop);
      }
      for (const Option& option : item.options) {
        double saved = Weighted(weights, least.seconds) - Weighted(weights, option.seconds) +
                       prices_.host * (least.host_bytes - option.host_bytes);
        if (item.is_chunk && option.place == kDevicePlace) saved += gaps;
        const double more = ByteMoments(option) - ByteMoments(least);
        if (more > 0) density[i] = std::max(density[i], saved / more);
      }
    }
    std::vector<std::size_t> order(density.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const bool a_pinned = Pinned(a);
      if (a_pinned != Pinned(b)) return a_pinned;
      return density[a] > density[b];
    });
    return order;
  }

  bool Pinned(std::size_t i) const {
    return model_.items[i].is_chunk && !options_.pinned.empty() &&
           options_.pinned[model_.items[i].index] != 0;
  }

  bool HasRoom(const Option& option) const {
    for (const PricedSpan& span : option.spans) {
      if (span.bytes > 0 &&
          !free_bytes_.Has(span.first, span.last, static_cast<std::int64_t>(span.bytes))) {
        return false;
      }
    }
    return true;
  }

  double Cost() const { return Weighted(prices_.resource, seconds_); }

  double OptionCost(std::size_t i) {
    const Option& option = model_.items[i].options[chosen_[i]];
    double cost = prices_.host * option.host_bytes;
    for (const PricedSpan& span : option.spans) cost += span_price_.Of(span);
    const PricedItem& item = model_.items[i];
    if (IsDevice(i)) {
      for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) DropGap(g, -1);
      cost += Cost();
      for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) DropGap(g, 1);
    } else {
      cost += Cost();
    }
    return cost;
  }

  void TakeBest(std::size_t i) {
    const PricedItem& item = model_.items[i];
    // Remove the item, with its gaps dropped.
    if (!IsDevice(i)) ApplyGaps(i, -1);
    Apply(i, -1);
    for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) {
      kept_[g] = 0;
      DropGap(g, 1);
    }
    const std::uint8_t before = chosen_[i];
    std::uint8_t best = before;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t o = 0; o < item.options.size(); ++o) {
      const Option& option = item.options[o];
      // The item may always have its present option: the start may exceed the space, but never gets
      // worse.
      if (o != before && (!Allowed(item, option) || !HasRoom(option))) continue;
      if (o != before && host_left_ < option.host_bytes &&
          option.host_bytes > item.options[before].host_bytes) {
        continue;
      }
      chosen_[i] = static_cast<std::uint8_t>(o);
      Shift(option, 1);
      double cost = OptionCost(i);
      Shift(option, -1);
      if (Pinned(i) && option.place == kDevicePlace) {
        cost = -std::numeric_limits<double>::infinity();
      }
      if (cost >= least) continue;
      least = cost;
      best = static_cast<std::uint8_t>(o);
    }
    chosen_[i] = best;
    Apply(i, 1);
    if (IsDevice(i)) {
      for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) DropGap(g, -1);
      return;
    }
    for (std::size_t g = item.first_gap; g < item.first_gap + item.num_gaps; ++g) {
      KeepIfWorth(g);
    }
  }

  void Shift(const Option& option, int sign) {
    for (std::size_t r = 0; r < kNumPriced; ++r) seconds_[r] += sign * option.seconds[r];
  }

  void KeepIfWorth(std::size_t g) {
    const PricedSpan& span = model_.gaps[g].span;
    const auto bytes = static_cast<std::int64_t>(span.bytes);
    if (!free_bytes_.Has(span.first, span.last, bytes)) return;
    const double dropped = Cost();
    DropGap(g, -1);
    if (Cost() + span_price_.Of(span) <= dropped) {
      kept_[g] = 1;
      free_bytes_.Add(span.first, span.last, -bytes);
    } else {
      DropGap(g, 1);
    }
  }

  Decisions Result() const {
    Decisions decisions = AllHost(prepared_.problem);
    for (std::size_t i = 0; i < model_.items.size(); ++i) {
      const PricedItem& item = model_.items[i];
      const std::uint8_t place = item.options[chosen_[i]].place;
      if (item.is_chunk) {
        decisions.optimizer[item.index] = static_cast<OptimizerPlace>(place);
      } else {
        decisions.activations[item.index] = static_cast<ActivationPlace>(place);
      }
    }
    return decisions;
  }

  const PreparedProblem& prepared_;
  const PriceModel& model_;
  const ResourcePrices& prices_;
  const RoundOptions& options_;
  const SpanPrice span_price_;
  FreeBytes free_bytes_;
  PricedSeconds seconds_;
  double host_left_;
  std::uint64_t state_bytes_ = 0;
  std::vector<std::uint8_t> chosen_;
  std::vector<std::uint8_t> kept_;
};

}  // namespace

RoundedDecisions Round(const PreparedProblem& prepared, const PriceModel& model,
                       const ResourcePrices& prices, const RoundOptions& options) {
  constexpr int kRounds = 3;
  RoundOptions reserving = options;
  RoundedDecisions rounded = Rounding(prepared, model, prices, reserving).Run();
  for (int round = 1; round < kRounds && !prepared.without.Has(HierarchyPart::kReserves); ++round) {
    if (!ReserveExcess(prepared, rounded.decisions, reserving.reserved)) break;
    rounded = Rounding(prepared, model, prices, reserving).Run();
  }
  return rounded;
}

}  // namespace geminid::planner
