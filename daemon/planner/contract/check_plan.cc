#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/planner/contract/plan.h"

namespace geminid::planner {
namespace {

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("invalid plan: ", parts...));
}

// Executes the steps of a plan on an arena that only knows extents.
class Executor {
 public:
  Executor(const Trace& trace, const Plan& plan)
      : trace_(trace), plan_(plan), chunks_(trace.chunks.size()) {}

  absl::Status Start();
  absl::Status RunIteration();

 private:
  struct ChunkState {
    bool present = false;   // its extent holds the weight, or will by the deadline
    bool gradient = false;  // its extent holds the gradient
    std::uint64_t offset = 0;
    std::int64_t deadline = 0;  // of its load; counted over all iterations, as is `loaded_in`
    std::int64_t loaded_in = 0;
    std::int64_t invalid_since = -1;
  };
  struct Extent {
    std::uint64_t end;
    ChunkIndex chunk;
  };

  bool Changes(ChunkIndex chunk) const {
    return plan_.options.weights_change_between_iterations && !trace_.chunks[chunk].frozen;
  }
  absl::Status Put(ChunkIndex chunk, std::uint64_t offset);
  absl::Status LoadAll(std::size_t t);
  absl::Status CheckCapacity(std::size_t t) const;
  absl::Status UseAll(std::size_t t);
  absl::Status DropAll(std::size_t t);
  absl::Status CheckBoundary() const;

  const Trace& trace_;
  const Plan& plan_;
  std::vector<ChunkState> chunks_;
  std::map<std::uint64_t, Extent> extents_;                  // by offset
  std::map<std::int64_t, std::vector<ChunkIndex>> leaving_;  // gradients by moment of release
  std::int64_t now_ = 0;
  std::int64_t iteration_ = 0;
};

absl::Status Executor::Put(ChunkIndex chunk, std::uint64_t offset) {
  if (chunk >= chunks_.size()) return Bad("chunk ", chunk, " does not exist");
  ChunkState& state = chunks_[chunk];
  if (state.present || state.gradient) {
    return Bad("chunk ", chunk, " is put into the arena twice at moment ", now_);
  }
  if (offset % plan_.options.alignment_bytes != 0) {
    return Bad("offset ", offset, " of chunk ", chunk, " is not aligned");
  }
  if (offset > trace_.arena_bytes || trace_.chunks[chunk].size_bytes > trace_.arena_bytes) {
    return Bad("chunk ", chunk, " lies outside the arena");
  }
  const std::uint64_t end = offset + trace_.chunks[chunk].size_bytes;
  const auto after = extents_.lower_bound(offset);
  if (after != extents_.end() && after->first < end) {
    return Bad("chunk ", chunk, " overlaps chunk ", after->second.chunk, " at moment ", now_);
  }
  if (after != extents_.begin() && std::prev(after)->second.end > offset) {
    return Bad("chunk ", chunk, " overlaps chunk ", std::prev(after)->second.chunk, " at moment ",
               now_);
  }
  extents_[offset] = {end, chunk};
  state = {.present = true, .offset = offset, .deadline = now_, .loaded_in = iteration_};
  return absl::OkStatus();
}

absl::Status Executor::Start() {
  for (const Placement& placement : plan_.resident_at_start) {
    if (absl::Status status = Put(placement.chunk, placement.device_offset); !status.ok()) {
      return status;
    }
    if (Changes(placement.chunk)) {
      return Bad("chunk ", placement.chunk, " crosses the iteration boundary with stale weights");
    }
  }
  return absl::OkStatus();
}

absl::Status Executor::LoadAll(std::size_t t) {
  for (const Load& load : plan_.steps[t].loads) {
    if (absl::Status status = Put(load.chunk, load.device_offset); !status.ok()) return status;
    if (load.deadline_moment >= trace_.moments.size()) {
      return Bad("chunk ", load.chunk, " is due at moment ", load.deadline_moment);
    }
    const bool next_iteration = load.deadline_moment < t;
    if (next_iteration && Changes(load.chunk)) {
      return Bad("chunk ", load.chunk, " is loaded at moment ", t, " before its weights change");
    }
    const std::int64_t start = now_ - static_cast<std::int64_t>(t);
    const auto length = static_cast<std::int64_t>(trace_.moments.size());
    chunks_[load.chunk].deadline = start + load.deadline_moment + (next_iteration ? length : 0);
  }
  return absl::OkStatus();
}

