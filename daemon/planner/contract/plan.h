#ifndef GEMINID_DAEMON_PLANNER_CONTRACT_PLAN_H_
#define GEMINID_DAEMON_PLANNER_CONTRACT_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/planner/contract/trace.h"

// The planner's output: which chunks to load, at which offsets, and which to drop, at each moment
// of every iteration.
//
// How a plan is executed. Before the first planned iteration, load `resident_at_start`. Then at
// each moment t, in this order:
// - wait until the gradients with free_moment t have left: a load of this moment may take their
//   extents;
// - issue steps[t].loads in their order;
// - wait until the loads with deadline t are complete, and compute;
// - apply steps[t].drops. A drop of a weight frees its extent at once and moves no bytes. A drop of
//   a gradient frees it at `free_moment`.
// After the last moment and before the optimizer, wait for the gradients with free moment N. The
// plan repeats unchanged every iteration.

namespace geminid::planner {

// Two sums of many durations are equal if they differ by less than this fraction.
inline constexpr double kRounding = 1e-9;

enum class Policy {
  kDevice,  // every chunk has its own place on the device; an error if they do not fit together
  kCpu,     // a chunk leaves after each moment unless the next moment uses it
  kAuto,    // the planner chooses which chunks stay
};

enum class Objective {
  kStepTime,  // least predicted step time, then fewest bytes
  kBytes,     // fewest bytes over the link, even if fewer loads overlap computation
};

struct PlannerOptions {
  Policy policy = Policy::kAuto;
  Objective objective = Objective::kStepTime;
  // The optimizer changes every chunk that is not frozen between iterations. The chunk's device
  // copy is then stale, and no load of the chunk may be issued before moment 0. False between the
  // micro-batches of one step and in evaluation.
  bool weights_change_between_iterations = true;
  // The least number of moments after an invalidating use for which reduce and D2H occupy the
  // extent. The planner shortens single drains (and predicts the stall) where the working set needs
  // the space. It lengthens them where nothing does.
  std::uint32_t drain_moments = 1;
  // A load is issued at most this many moments before its deadline.
  std::uint32_t max_lookahead_moments = 32;
  // Loads are issued this long before their latest start, for thread wake-ups and link jitter.
  double slack_seconds = 1e-3;
  // Extents start and end at multiples of this (device copies want 256 to 512 bytes).
  std::uint64_t alignment_bytes = 512;
};

// A chunk's stay in the arena at one fixed offset. Moments are unrolled over the iterations so that
// begin <= first_use <= last_use < end <= begin + N and 0 <= first_use < N: a negative begin means
// the previous iteration, and N or more the next one.
struct Residency {
  ChunkIndex chunk = 0;
  std::uint64_t device_offset = 0;
  std::int64_t begin = 0;      // moment that issues the load; the extent is taken from here on
  std::int64_t first_use = 0;  // deadline of the load
  std::int64_t last_use = 0;
  std::int64_t end = 0;    // first moment at which the extent may be used for something else
  bool permanent = false;  // never loaded or dropped in the steady state: begin 0, end N
};

struct Load {
  ChunkIndex chunk = 0;
  std::uint64_t device_offset = 0;
  // A value below the issuing moment means that moment of the next iteration.
  Moment deadline_moment = 0;
  // Rank of this load by deadline over the iteration: loads of smaller rank are needed first.
  std::uint32_t order = 0;
};

struct Drop {
  ChunkIndex chunk = 0;
  // The extent holds a gradient to reduce and to copy to the host, and is occupied until
  // free_moment.
  bool becomes_gradient = false;
  // N is the end of the iteration. A value up to the dropping moment is one of the next iteration.
  Moment free_moment = 0;
};

struct Step {
  std::vector<Load> loads;  // to issue before the moment, in this order
  std::vector<Drop> drops;  // after the moment
};

struct Placement {
  ChunkIndex chunk = 0;
  std::uint64_t device_offset = 0;
};

enum class StallCause {
  kSpace,              // no extent was free earlier
  kLink,               // host-to-device transfers take longer than the computation that hides them
  kIterationBoundary,  // the weights exist only once the optimizer has run
  kLookahead,          // max_lookahead_moments forbids an earlier load
  kDrain,              // a gradient must leave before its extent is promised to be free
};

struct Stall {
  Moment moment = 0;  // N: after the last moment
  double seconds = 0;
  // The part of `seconds` that every plan waits by this moment, given the capacities, the link and
  // the options (step_bound.h). Waits that earlier stalls of this plan account for do not count.
  double unavoidable_seconds = 0;
  StallCause cause = StallCause::kLink;
  ChunkIndex chunk = 0;  // the chunk that the moment waits for
};

struct Plan {
  PlannerOptions options;
  std::uint64_t trace_hash = 0;
  // All chunks have a place of their own: the only loads refresh weights that changed.
  bool everything_fits = false;
  std::vector<Step> steps;  // one per moment
  // Chunks that must lie in the arena when moment 0 begins, in the order of their first use.
  std::vector<Placement> resident_at_start;
  std::vector<Residency> residencies;  // by begin, then by deadline

  std::uint64_t h2d_bytes = 0;  // per iteration
  std::uint64_t d2h_bytes = 0;  // per iteration: gradients
  // Every plan for this trace, these drains and this alignment moves at least this per iteration.
  std::uint64_t lower_bound_bytes = 0;
  // The part of h2d_bytes that was added because no fixed offset was free for a longer stay.
  std::uint64_t split_bytes = 0;
  double compute_seconds = 0;         // sum over the moments
  double predicted_step_seconds = 0;  // compute and stalls, without the optimizer
  // No plan for this trace and these drains has a shorter step on this link model. The bound is the
  // longest chain of loads that must come first, computation, and gradients that must leave
  // afterwards (step_bound.h).
  double step_lower_bound_seconds = 0;
  std::vector<Stall> stalls;  // by moment
};

// Simulates the plan against the trace again, without the planner's code. Checks that
// - every used chunk is resident and loaded in time, and no used weight is stale;
// - no two extents overlap, and all lie below the capacity of each moment;
// - no chunk is dropped before its use;
// - bytes are as stated, and neither bytes nor seconds are below their bounds;
// - the iteration ends in the state in which it started.
// INTERNAL with the first violation. O(n log n).
absl::Status CheckPlan(const Trace& trace, const Plan& plan);

// A stable 64-bit hash over every field: equal plans on all ranks hash equal.
std::uint64_t PlanHash(const Plan& plan);

// The plan in plain words, a few lines: which chunks fit and stay, the bytes that move and their
// bound, the time of a step, and its waits with their causes. `trace` is the trace that was
// planned.
std::string ExplainPlan(const Trace& trace, const Plan& plan);

const char* PolicyName(Policy policy);
const char* StallCauseName(StallCause cause);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_CONTRACT_PLAN_H_
