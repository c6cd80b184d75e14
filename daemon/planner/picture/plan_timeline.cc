#include "daemon/planner/picture/plan_timeline.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace geminid::planner {
namespace {

// A chunk's extent, from the moment that issued its load.
struct Extent {
  std::uint64_t offset = 0;
  Moment begin = 0;
  std::uint64_t deadline = 0;  // the next iteration's moments follow this one's
};

// Divides each chunk's stays in the iteration into pieces.
class PieceBuilder {
 public:
  PieceBuilder(const Trace& trace, const Plan& plan)
      : trace_(trace),
        plan_(plan),
        length_(static_cast<Moment>(trace.moments.size())),
        open_(trace.chunks.size()) {}

  std::vector<StaySpan> Pieces() {
    const std::vector<Moment> arriving = DeadlinesOfTheNextIteration();
    for (const Placement& placement : plan_.resident_at_start) {
      open_[placement.chunk] = {placement.device_offset, 0, arriving[placement.chunk]};
    }
    for (Moment t = 0; t < length_ && t < plan_.steps.size(); ++t) {
      for (const Load& load : plan_.steps[t].loads) Begin(load, t);
      for (const Drop& drop : plan_.steps[t].drops) End(drop, t);
    }
    for (ChunkIndex chunk = 0; chunk < open_.size(); ++chunk) Close(chunk, length_);
    const auto key = [](const StaySpan& piece) {
      return std::tuple(piece.begin, piece.device_offset, piece.chunk, piece.end);
    };
    std::ranges::sort(pieces_, {}, key);
    return std::move(pieces_);
  }

 private:
  // By chunk: the moment until which a chunk that is present at the start still arrives.
  std::vector<Moment> DeadlinesOfTheNextIteration() const {
    std::vector<Moment> deadlines(open_.size(), 0);
    for (Moment t = 0; t < plan_.steps.size(); ++t) {
      for (const Load& load : plan_.steps[t].loads) {
        if (load.deadline_moment < t) deadlines[load.chunk] = load.deadline_moment;
      }
    }
    return deadlines;
  }
  void Begin(const Load& load, Moment t) {
    Close(load.chunk, t);
    const std::uint64_t deadline = load.deadline_moment;
    open_[load.chunk] = {load.device_offset, t, deadline < t ? deadline + length_ : deadline};
  }
  void End(const Drop& drop, Moment t) {
    const std::optional<Extent> extent = open_[drop.chunk];
    Close(drop.chunk, t + 1);
    if (!extent.has_value() || !drop.becomes_gradient) return;
    const bool next_iteration = drop.free_moment <= t;
    Add(drop.chunk, Occupant::kLeaving, extent->offset, t + 1,
        next_iteration ? length_ : drop.free_moment);
    if (next_iteration) Add(drop.chunk, Occupant::kLeaving, extent->offset, 0, drop.free_moment);
  }
  void Close(ChunkIndex chunk, Moment end) {
    const std::optional<Extent> extent = std::exchange(open_[chunk], std::nullopt);
    if (!extent.has_value()) return;
    const auto there =
        static_cast<Moment>(std::clamp<std::uint64_t>(extent->deadline, extent->begin, end));
    Add(chunk, Occupant::kArriving, extent->offset, extent->begin, there);
    Add(chunk, Occupant::kWeights, extent->offset, there, end);
  }
  void Add(ChunkIndex chunk, Occupant occupant, std::uint64_t offset, Moment begin, Moment end) {
    if (begin < end) pieces_.push_back({chunk, occupant, offset, begin, end});
  }

  const Trace& trace_;
  const Plan& plan_;
  const Moment length_;
  std::vector<std::optional<Extent>> open_;
  std::vector<StaySpan> pieces_;
};

void AddOccupants(const PlanTimeline& timeline, std::vector<TimelineRow>* rows) {
  // For each occupant, the bytes that come at a moment less the bytes that go; modulo 2^64.
  std::vector<std::array<std::uint64_t, kOccupants>> changes(rows->size() + 1);
  for (const StaySpan& piece : timeline.pieces) {
    const std::uint64_t bytes = timeline.chunks[piece.chunk].size_bytes;
    changes[piece.begin][static_cast<std::size_t>(piece.occupant)] += bytes;
    changes[piece.end][static_cast<std::size_t>(piece.occupant)] -= bytes;
  }
  std::array<std::uint64_t, kOccupants> now{};
  for (std::size_t t = 0; t < rows->size(); ++t) {
    for (std::size_t i = 0; i < kOccupants; ++i) {
      now[i] += changes[t][i];
      (*rows)[t].bytes[i] += now[i];
    }
  }
}

void AddMoves(const Trace& trace, const Plan& plan, std::vector<TimelineRow>* rows) {
  for (std::size_t t = 0; t < rows->size() && t < plan.steps.size(); ++t) {
    for (const Load& load : plan.steps[t].loads) {
      (*rows)[t].up_bytes += trace.chunks[load.chunk].transfer_bytes;
    }
    for (const Drop& drop : plan.steps[t].drops) {
      if (!drop.becomes_gradient) continue;
      (*rows)[t].down_bytes += trace.chunks[drop.chunk].gradient_bytes;
    }
  }
  for (const Stall& stall : plan.stalls) {
    if (rows->empty()) break;
    const std::size_t t = std::min<std::size_t>(stall.moment, rows->size() - 1);
    (*rows)[t].stall_seconds += stall.seconds;
  }
}

}  // namespace

std::uint64_t TimelineRow::TotalBytes() const {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

PlanTimeline TimelineOf(const Trace& trace, const Plan& plan) {
  PlanTimeline timeline;
  timeline.arena_bytes = trace.arena_bytes;
  timeline.chunks = trace.chunks;
  timeline.pieces = PieceBuilder(trace, plan).Pieces();
  for (const MomentTrace& moment : trace.moments) {
    TimelineRow row;
    row.first = row.last = static_cast<Moment>(timeline.rows.size());
    row.bytes[static_cast<std::size_t>(Occupant::kActivations)] = moment.workspace_bytes;
    timeline.rows.push_back(row);
  }
  AddOccupants(timeline, &timeline.rows);
  AddMoves(trace, plan, &timeline.rows);
  return timeline;
}

std::vector<TimelineRow> Grouped(const std::vector<TimelineRow>& rows, std::size_t most) {
  const std::size_t per_group = (rows.size() + most - 1) / most;
  std::vector<TimelineRow> groups;
  for (std::size_t t = 0; t < rows.size(); ++t) {
    const TimelineRow& row = rows[t];
    if (t % per_group == 0) {
      groups.push_back(row);
      continue;
    }
    TimelineRow& group = groups.back();
    group.last = row.last;
    if (row.TotalBytes() > group.TotalBytes()) group.bytes = row.bytes;
    group.up_bytes += row.up_bytes;
    group.down_bytes += row.down_bytes;
    group.stall_seconds += row.stall_seconds;
  }
  return groups;
}

}  // namespace geminid::planner