absl::Status Executor::CheckCapacity(std::size_t t) const {
  if (extents_.empty()) return absl::OkStatus();
  const std::uint64_t workspace = trace_.moments[t].workspace_bytes;
  const std::uint64_t capacity =
      workspace < trace_.arena_bytes ? trace_.arena_bytes - workspace : 0;
  const Extent& last = extents_.rbegin()->second;
  if (last.end <= capacity) return absl::OkStatus();
  return Bad("chunk ", last.chunk, " ends at ", last.end, ", past the capacity ", capacity,
             " of moment ", t);
}

absl::Status Executor::UseAll(std::size_t t) {
  for (const Use& use : trace_.moments[t].uses) {
    ChunkState& state = chunks_[use.chunk];
    if (!state.present) return Bad("chunk ", use.chunk, " is not resident at moment ", t);
    if (state.deadline > now_) {
      return Bad("chunk ", use.chunk, " is used at moment ", t, " before its load is due");
    }
    if (state.invalid_since >= 0) {
      return Bad("chunk ", use.chunk, " is used at moment ", t, " after it became a gradient");
    }
    if (Changes(use.chunk) && state.loaded_in != iteration_) {
      return Bad("chunk ", use.chunk, " is used at moment ", t, " with stale weights");
    }
    if (use.invalidates) state.invalid_since = now_;
  }
  return absl::OkStatus();
}

absl::Status Executor::DropAll(std::size_t t) {
  const auto length = static_cast<std::int64_t>(trace_.moments.size());
  for (const Drop& drop : plan_.steps[t].drops) {
    if (drop.chunk >= chunks_.size() || !chunks_[drop.chunk].present) {
      return Bad("chunk ", drop.chunk, " is dropped at moment ", t, " but not resident");
    }
    ChunkState& state = chunks_[drop.chunk];
    if (state.deadline > now_) {
      return Bad("chunk ", drop.chunk, " is dropped at moment ", t, " before its use");
    }
    if (drop.becomes_gradient != (state.invalid_since == now_)) {
      return Bad("chunk ", drop.chunk, " is dropped at moment ", t, " as the wrong kind");
    }
    if (drop.free_moment > trace_.moments.size()) {
      return Bad("chunk ", drop.chunk, " is free at moment ", drop.free_moment);
    }
    const std::int64_t start = now_ - static_cast<std::int64_t>(t);
    const std::int64_t free_at = start + drop.free_moment + (drop.free_moment <= t ? length : 0);
    if (!drop.becomes_gradient && free_at != now_ + 1) {
      return Bad("chunk ", drop.chunk, " is dropped clean at moment ", t, " but not free then");
    }
    if (plan_.options.weights_change_between_iterations && free_at > start + length) {
      return Bad("the gradient of chunk ", drop.chunk, " leaves after the optimizer");
    }
    state.present = false;
    state.gradient = true;
    leaving_[free_at].push_back(drop.chunk);
  }
  for (const Use& use : trace_.moments[t].uses) {
    const ChunkState& state = chunks_[use.chunk];
    if (state.present && state.invalid_since >= 0) {
      return Bad("chunk ", use.chunk, " became a gradient at moment ", t, " and is not dropped");
    }
  }
  return absl::OkStatus();
}

absl::Status Executor::CheckBoundary() const {
  std::size_t num_present = 0;
  for (const ChunkState& state : chunks_) num_present += state.present ? 1 : 0;
  if (num_present != plan_.resident_at_start.size()) {
    return Bad(num_present, " chunks are resident at the end of the iteration but ",
               plan_.resident_at_start.size(), " at its start");
  }
  for (const Placement& placement : plan_.resident_at_start) {
    const ChunkState& state = chunks_[placement.chunk];
    if (!state.present || state.offset != placement.device_offset) {
      return Bad("chunk ", placement.chunk, " ends the iteration elsewhere than it starts");
    }
  }
  return absl::OkStatus();
}

