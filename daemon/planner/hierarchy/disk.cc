#include "daemon/planner/hierarchy/disk.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/pages.h"
#include "daemon/planner/hierarchy/ledger.h"
#include "daemon/planner/hierarchy/update.h"
#include "daemon/planner/make_plan.h"

namespace geminid::planner {
namespace {

// With at most this many objects on disk, several cache sizes are planned.
constexpr std::size_t kFewDiskObjects = 64;
constexpr int kSmallerCaches = 8;
// O_DIRECT requires this alignment of addresses and lengths.
constexpr std::uint64_t kDiskAlignmentBytes = 4096;
// A read may be issued this many moments before its use. It is more than any device lookahead, so
// only space and the disk limit reads.
constexpr std::uint32_t kDiskLookaheadMoments = 4096;
constexpr double kSecondsPerDay = 86400;

std::uint64_t Aligned(std::uint64_t bytes) { return base::RoundUp(bytes, kDiskAlignmentBytes); }

bool OnHost(const HierarchyPlan& plan, std::size_t chunk) {
  return plan.decisions.optimizer[chunk] != OptimizerPlace::kDevice;
}

std::uint64_t BytesOf(const HierarchyProblem& problem, const DiskObject& object) {
  const OptimizerItem& item = problem.optimizer[object.chunk];
  return object.is_state ? item.remainder_bytes + item.moment_bytes : item.weight_bytes;
}

// Bytes that host memory holds in any case, the same at all moments.
struct HostFixed {
  std::uint64_t weights = 0;  // home copies and state: all of them, if they fit
  std::uint64_t state = 0;
  std::uint64_t gradients = 0;
  std::uint64_t spare = 0;
  std::uint64_t write_buffers = 0;  // if there is a disk plan
  std::uint64_t largest_activations = 0;
};

HostFixed FixedOf(const PreparedProblem& prepared, const Occupancy& occupancy,
                  const HierarchyPlan& plan) {
  HostFixed fixed;
  std::uint64_t largest_object = 0;
  for (std::size_t c = 0; c < prepared.problem.optimizer.size(); ++c) {
    if (!OnHost(plan, c)) continue;
    const OptimizerItem& item = prepared.problem.optimizer[c];
    fixed.weights += item.weight_bytes;
    fixed.state += item.remainder_bytes + item.moment_bytes;
    if (plan.decisions.optimizer[c] == OptimizerPlace::kHost) {
      fixed.gradients += item.gradient_bytes;
    }
    if (!prepared.updated(static_cast<ChunkIndex>(c))) continue;
    fixed.spare = std::max(fixed.spare, item.state_bytes());
    largest_object =
        std::max({largest_object, item.weight_bytes, item.remainder_bytes + item.moment_bytes});
  }
  fixed.write_buffers = kDiskWriteBuffers * Aligned(largest_object);
  fixed.largest_activations =
      *std::max_element(occupancy.host_activations.begin(), occupancy.host_activations.end());
  return fixed;
}

// The objects of all chunks, and the moments at which they are used.
class DiskTrace {
 public:
  DiskTrace(const PreparedProblem& prepared, const Occupancy& occupancy, const HostFixed& fixed,
            HierarchyPlan& plan)
      : prepared_(prepared), occupancy_(occupancy), fixed_(fixed), plan_(plan), disk_(plan.disk) {}

  void Build() {
    AddObjects();
    const std::vector<std::vector<ChunkIndex>> updates = UpdatesBefore();
    const std::vector<double> waits = WaitsBefore();
    const std::size_t moments = plan_.device_trace.moments.size();
    for (std::size_t t = 0; t <= moments; ++t) {
      for (const ChunkIndex chunk : updates[t]) AddUpdate(chunk, std::min(t, moments - 1));
      if (t == moments) break;
      AddDeviceMoment(t, waits[t]);
    }
    const Machine& machine = prepared_.problem.machine;
    const auto ranks = static_cast<double>(machine.ranks_on_node);
    // For this plan host memory is the arena, and no arena is larger than kMaxArenaBytes.
    disk_.trace.arena_bytes = std::min(machine.host_bytes, kMaxArenaBytes);
    disk_.trace.link.h2d_bytes_per_second = machine.disk_read_bytes_per_second / ranks;
    disk_.trace.link.d2h_bytes_per_second = machine.disk_write_bytes_per_second / ranks;
  }

 private:
  void AddObjects() {
    const std::size_t chunks = prepared_.problem.optimizer.size();
    weight_of_.assign(chunks, kNone);
    state_of_.assign(chunks, kNone);
    for (ChunkIndex c = 0; c < chunks; ++c) {
      if (!OnHost(plan_, c)) continue;
      weight_of_[c] = AddObject({c, false});
      state_of_[c] = AddObject({c, true});
    }
    used_at_.assign(disk_.objects.size(), SIZE_MAX);
  }

