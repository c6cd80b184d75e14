#ifndef GEMINID_DAEMON_PLANNER_HIERARCHY_PRICE_H_
#define GEMINID_DAEMON_PLANNER_HIERARCHY_PRICE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/planner/hierarchy/evaluate.h"

// The choice of decisions, as a program with prices.
//
//   minimise   max over resources and chains r of T_r(d)
//   so that    the bytes of d at each moment t are at most C(t), and on the host at most H (+ disk)
//
// Each chunk and activation has options. An option takes bytes on the device over spans of
// moments, bytes on the host, and seconds of each resource. A gap between two uses of a chunk is an
// item of its own. A retained gap takes the chunk's bytes, and a dropped gap costs a load.
//
// With weights l_r >= 0 that sum to 1, a price m_s >= 0 per byte at one chosen moment of each
// segment of time, and a price h >= 0 per byte of host memory,
//
//   D(l, m, h) = min over d of  sum l_r T_r(d) + sum m_s (bytes_s(d) - C_s) + h (host(d) - H)
//
// separates into one small choice per item. D <= max_r T_r(d) for every feasible d, so D is a lower
// bound on the step. D is concave; its subgradient is (T_r, bytes_s - C_s, host - H). The search
// follows it with Polyak's step length (Polyak 1969) towards the best step known.

namespace geminid::planner {

// Besides resources there are chains: updates after backward that must end before an operator of
// the next forward starts. A chain ends at a checkpoint, which is a chunk in the order of first
// use. It lasts as long as the updates up to that chunk and all computation from the chunk's first
// use on, and the step is no shorter. Each checkpoint has one chain of the CPU, one of the link up
// and one of host memory.
inline constexpr std::size_t kCheckpoints = 4;
inline constexpr std::size_t kNumPriced = kNumResources + 3 * kCheckpoints;
// Seconds of each resource, of each CPU chain, of each chain of the link up, and of host memory.
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
  std::uint64_t state_bytes = 0;  // counts against the limit of state on the device
};

struct PricedItem {
  bool is_chunk = false;
  std::uint32_t index = 0;
  std::vector<Option> options;  // never empty
  // The gaps of a chunk. They cost nothing if the chunk is updated on the device.
  std::size_t first_gap = 0;
  std::size_t num_gaps = 0;
};

struct PricedGap {
  PricedSpan span;
  PricedSeconds drop = {};
};

// Bytes that may leave host memory for the disk, and the cost per byte.
struct Spill {
  double limit_bytes = 0;
  PricedSeconds seconds_per_byte = {};
};

struct PriceModel {
  std::vector<PricedItem> items;
  std::vector<PricedGap> gaps;
  PricedSeconds base = {};             // of every decision
  std::vector<double> free_bytes;      // per moment, beside workspace and used chunks
  std::vector<std::int64_t> segments;  // the moment that stands for each segment
  double host_room = 0;
  // Of trained chunks, which are read and written; of frozen chunks, which are read.
  std::array<Spill, 2> spills;
};
PriceModel BuildPriceModel(const PreparedProblem& prepared);

// The most segments of time. Each has a price.
inline constexpr std::size_t kMaxSegments = 64;

struct ResourcePrices {
  PricedSeconds resource = {};  // sums to 1
  std::vector<double> segment;  // seconds per byte, as PriceModel::segments
  double host = 0;              // seconds per byte
};

// The best option of each item at the prices, and the gaps that are retained.
struct Selection {
  std::vector<std::uint8_t> option;  // index into PricedItem::options
  std::vector<std::uint8_t> kept;    // per gap
};

// Sum of the segment prices over a span in O(1).
class SpanPrice {
 public:
  SpanPrice(const PriceModel& model, const ResourcePrices& prices);
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
  ResourcePrices prices;  // at which the bound was found
  Selection selection;
};
// Starts from the weights, which sum to 1, and without prices of bytes. `step_seconds` is the step
// of any feasible decisions and the target of the step length. Each iteration takes O(items + gaps
// + moments).
inline constexpr int kDualIterations = 100;
DualResult MaximizeDual(const PriceModel& model, const PricedSeconds& first_weights,
                        double step_seconds, int iterations);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_HIERARCHY_PRICE_H_