absl::Status Executor::RunIteration() {
  for (std::size_t t = 0; t < trace_.moments.size(); ++t, ++now_) {
    while (!leaving_.empty() && leaving_.begin()->first <= now_) {
      for (const ChunkIndex chunk : leaving_.begin()->second) {
        extents_.erase(chunks_[chunk].offset);
        chunks_[chunk].gradient = false;
      }
      leaving_.erase(leaving_.begin());
    }
    if (absl::Status status = LoadAll(t); !status.ok()) return status;
    if (absl::Status status = CheckCapacity(t); !status.ok()) return status;
    if (absl::Status status = UseAll(t); !status.ok()) return status;
    if (absl::Status status = DropAll(t); !status.ok()) return status;
  }
  ++iteration_;
  return CheckBoundary();
}

absl::Status CheckBytes(const Trace& trace, const Plan& plan) {
  std::uint64_t up = 0;
  for (const Step& step : plan.steps) {
    for (const Load& load : step.loads) up += trace.chunks[load.chunk].transfer_bytes;
  }
  std::uint64_t down = 0;
  for (const MomentTrace& moment : trace.moments) {
    for (const Use& use : moment.uses) {
      if (use.invalidates) down += trace.chunks[use.chunk].gradient_bytes;
    }
  }
  if (up != plan.h2d_bytes || down != plan.d2h_bytes) {
    return Bad("moves ", up, " bytes up and ", down, " down but states ", plan.h2d_bytes, " and ",
               plan.d2h_bytes);
  }
  if (plan.lower_bound_bytes > up) {
    return Bad("moves ", up, " bytes, less than its lower bound ", plan.lower_bound_bytes);
  }
  if (plan.step_lower_bound_seconds > plan.predicted_step_seconds * (1 + kRounding)) {
    return Bad("takes ", plan.predicted_step_seconds, " s, less than its lower bound ",
               plan.step_lower_bound_seconds);
  }
  return absl::OkStatus();
}

// The residencies describe the same loads and drops as the steps.
absl::Status CheckResidencies(const Trace& trace, const Plan& plan) {
  using Event = std::tuple<ChunkIndex, std::int64_t, std::uint64_t, std::int64_t>;
  const auto n = static_cast<std::int64_t>(trace.moments.size());
  std::vector<Event> loads, drops, told_loads, told_drops;
  for (std::int64_t t = 0; t < n; ++t) {
    for (const Load& load : plan.steps[static_cast<std::size_t>(t)].loads) {
      loads.emplace_back(load.chunk, t, load.device_offset, load.deadline_moment);
    }
    for (const Drop& drop : plan.steps[static_cast<std::size_t>(t)].drops) {
      drops.emplace_back(drop.chunk, t, 0, drop.free_moment);
    }
  }
  for (const Residency& r : plan.residencies) {
    const bool ordered = r.begin <= r.first_use && r.first_use <= r.last_use &&
                         r.last_use < r.end && r.end - r.begin <= n && r.first_use >= 0 &&
                         r.first_use < n && r.begin > -n;
    if (!ordered) return Bad("a residency of chunk ", r.chunk, " has its moments out of order");
    if (r.permanent) continue;
    told_loads.emplace_back(r.chunk, (r.begin + n) % n, r.device_offset, r.first_use);
    const std::int64_t end = r.end - r.last_use / n * n;
    told_drops.emplace_back(r.chunk, r.last_use % n, 0, end > n ? end - n : end);
  }
  for (std::vector<Event>* events : {&loads, &drops, &told_loads, &told_drops}) {
    std::sort(events->begin(), events->end());
  }
  if (loads != told_loads || drops != told_drops) {
    return Bad("the residencies and the steps differ");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPlan(const Trace& trace, const Plan& plan) {
  if (absl::Status status = ValidateTrace(trace); !status.ok()) return status;
  if (plan.trace_hash != TraceHash(trace)) return Bad("it was made for another trace");
  if (plan.steps.size() != trace.moments.size()) {
    return Bad("it has ", plan.steps.size(), " steps for ", trace.moments.size(), " moments");
  }
  if (plan.options.alignment_bytes == 0) return Bad("its alignment is zero");
  // Two iterations: the state after the first must not disturb the second.
  Executor executor(trace, plan);
  if (absl::Status status = executor.Start(); !status.ok()) return status;
  for (int iteration = 0; iteration < 2; ++iteration) {
    if (absl::Status status = executor.RunIteration(); !status.ok()) return status;
  }
  if (absl::Status status = CheckBytes(trace, plan); !status.ok()) return status;
  return CheckResidencies(trace, plan);
}

}  // namespace geminid::planner
