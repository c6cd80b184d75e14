#include "daemon/planner/problem/problem.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/pages.h"

namespace geminid::planner {
namespace {

constexpr std::uint64_t kMaxAlignmentBytes = std::uint64_t{1} << 30;

absl::Status ValidateOptions(const PlannerOptions& options) {
  if (options.alignment_bytes == 0 || options.alignment_bytes > kMaxAlignmentBytes) {
    return absl::InvalidArgumentError(absl::StrCat("options.alignment_bytes is ",
                                                   options.alignment_bytes, "; 1 to ",
                                                   kMaxAlignmentBytes, " are allowed"));
  }
  if (!std::isfinite(options.slack_seconds) || options.slack_seconds < 0) {
    return absl::InvalidArgumentError(
        "options.slack_seconds must be finite and must not be negative");
  }
  return absl::OkStatus();
}

void BuildItems(const Trace& trace, const PlannerOptions& options, Problem& problem) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  std::vector<std::uint32_t> item_of_chunk(trace.chunks.size(), kNone);
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    for (const Use& use : trace.moments[t].uses) {
      if (item_of_chunk[use.chunk] == kNone) {
        item_of_chunk[use.chunk] = static_cast<std::uint32_t>(problem.items.size());
        const Chunk& chunk = trace.chunks[use.chunk];
        problem.items.push_back(
            {.chunk = use.chunk,
             .extent_bytes = static_cast<std::int64_t>(
                 base::RoundUp(chunk.size_bytes, options.alignment_bytes)),
             .transfer_bytes = chunk.transfer_bytes,
             .gradient_bytes = chunk.gradient_bytes,
             .changes = options.weights_change_between_iterations && !chunk.frozen});
      }
      const auto moment = static_cast<std::int64_t>(t);
      problem.items[item_of_chunk[use.chunk]].uses.push_back(
          {.moment = moment, .invalidates = use.invalidates, .free_moment = moment + 1});
    }
  }
}

void BuildGaps(Problem& problem) {
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    Item& item = problem.items[i];
    item.first_gap = problem.gaps.size();
    for (std::size_t k = 0; k < item.uses.size(); ++k) {
      const bool crosses = k + 1 == item.uses.size();
      const std::int64_t next =
          crosses ? item.uses[0].moment + problem.num_moments : item.uses[k + 1].moment;
      const bool valued = !item.uses[k].invalidates && !(crosses && item.changes);
      problem.gaps.push_back({.item = static_cast<std::uint32_t>(i),
                              .first = item.uses[k].moment + 1,
                              .last = next - 1,
                              .crosses_boundary = crosses,
                              .valued = valued});
      problem.cyclic = problem.cyclic || (crosses && valued);
    }
  }
}

void SetCapacity(const Trace& trace, const PlannerOptions& options, Problem& problem) {
  problem.equal_sizes = std::all_of(
      problem.items.begin(), problem.items.end(),
      [&](const Item& item) { return item.extent_bytes == problem.items[0].extent_bytes; });
  problem.granule_bytes = problem.equal_sizes && !problem.items.empty()
                              ? problem.items[0].extent_bytes
                              : static_cast<std::int64_t>(options.alignment_bytes);
  for (const MomentTrace& moment : trace.moments) {
    const std::uint64_t bytes =
        moment.workspace_bytes < trace.arena_bytes ? trace.arena_bytes - moment.workspace_bytes : 0;
    const auto signed_bytes = static_cast<std::int64_t>(bytes);
    problem.capacity_bytes.push_back(signed_bytes - signed_bytes % problem.granule_bytes);
  }
}

absl::Status RequireUses(const Trace& trace, Problem& problem) {
  problem.required_bytes.assign(static_cast<std::size_t>(problem.num_moments), 0);
  for (const Item& item : problem.items) {
    for (const ItemUse& use : item.uses) {
      problem.required_bytes[static_cast<std::size_t>(use.moment)] += item.extent_bytes;
    }
  }
  std::uint64_t smallest_arena = 0;
  std::size_t worst = 0;
  bool fits = true;
  for (std::size_t t = 0; t < trace.moments.size(); ++t) {
    const auto required = static_cast<std::uint64_t>(problem.required_bytes[t]);
    if (required == 0) continue;
    if (problem.required_bytes[t] > problem.capacity_bytes[t]) fits = false;
    const std::uint64_t arena = required + trace.moments[t].workspace_bytes;
    if (arena > smallest_arena) {
      smallest_arena = arena;
      worst = t;
    }
  }
  if (fits) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "moment ", worst, " uses ", trace.moments[worst].uses.size(), " chunks of together ",
      base::FormatBytes(problem.required_bytes[worst]), " beside ",
      base::FormatBytes(trace.moments[worst].workspace_bytes), " of workspace, but the arena has ",
      base::FormatBytes(trace.arena_bytes), ", which leaves ",
      base::FormatBytes(
          static_cast<std::uint64_t>(std::max<std::int64_t>(problem.capacity_bytes[worst], 0))),
      " for chunks; the smallest arena that would do is ", base::FormatBytes(smallest_arena),
      ". Raise the memory cap, or use a smaller batch or smaller chunks"));
}

