#include "tools/sim/policies/schedule.h"

#include <algorithm>
#include <cstddef>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "proto/shm/lease.h"

namespace geminid::sim {
namespace {

using planner::ChunkIndex;
using planner::Trace;

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InternalError(absl::StrCat("invalid schedule: ", parts...));
}

// Follows a schedule through the trace.
class Follower {
 public:
  Follower(const Trace& trace, const Schedule& schedule)
      : trace_(trace), schedule_(schedule), chunks_(trace.chunks.size()) {}

  absl::Status Run() {
    for (const planner::Placement& placement : schedule_.resident_at_start) {
      if (absl::Status status = Put(placement.chunk, placement.device_offset); !status.ok()) {
        return status;
      }
    }
    // Runs twice: what the first pass leaves on the device must not disturb the repetition.
    for (uint64_t iteration = 0; iteration < 2 * schedule_.iterations; ++iteration, ++iteration_) {
      for (size_t t = 0; t < trace_.moments.size(); ++t) {
        const size_t n = iteration % schedule_.iterations * trace_.moments.size() + t;
        if (absl::Status status = RunMoment(t, schedule_.moments[n]); !status.ok()) return status;
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Chunk {
    bool present = false;
    uint64_t offset = 0;
    uint64_t loaded_in = 0;
  };

  absl::Status Put(ChunkIndex chunk, uint64_t offset) {
    if (chunk >= chunks_.size()) return Bad("there is no chunk ", chunk);
    if (chunks_[chunk].present) return Bad("chunk ", chunk, " is put into the arena twice");
    const uint64_t end = offset + ExtentBytes(trace_.chunks[chunk].size_bytes);
    const auto after = extents_.lower_bound(offset);
    const bool overlaps = (after != extents_.end() && after->first < end) ||
                          (after != extents_.begin() && std::prev(after)->second > offset);
    if (overlaps) return Bad("chunk ", chunk, " is put on top of another");
    extents_[offset] = end;
    chunks_[chunk] = {true, offset, iteration_};
    occupied_ += ExtentBytes(trace_.chunks[chunk].size_bytes);
    return absl::OkStatus();
  }

  absl::Status Remove(ChunkIndex chunk, size_t t) {
    if (chunk >= chunks_.size() || !chunks_[chunk].present) {
      return Bad("chunk ", chunk, " is dropped at moment ", t, " but is not there");
    }
    extents_.erase(chunks_[chunk].offset);
    chunks_[chunk].present = false;
    occupied_ -= ExtentBytes(trace_.chunks[chunk].size_bytes);
    return absl::OkStatus();
  }

  absl::Status CheckRoom(size_t t) const {
    const uint64_t capacity = CapacityBytes(trace_, t);
    const uint64_t used = schedule_.counts_bytes_only ? occupied_
                          : extents_.empty()          ? 0
                                                      : extents_.rbegin()->second;
    if (used <= capacity) return absl::OkStatus();
    return Bad("chunks reach ", used, " of ", capacity, " bytes at moment ", t);
  }

  absl::Status RunMoment(size_t t, const ScheduledMoment& moment) {
    for (const Eviction& eviction : moment.evictions) {
      if (absl::Status status = Remove(eviction.chunk, t); !status.ok()) return status;
    }
    for (const ScheduledLoad& load : moment.loads) {
      if (absl::Status status = Put(load.chunk, load.device_offset); !status.ok()) return status;
    }
    if (absl::Status status = CheckRoom(t); !status.ok()) return status;
    for (const planner::Use& use : trace_.moments[t].uses) {
      const Chunk& chunk = chunks_[use.chunk];
      if (!chunk.present) return Bad("chunk ", use.chunk, " is not there at moment ", t);
      if (!trace_.chunks[use.chunk].frozen && chunk.loaded_in != iteration_) {
        return Bad("chunk ", use.chunk, " is stale at moment ", t);
      }
    }
    for (const planner::Use& use : trace_.moments[t].uses) {
      if (!use.invalidates) continue;
      if (absl::Status status = Remove(use.chunk, t); !status.ok()) return status;
    }
    for (const ChunkIndex chunk : moment.drops) {
      if (absl::Status status = Remove(chunk, t); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  const Trace& trace_;
  const Schedule& schedule_;
  std::vector<Chunk> chunks_;
  std::map<uint64_t, uint64_t> extents_;  // begin to end
  uint64_t occupied_ = 0;
  uint64_t iteration_ = 0;
};

}  // namespace

ScheduledBytes BytesOf(const Trace& trace, const Schedule& schedule) {
  ScheduledBytes bytes;
  for (const ScheduledMoment& moment : schedule.moments) {
    for (const ScheduledLoad& load : moment.loads) {
      bytes.up += static_cast<double>(trace.chunks[load.chunk].transfer_bytes);
    }
    for (const Eviction& eviction : moment.evictions) {
      if (!eviction.copy_back) continue;
      bytes.down += static_cast<double>(trace.chunks[eviction.chunk].transfer_bytes);
    }
  }
  bytes.up /= static_cast<double>(schedule.iterations);
  bytes.down /= static_cast<double>(schedule.iterations);
  for (const planner::MomentTrace& moment : trace.moments) {
    for (const planner::Use& use : moment.uses) {
      if (use.invalidates)
        bytes.down += static_cast<double>(trace.chunks[use.chunk].gradient_bytes);
    }
  }
  return bytes;
}

Schedule FromPlan(const planner::Plan& plan) {
  Schedule schedule;
  schedule.policy = planner::PolicyName(plan.options.policy);
  schedule.moments.resize(plan.steps.size());
  for (size_t t = 0; t < plan.steps.size(); ++t) {
    for (const planner::Load& load : plan.steps[t].loads) {
      schedule.moments[t].loads.push_back(
          {load.chunk, load.device_offset, load.deadline_moment != t});
    }
    for (const planner::Drop& drop : plan.steps[t].drops) {
      if (!drop.becomes_gradient) schedule.moments[t].drops.push_back(drop.chunk);
    }
  }
  schedule.resident_at_start = plan.resident_at_start;
  return schedule;
}

uint64_t ExtentBytes(uint64_t bytes) { return base::RoundUp(bytes, shm::kSlotBytes); }

uint64_t CapacityBytes(const Trace& trace, size_t moment) {
  const uint64_t arena = ExtentBytes(trace.arena_bytes);
  return arena - std::min(arena, ExtentBytes(trace.moments[moment].workspace_bytes));
}

absl::Status CheckSchedule(const Trace& trace, const Schedule& schedule) {
  if (absl::Status status = ValidateTrace(trace); !status.ok()) return status;
  if (schedule.iterations == 0 ||
      schedule.moments.size() != schedule.iterations * trace.moments.size()) {
    return Bad(schedule.moments.size(), " moments are not ", schedule.iterations, " times ",
               trace.moments.size());
  }
  return Follower(trace, schedule).Run();
}

}  // namespace geminid::sim