  ChunkIndex AddObject(const DiskObject& object) {
    const std::uint64_t bytes = BytesOf(prepared_.problem, object);
    if (bytes == 0) return kNone;
    disk_.objects.push_back(object);
    disk_.trace.chunks.push_back(
        {.id = disk_.objects.size() - 1, .size_bytes = bytes, .transfer_bytes = bytes});
    return static_cast<ChunkIndex>(disk_.objects.size() - 1);
  }

  // Per device moment (N: after the last), the chunks updated before it.
  std::vector<std::vector<ChunkIndex>> UpdatesBefore() const {
    const std::size_t moments = plan_.device_trace.moments.size();
    std::vector<std::vector<ChunkIndex>> updates(moments + 1);
    std::vector<std::uint8_t> done(prepared_.problem.optimizer.size(), 0);
    const auto add = [&](ChunkIndex chunk, std::size_t moment) {
      if (done[chunk] || !OnHost(plan_, chunk) || !prepared_.updated(chunk)) return;
      done[chunk] = 1;
      updates[moment].push_back(chunk);
    };
    if (prepared_.problem.options.update_during_backward) {
      for (ChunkIndex c = 0; c < done.size(); ++c) {
        if (prepared_.gradient_at[c] != kNoMoment) add(c, prepared_.gradient_at[c] + 1);
      }
    }
    for (std::size_t t = 0; t < moments; ++t) {
      for (const Load& load : plan_.device_plan.steps[t].loads) add(load.chunk, t);
    }
    for (ChunkIndex c = 0; c < done.size(); ++c) add(c, moments);
    return updates;
  }

  // Per device moment, how long the computation waits before it. The optimizer's time comes before
  // the first moment. The wait for the last gradients comes after the last moment.
  std::vector<double> WaitsBefore() const {
    const std::size_t moments = plan_.device_trace.moments.size();
    std::vector<double> waits(moments, 0);
    for (const Stall& stall : plan_.device_plan.stalls) {
      waits[std::min<std::size_t>(stall.moment, moments - 1)] += stall.seconds;
    }
    waits[0] += plan_.seconds.optimizer;
    return waits;
  }

  void AddUpdate(ChunkIndex chunk, std::size_t device_moment) {
    disk_.moments.push_back({true, chunk});
    MomentTrace moment;
    moment.workspace_bytes = Workspace(device_moment);
    for (const ChunkIndex object : {weight_of_[chunk], state_of_[chunk]}) {
      if (object != kNone) moment.uses.push_back({object, false});
    }
    disk_.trace.moments.push_back(std::move(moment));
  }

  void AddDeviceMoment(std::size_t t, double wait_seconds) {
    disk_.moments.push_back({false, static_cast<std::uint32_t>(t)});
    MomentTrace moment;
    moment.workspace_bytes = Workspace(t);
    moment.compute_seconds = plan_.device_trace.moments[t].compute_seconds + wait_seconds;
    for (const Load& load : plan_.device_plan.steps[t].loads) {
      const ChunkIndex object = weight_of_[load.chunk];
      if (object == kNone || used_at_[object] == t) continue;
      used_at_[object] = t;
      moment.uses.push_back({object, false});
    }
    disk_.trace.moments.push_back(std::move(moment));
  }

  std::uint64_t Workspace(std::size_t device_moment) const {
    return fixed_.gradients + fixed_.spare + fixed_.write_buffers +
           occupancy_.host_activations[device_moment];
  }