// Sets how long each invalidated extent stays occupied. The limits are the option, the chunk's own
// next use (a chunk has one extent at a time) and the optimizer, which waits for all gradients.
void SetDrains(const PlannerOptions& options, Problem& problem) {
  for (Item& item : problem.items) {
    for (std::size_t k = 0; k < item.uses.size(); ++k) {
      ItemUse& use = item.uses[k];
      if (!use.invalidates) continue;
      const Gap& gap = problem.gaps[item.first_gap + k];
      std::int64_t free_moment =
          use.moment + 1 + std::min<std::int64_t>(options.drain_moments, problem.num_moments);
      free_moment = std::min(free_moment, gap.last + 1);
      if (options.weights_change_between_iterations) {
        free_moment = std::min(free_moment, problem.num_moments);
      }
      use.free_moment = std::max(free_moment, use.moment + 1);
    }
  }
}

// The extents that drain while time runs over two iterations. Each extent enters and leaves once
// per iteration, so the cost is linear in the moments and the drains, however long drains last.
class Draining {
 public:
  explicit Draining(Problem& problem)
      : problem_(problem), ending_(static_cast<std::size_t>(2 * problem.num_moments)) {}

  void Begin(std::size_t item, std::size_t use, std::int64_t iteration_start) {
    const std::int64_t end = iteration_start + problem_.items[item].uses[use].free_moment;
    if (end < static_cast<std::int64_t>(ending_.size())) {
      ending_[static_cast<std::size_t>(end)].push_back(extents_.size());
    }
    extents_.push_back({item, use, iteration_start});
    bytes_ += problem_.items[item].extent_bytes;
    ++problem_.drain_steps;
  }

  void EndAt(std::int64_t now) {
    for (const std::size_t extent : ending_[static_cast<std::size_t>(now)]) {
      if (!extents_[extent].ended) End(extent);
    }
  }

  // Ends the oldest extents while they occupy more than `room`: the oldest had the most time.
  void CutTo(std::int64_t room, std::int64_t now) {
    while (bytes_ > room && oldest_ < extents_.size()) {
      const std::size_t extent = oldest_++;
      if (extents_[extent].ended) continue;
      const Extent& cut = extents_[extent];
      problem_.items[cut.item].uses[cut.use].free_moment = now - cut.iteration_start;
      End(extent);
    }
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  struct Extent {
    std::size_t item;
    std::size_t use;
    std::int64_t iteration_start;
    bool ended = false;
  };

  void End(std::size_t extent) {
    extents_[extent].ended = true;
    bytes_ -= problem_.items[extents_[extent].item].extent_bytes;
    ++problem_.drain_steps;
  }

  Problem& problem_;
  std::vector<std::vector<std::size_t>> ending_;  // by moment of the two iterations
  std::vector<Extent> extents_;                   // in the order in which they began
  std::size_t oldest_ = 0;                        // the extents before it have ended
  std::int64_t bytes_ = 0;
};

struct DrainingUse {
  std::size_t item;
  std::size_t use;
};

// By moment: the uses after which a gradient drains.
std::vector<std::vector<DrainingUse>> DrainingUses(const Problem& problem) {
  std::vector<std::vector<DrainingUse>> starting(static_cast<std::size_t>(problem.num_moments));
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    const std::vector<ItemUse>& uses = problem.items[i].uses;
    for (std::size_t k = 0; k < uses.size(); ++k) {
      if (uses[k].free_moment <= uses[k].moment + 1) continue;
      starting[static_cast<std::size_t>(uses[k].moment)].push_back({i, k});
    }
  }
  return starting;
}

// Adds the draining extents to the required bytes, moment by moment. Drains over the boundary
// reappear at the start of the iteration, so the loop passes the moments twice. A drain that was
// shortened stays short.
void RequireDrains(Problem& problem) {
  const std::int64_t n = problem.num_moments;
  const std::vector<std::vector<DrainingUse>> starting = DrainingUses(problem);
  std::vector<std::int64_t> drain_bytes(static_cast<std::size_t>(n), 0);
  Draining draining(problem);
  for (std::int64_t now = 0; now < 2 * n; ++now) {
    const auto at = static_cast<std::size_t>(now % n);
    draining.EndAt(now);
    draining.CutTo(problem.capacity_bytes[at] - problem.required_bytes[at], now);
    drain_bytes[at] = draining.bytes();
    for (const DrainingUse& drain : starting[at]) {
      draining.Begin(drain.item, drain.use, now - now % n);
    }
  }
  for (std::size_t t = 0; t < drain_bytes.size(); ++t) {
    problem.required_bytes[t] += drain_bytes[t];
  }
}

}  // namespace

absl::StatusOr<Problem> BuildProblem(const Trace& trace, const PlannerOptions& options) {
  if (absl::Status status = ValidateTrace(trace); !status.ok()) return status;
  if (absl::Status status = ValidateOptions(options); !status.ok()) return status;
  Problem problem;
  problem.num_moments = static_cast<std::int64_t>(trace.moments.size());
  BuildItems(trace, options, problem);
  BuildGaps(problem);
  SetCapacity(trace, options, problem);
  if (absl::Status status = RequireUses(trace, problem); !status.ok()) return status;
  SetDrains(options, problem);
  RequireDrains(problem);
  return problem;
}

}  // namespace geminid::planner
