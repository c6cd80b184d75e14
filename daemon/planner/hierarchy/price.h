#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_PRICE_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_PRICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/planner/hierarchy/evaluate.h"

// The choice as a program with prices.
//
//   minimise   max over resources and chains r of T_r(d)
//   so that    the bytes of d at each moment t are at most C(t), and on the host at most H (+ disk)
//
// Each chunk and activation has options; an option takes bytes on the device over spans of moments,
// bytes on the host, and seconds of each resource. A gap between two uses of a chunk is an item of
// its own: kept it takes the chunk's bytes, dropped it costs a load.
//
// With weights l_r >= 0 that sum to 1, a price m_s >= 0 per byte at one chosen moment of each
// segment of time, and a price h >= 0 per byte of host memory,
//
//   D(l, m, h) = min over d of  sum l_r T_r(d) + sum m_s (bytes_s(d) - C_s) + h (host(d) - H)
//
// separates into one small choice per item, and D <= max_r T_r(d) for every feasible d: a lower
// bound on the step. It is concave; the subgradient is (T_r, bytes_s - C_s, host - H), followed
// with Polyak's step length (Polyak 1969) towards the best step known.

namespace geminid::planner {

// Besides the resources, chains: updates after backward that must be over before an operator of the
// next forward starts. A chain ends at a checkpoint, a chunk in the order of first use, and lasts
// as long as the updates up to that chunk and all computation from its first use on; the step is no
// shorter. For each checkpoint one chain of the CPU, one of the way up
// and one of host memory.
inline constexpr std::size_t kCheckpoints = 4;
inline constexpr std::size_t kNumPriced = kNumResources + 3 * kCheckpoints;
// Seconds of each resource, of each CPU chain, of each chain of the way up, and of host memory.
using PricedSeconds = std::array<double, kNumPriced>;

struct PricedSpan {
  std::int64_t first = 0;
  std::int64_t last = -1;
  double bytes = 0;
};

struct Option {
  std::uint8_t place = 0;  // OptimizerPlace or ActivationPlace
  PricedSeconds seconds = {};
  std::array<PricedSpan, 2> spans = {};
  double host_bytes = 0;          // at the moment when the host is fullest
  std::uint64_t state_bytes = 0;  // against the limit of state on the device
};

struct PricedItem {
  bool is_chunk = false;
  std::uint32_t index = 0;
  std::vector<Option> options;  // never empty
  // Of a chunk: its gaps, which cost nothing if it is updated on the device.
  std::size_t first_gap = 0;
  std::size_t num_gaps = 0;
};

struct PricedGap {
  PricedSpan span;
  PricedSeconds drop = {};
};

// Bytes that may leave host memory for the disk, and what each costs.
struct Spill {
  double limit_bytes = 0;
  PricedSeconds seconds_per_byte = {};
};

struct PriceModel {
  std::vector<PricedItem> items;
  std::vector<PricedGap> gaps;
  PricedSeconds base = {};             // whatever is decided
  std::vector<double> free_bytes;      // per moment, beside workspace and used chunks
  std::vector<std::int64_t> segments;  // the moment that stands for each
  double host_room = 0;
  std::array<Spill, 2> spills;  // of trained chunks: read and written; of frozen ones: read
};
PriceModel BuildPriceModel(const Prepared& prepared);

// The most segments of time: a price for each.
inline constexpr std::size_t kMaxSegments = 64;

struct Prices {
  PricedSeconds resource = {};  // sums to 1
  std::vector<double> segment;  // seconds per byte, as PriceModel::segments
  double host = 0;              // seconds per byte
};

// The option of each item that is best at the prices, and which gaps are kept.
struct Selection {
  std::vector<std::uint8_t> option;  // index into PricedItem::options
  std::vector<std::uint8_t> kept;    // per gap
};

// Sum of the segment prices over a span in O(1).
class SpanPrice {
 public:
  SpanPrice(const PriceModel& model, const Prices& prices);
  double Of(const PricedSpan& span) const {
    if (span.last < span.first) return 0;
    return span.bytes * (before_[static_cast<std::size_t>(span.last) + 1] -
                         before_[static_cast<std::size_t>(span.first)]);
  }

 private:
  std::vector<double> before_;
};

double Weighted(const PricedSeconds& weights, const PricedSeconds& seconds);

struct DualResult {
  double bound = 0;  // the best D found: no feasible decisions take less
  Prices prices;     // where
  Selection selection;
};
// Starts from the weights, which sum to 1, and no prices of bytes. `step_seconds`: of any feasible
// decisions, the target of the step length. Each iteration takes O(items + gaps + moments).
inline constexpr int kDualIterations = 100;
DualResult MaximizeDual(const PriceModel& model, const PricedSeconds& first_weights,
                        double step_seconds, int iterations);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_PRICE_H_