  static constexpr ChunkIndex kNone = UINT32_MAX;
  const PreparedProblem& prepared_;
  const Occupancy& occupancy_;
  const HostFixed& fixed_;
  const HierarchyPlan& plan_;
  DiskPlan& disk_;
  std::vector<ChunkIndex> weight_of_, state_of_;
  std::vector<std::size_t> used_at_;  // per object, the last device moment that uses it
};

// The host bytes that the fullest moment of the disk trace needs.
std::uint64_t LeastHostBytes(const Trace& trace) {
  std::uint64_t least = 0;
  for (const MomentTrace& moment : trace.moments) {
    std::uint64_t bytes = moment.workspace_bytes;
    for (const Use& use : moment.uses) bytes += Aligned(trace.chunks[use.chunk].size_bytes);
    least = std::max(least, bytes);
  }
  return least;
}

// Sets the bytes that `disk.plan` reads and writes, and the bytes that need a place on disk for
// that.
void FillDiskTraffic(const PreparedProblem& prepared, HierarchyPlan& plan) {
  DiskPlan& disk = plan.disk;
  std::vector<std::uint32_t> loads(disk.objects.size(), 0);
  std::vector<std::uint8_t> used(disk.objects.size(), 0);
  for (const Step& step : disk.plan.steps) {
    for (const Load& load : step.loads) ++loads[load.chunk];
  }
  for (const Residency& residency : disk.plan.residencies) used[residency.chunk] = 1;
  TierBytes& tier = plan.tiers[static_cast<std::size_t>(Tier::kDisk)];
  tier.by_owner = {};
  plan.traffic.disk_read = disk.plan.h2d_bytes;
  plan.traffic.disk_written = 0;
  for (std::size_t i = 0; i < disk.objects.size(); ++i) {
    if (used[i] && loads[i] == 0) continue;
    const DiskObject& object = disk.objects[i];
    const std::uint64_t bytes = BytesOf(prepared.problem, object);
    const Owner owner = object.is_state ? Owner::kOptimizerState : Owner::kWeights;
    tier.by_owner[static_cast<std::size_t>(owner)] += Aligned(bytes);
    if (prepared.updated(object.chunk)) plan.traffic.disk_written += bytes;
  }
  tier.peak = tier.of(Owner::kWeights) + tier.of(Owner::kOptimizerState);
  disk.disk_bytes = tier.peak;
}

// Each update uses its objects. An object that a step neither reads nor writes is in memory at all
// moments, also when the rest of the host is fullest. Objects that do not fit there are read and
// written.
void FillLeastDiskTraffic(const PreparedProblem& prepared, HierarchyPlan& plan) {
  DiskPlan& disk = plan.disk;
  std::uint64_t updated = 0;
  for (const DiskObject& object : disk.objects) {
    if (prepared.updated(object.chunk)) updated += BytesOf(prepared.problem, object);
  }
  const std::uint64_t least = updated - std::min(updated, disk.cache_bytes);
  disk.least_read_bytes = least;
  disk.least_written_bytes = least;
}

void FillHostLedger(const Occupancy& occupancy, const HostFixed& fixed, HierarchyPlan& plan) {
  TierBytes& tier = plan.tiers[static_cast<std::size_t>(Tier::kHost)];
  std::array<std::vector<std::uint64_t>, kNumOwners> bytes;
  const auto of = [&](Owner owner) -> std::vector<std::uint64_t>& {
    return bytes[static_cast<std::size_t>(owner)];
  };
  const bool cached = !plan.disk.plan.steps.empty();
  if (cached) {
    bytes = ResidentBytes(plan.disk.trace, plan.disk.plan, [&](ChunkIndex i) {
      return plan.disk.objects[i].is_state ? Owner::kOptimizerState : Owner::kWeights;
    });
  } else {
    for (std::vector<std::uint64_t>& owner : bytes) {
      owner.assign(occupancy.host_activations.size(), 0);
    }
  }
  std::size_t device_moment = 0;
  for (std::size_t t = 0; t < bytes[0].size(); ++t) {
    if (!cached) {
      of(Owner::kWeights)[t] = fixed.weights;
      of(Owner::kOptimizerState)[t] = fixed.state;
      device_moment = t;
    } else if (!plan.disk.moments[t].is_update) {
      device_moment = plan.disk.moments[t].index;
    }
    of(Owner::kGradients)[t] = fixed.gradients;
    of(Owner::kActivations)[t] = occupancy.host_activations[device_moment];
    of(Owner::kStaging)[t] = fixed.spare + (cached ? fixed.write_buffers : 0);
  }
  FillTier(bytes, tier);
}

// A plan for less memory is also a plan for more. Where sizes differ, the planner is a heuristic
// and sometimes finds a faster plan for less memory. So if planning is cheap, some smaller caches
// are tried; each is smaller by one more of the smallest object.
absl::Status PlanCache(const PlannerOptions& options, bool smaller_too, DiskPlan& disk) {
  absl::StatusOr<Plan> best = MakePlan(disk.trace, options);
  if (!best.ok()) return best.status();
  Trace trace = disk.trace;
  std::uint64_t smallest = trace.arena_bytes;
  for (const Chunk& chunk : trace.chunks) smallest = std::min(smallest, chunk.size_bytes);
  const bool cheap = smaller_too && trace.chunks.size() <= kFewDiskObjects;
  for (int less = 1; cheap && less <= kSmallerCaches && trace.arena_bytes > smallest; ++less) {
    trace.arena_bytes -= smallest;
    absl::StatusOr<Plan> smaller = MakePlan(trace, options);
    if (!smaller.ok()) break;  // the objects of one moment no longer fit
    if (smaller->predicted_step_seconds >= best->predicted_step_seconds) continue;
    // It is a plan for all of the memory, so the bounds of the full plan apply to it.
    smaller->trace_hash = best->trace_hash;
    smaller->lower_bound_bytes = best->lower_bound_bytes;
    smaller->step_lower_bound_seconds = best->step_lower_bound_seconds;
    best = *std::move(smaller);
  }
  disk.plan = *std::move(best);
  return absl::OkStatus();
}

absl::Status PlanDisk(const PreparedProblem& prepared, const Occupancy& occupancy,
                      const HostFixed& fixed, HierarchyPlan& plan) {
  const Machine& machine = prepared.problem.machine;
  DiskTrace(prepared, occupancy, fixed, plan).Build();
  DiskPlan& disk = plan.disk;
  const std::uint64_t least = LeastHostBytes(disk.trace);
  if (least > machine.host_bytes) {
    const std::uint64_t missing = least - machine.host_bytes;
    plan.lacking[static_cast<std::size_t>(Tier::kHost)] = missing;
    plan.remedies.push_back({Tier::kHost, missing});
    return absl::OkStatus();
  }
  PlannerOptions options;
  options.weights_change_between_iterations = false;
  options.max_lookahead_moments = kDiskLookaheadMoments;
  options.alignment_bytes = kDiskAlignmentBytes;
  disk.used = true;
  // The disk is far slower than memory, so the fewest bytes nearly always take the least time, and
  // they are found at once.
  options.objective = Objective::kBytes;
  if (absl::Status status =
          PlanCache(options, !prepared.without.Has(HierarchyPart::kSmallerCaches), disk);
      !status.ok())
    return status;
  FillDiskTraffic(prepared, plan);
  plan.traffic.host_memory += plan.traffic.disk_read + plan.traffic.disk_written;
  disk.cache_bytes = machine.host_bytes - fixed.gradients - fixed.spare - fixed.write_buffers -
                     fixed.largest_activations;
  FillLeastDiskTraffic(prepared, plan);
  plan.seconds.disk = disk.plan.predicted_step_seconds - disk.plan.compute_seconds;
  plan.seconds.step += plan.seconds.disk;
  if (disk.disk_bytes > machine.disk_bytes) {
    const std::uint64_t missing = disk.disk_bytes - machine.disk_bytes;
    plan.lacking[static_cast<std::size_t>(Tier::kDisk)] = missing;
    plan.remedies.push_back({Tier::kDisk, missing});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status PlanHostAndDisk(const PreparedProblem& prepared, const Occupancy& occupancy,
                             HierarchyPlan& plan) {
  const Machine& machine = prepared.problem.machine;
  const HostFixed fixed = FixedOf(prepared, occupancy, plan);
  plan.tiers[static_cast<std::size_t>(Tier::kHost)].limit = machine.host_bytes;
  plan.tiers[static_cast<std::size_t>(Tier::kDisk)].limit = machine.disk_bytes;
  const std::uint64_t all =
      fixed.weights + fixed.state + fixed.gradients + fixed.spare + fixed.largest_activations;
  const bool device_fits = plan.lacking[static_cast<std::size_t>(Tier::kDevice)] == 0;
  if (!device_fits) {
    plan.remedies.push_back({Tier::kDevice, plan.lacking[static_cast<std::size_t>(Tier::kDevice)]});
  }
  if (all > machine.host_bytes) {
    const std::uint64_t missing = all - machine.host_bytes;
    if (device_fits && machine.disk_read_bytes_per_second > 0) {
      if (absl::Status status = PlanDisk(prepared, occupancy, fixed, plan); !status.ok()) {
        return status;
      }
      const bool disk_is_short = plan.lacking[static_cast<std::size_t>(Tier::kDisk)] > 0;
      if (disk_is_short) plan.remedies.insert(plan.remedies.begin(), {Tier::kHost, missing});
    } else if (machine.disk_read_bytes_per_second <= 0) {
      plan.lacking[static_cast<std::size_t>(Tier::kHost)] = missing;
      plan.remedies.push_back({Tier::kHost, missing});
    }
  }
  FillHostLedger(occupancy, fixed, plan);
  return absl::OkStatus();
}

void RateDiskLife(const Machine& machine, HierarchyPlan& plan) {
  if (!plan.disk.used) return;
  const auto ranks = static_cast<double>(machine.ranks_on_node);
  const double per_step = static_cast<double>(plan.traffic.disk_written) * ranks;
  if (per_step <= 0) {
    plan.disk.life_days = std::numeric_limits<double>::infinity();
    return;
  }
  if (machine.disk_endurance_bytes <= 0) return;
  const double steps_per_day = kSecondsPerDay / plan.seconds.step;
  plan.disk.life_days = machine.disk_endurance_bytes / (per_step * steps_per_day);
  plan.disk.wears_out_soon = plan.disk.life_days < kLeastDiskLifeDays;
}

}  // namespace geminid::planner
