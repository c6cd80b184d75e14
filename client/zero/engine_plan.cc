// From the sample to the plan: the same on every rank.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "client/zero/engine_impl.h"
#include "client/zero/extent.h"

namespace geminid::zero {
namespace {

// A reduced chunk leaves during the operator after the one that completed its gradient.
constexpr uint32_t kDrainMoments = 1;

// Of the margin: the rest is for weights that stay, and for activations that grow.
constexpr double kAutoStateShare = 0.5;

PlacementPolicy ToPolicy(Placement placement) {
  switch (placement) {
    case Placement::kDevice:
      return PlacementPolicy::kDevice;
    case Placement::kCpu:
      return PlacementPolicy::kCpu;
    case Placement::kAuto:
      return PlacementPolicy::kAuto;
  }
  return PlacementPolicy::kNone;
}

bool SameLoad(const PlannedLoad& a, const PlannedLoad& b) {
  return a.index == b.index && a.device_offset == b.device_offset &&
         a.deadline_moment == b.deadline_moment;
}

bool SameDrop(const PlannedDrop& a, const PlannedDrop& b) {
  return a.index == b.index && a.becomes_gradient == b.becomes_gradient;
}

bool SameMoment(const PlannedMoment& a, const PlannedMoment& b) {
  return std::ranges::equal(a.loads, b.loads, SameLoad) &&
         std::ranges::equal(a.drops, b.drops, SameDrop);
}

bool SamePlacement(const PlannedPlacement& a, const PlannedPlacement& b) {
  return a.index == b.index && a.device_offset == b.device_offset;
}

// Whether the plans differ in nothing but predictions: their hashes cover those too.
bool SameMoves(const Plan& a, const Plan& b) {
  return std::ranges::equal(a.moments, b.moments, SameMoment) &&
         std::ranges::equal(a.resident_at_start, b.resident_at_start, SamePlacement);
}

}  // namespace

Trace EngineImpl::MakeTrace() const {
  Trace trace;
  // Whole extents only: a plan's offsets are aligned, the arena's end need not be.
  trace.arena_bytes =
      (session_->arena_bytes() - plan_base_bytes_) / kExtentAlignmentBytes * kExtentAlignmentBytes;
  const uint64_t world = static_cast<uint64_t>(communicator_->WorldSize());
  for (uint32_t c = 0; c < layout_.chunks.size(); ++c) {
    const ChunkShape& chunk = layout_.chunks[c];
    TraceChunk traced;
    traced.chunk = gathered_[c];
    traced.device_bytes = RoundUpToExtent(chunk.elements * element_bytes());
    const uint64_t shard_bytes = chunk.elements / world * element_bytes();
    traced.transfer_bytes = store_->on_device(c) ? 0 : shard_bytes;
    traced.gradient_bytes = store_->on_device(c) || !chunk.trainable ? 0 : shard_bytes;
    traced.frozen = !chunk.trainable;
    trace.chunks.push_back(traced);
  }
  for (const Moment& moment : recorder_.Moments()) {
    TraceMoment traced;
    traced.workspace_bytes = RoundUpToExtent(moment.workspace_bytes);
    traced.compute_seconds = moment.compute_seconds;
    for (const Moment::Use& use : moment.uses) traced.uses.push_back({use.chunk, use.invalidates});
    trace.moments.push_back(std::move(traced));
  }
  const double measured = mover_->HostToDeviceBytesPerSecond();
  // With the state on the device nothing crosses the link, so its speed is of no account.
  const double speed = measured > 0 ? measured : 1e9;
  trace.link.host_to_device_bytes_per_second = speed;
  trace.link.device_to_host_bytes_per_second = speed;
  return trace;
}

absl::Status EngineImpl::CheckSameOnAllRanks(uint64_t value, const char* what) {
  std::vector<int64_t> least = {static_cast<int64_t>(value)};
  std::vector<int64_t> most = least;
  absl::Status status = control_communicator_->AllReduce(least, least, collectives::ReduceOp::kMin);
  if (status.ok()) {
    status = control_communicator_->AllReduce(most, most, collectives::ReduceOp::kMax);
  }
  if (status.ok() && least != most) {
    return absl::FailedPreconditionError(
        absl::StrCat("the ranks disagree about ", what,
                     "; all ranks must run the same operators in the same order"));
  }
  return status;
}

// What differs between ranks becomes the worst of all: the smallest arena, the largest workspace,
// the slowest link and operator.
absl::Status EngineImpl::AgreeOnTrace(Trace* trace) {
  base::Fnv1a structure;
  for (const TraceMoment& moment : trace->moments) {
    structure.Add(moment.uses.size());
    for (const TraceUse& use : moment.uses) {
      structure.Add(uint64_t{use.index} << 1 | use.invalidates);
    }
  }
  absl::Status status = CheckSameOnAllRanks(structure.value(), "the order of operators");
  if (!status.ok()) return status;
  std::vector<int64_t> least = {static_cast<int64_t>(trace->arena_bytes)};
  std::vector<double> speed = {trace->link.host_to_device_bytes_per_second};
  std::vector<int64_t> workspace;
  std::vector<double> seconds;
  for (const TraceMoment& moment : trace->moments) {
    workspace.push_back(static_cast<int64_t>(moment.workspace_bytes));
    seconds.push_back(moment.compute_seconds);
  }
  using collectives::ReduceOp;
  collectives::Communicator& ranks = *control_communicator_;
  if (status = ranks.AllReduce(least, least, ReduceOp::kMin); !status.ok()) return status;
  if (status = ranks.AllReduce(speed, speed, ReduceOp::kMin); !status.ok()) return status;
  if (status = ranks.AllReduce(workspace, workspace, ReduceOp::kMax); !status.ok()) return status;
  if (status = ranks.AllReduce(seconds, seconds, ReduceOp::kMax); !status.ok()) return status;
  trace->arena_bytes = static_cast<uint64_t>(least[0]);
  trace->link.host_to_device_bytes_per_second = speed[0];
  trace->link.device_to_host_bytes_per_second = speed[0];
  for (size_t m = 0; m < trace->moments.size(); ++m) {
    trace->moments[m].workspace_bytes = static_cast<uint64_t>(workspace[m]);
    trace->moments[m].compute_seconds = seconds[m];
  }
  return absl::OkStatus();
}

// The order of the next forward pass, then what no operator uses.
std::vector<uint32_t> EngineImpl::FirstUseOrder() const {
  std::vector<uint32_t> order = recorder_.FirstUseOrder();
  std::vector<bool> listed(chunks_.size(), false);
  for (uint32_t chunk : order) listed[chunk] = true;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (!listed[chunk]) order.push_back(chunk);
  }
  return order;
}

void EngineImpl::SetUpdateOrder() {
  update_order_ = FirstUseOrder();
  std::erase_if(update_order_, [this](uint32_t chunk) { return !layout_.chunks[chunk].trainable; });
}

// --- where the optimizer's state lives -----------------------------------------------------------

StatePlacementProblem EngineImpl::MakeStatePlacementProblem(const Trace& trace) const {
  StatePlacementProblem problem;
  problem.trace = trace;
  problem.order = FirstUseOrder();
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    problem.state_bytes.push_back(store_->device_bytes_of(chunk));
  }
  problem.spare_bytes = store_->device_spare_bytes();
  return problem;
}

uint64_t EngineImpl::StateBudgetBytes(const StatePlacementProblem& problem) const {
  const double share =
      options_.state_placement == StatePlacement::kAuto ? kAutoStateShare : options_.state_share;
  const uint64_t margin = MarginBytes(problem.trace, kDrainMoments);
  return static_cast<uint64_t>(share * static_cast<double>(margin));
}

absl::StatusOr<Plan> EngineImpl::RequestPlan(const Trace& trace) {
  PlanRequest request;
  request.policy = ToPolicy(options_.placement);
  request.drain_moments = kDrainMoments;
  request.max_lookahead_moments = static_cast<uint32_t>(options_.max_lookahead_moments);
  return Waited(StallCause::kDaemon, [&] { return session_->MakePlan(trace, request); });
}

absl::Status EngineImpl::MoveStateToDevice(std::span<const uint32_t> chunks) {
  if (chunks.empty()) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(updater_->WaitIdle());
  // It reads the state where it is; what became of it is said by WaitSnapshot.
  (void)snapshotter_->Wait();
  GEMINID_RETURN_IF_ERROR(store_->MoveToDevice(chunks));
  plan_base_bytes_ = store_->device_bytes();
  meter_.AddModel(static_cast<int64_t>(plan_base_bytes_));
  return ReadHostBytes();
}

// Decided on what all ranks agreed on, so all decide alike: a plan is a pure function of the trace.
absl::StatusOr<size_t> EngineImpl::CountStateOnDevice(const StatePlacementProblem& problem) {
  const bool automatic = options_.state_placement == StatePlacement::kAuto;
  if (automatic && EverythingFits(problem)) return problem.order.size();
  size_t count = 0;
  std::optional<Plan> best;
  for (size_t candidate : CandidateCounts(CountThatFits(problem, StateBudgetBytes(problem)))) {
    absl::StatusOr<Plan> plan = RequestPlan(WithStateOnDevice(problem, candidate));
    if (absl::IsResourceExhausted(plan.status()) && candidate > 0) break;
    if (!plan.ok()) return plan.status();
    if (automatic && best.has_value() && !IsBetter(*plan, *best)) continue;
    best = *std::move(plan);
    count = candidate;
  }
  return count;
}

// Once, before the first plan in force. The last plan asked for is the one taken, so that it is the
// one that the daemon explains.
absl::Status EngineImpl::PlaceState(Trace* trace) {
  const bool movable = options_.placement == Placement::kAuto &&
                       options_.state_placement != StatePlacement::kHost &&
                       !store_->any_on_device();
  if (std::exchange(state_placed_, true) || !movable) return absl::OkStatus();
  const StatePlacementProblem problem = MakeStatePlacementProblem(*trace);
  absl::StatusOr<size_t> count = CountStateOnDevice(problem);
  if (!count.ok()) return count.status();
  *trace = WithStateOnDevice(problem, *count);
  return MoveStateToDevice(std::span(problem.order).first(*count));
}

// Room above what was seen, if growth has been seen and there is room at all.
absl::StatusOr<Plan> EngineImpl::RequestPlanWithMargin(Trace* trace) {
  const uint64_t margin_bytes = controller_.has_value() ? controller_->margin_bytes() : 0;
  Trace wider = *trace;
  for (size_t m = 0; m < wider.moments.size(); ++m) {
    uint64_t& bytes = wider.moments[m].workspace_bytes;
    bytes = std::max(bytes, RoundUpToExtent(first_workspace_bytes_[m] + margin_bytes));
    if (bytes > wider.arena_bytes) return RequestPlan(*trace);
  }
  absl::StatusOr<Plan> plan = RequestPlan(wider);
  if (absl::IsResourceExhausted(plan.status())) return RequestPlan(*trace);
  if (plan.ok()) *trace = std::move(wider);
  return plan;
}

absl::Status EngineImpl::MakePlanFromSample() {
  GEMINID_RETURN_IF_ERROR(mover_->WaitIdle());
  Trace trace = MakeTrace();
  GEMINID_RETURN_IF_ERROR(Waited(StallCause::kCollective, [&] { return AgreeOnTrace(&trace); }));
  GEMINID_RETURN_IF_ERROR(PlaceState(&trace));
  if (first_workspace_bytes_.size() != trace.moments.size() ||
      resampled_for_ == ReplanCause::kAccessOrder) {
    first_workspace_bytes_.clear();
    for (const TraceMoment& moment : trace.moments) {
      first_workspace_bytes_.push_back(moment.workspace_bytes);
    }
  }
  absl::StatusOr<Plan> plan = RequestPlanWithMargin(&trace);
  if (!plan.ok()) return plan.status();
  SetUpdateOrder();
  GEMINID_RETURN_IF_ERROR(PutInForce(trace, *std::move(plan)));
  ++replans_[static_cast<size_t>(std::exchange(resampled_for_, ReplanCause::kNone))];
  return TellController();
}

// Between micro-batches. What the plan before left where this one wants it stays.
absl::Status EngineImpl::PutInForce(const Trace& trace, Plan plan) {
  GEMINID_RETURN_IF_ERROR(Waited(StallCause::kCollective,
                                 [&] { return CheckSameOnAllRanks(plan.plan_hash, "the plan"); }));
  planned_moments_ = trace.moments;
  planned_chunks_.clear();
  for (const TraceMoment& moment : trace.moments) {
    std::vector<uint32_t> chunks;
    for (const TraceUse& use : moment.uses) chunks.push_back(use.index);
    planned_chunks_.push_back(std::move(chunks));
  }
  const bool same = plan_.has_value() && SameMoves(*plan_, plan);
  plan_ = std::move(plan);
  if (same) return absl::OkStatus();
  ++plans_made_;
  resident_at_start_.assign(chunks_.size(), false);
  for (const PlannedPlacement& placement : plan_->resident_at_start) {
    resident_at_start_[placement.index] = session_->DeviceOffset(gathered_[placement.index]) ==
                                          plan_base_bytes_ + placement.device_offset;
  }
  DropIdleChunks();
  GEMINID_RETURN_IF_ERROR(mover_->WaitIdle());
  // As at the end of every planned micro-batch: what stays and the next first allocation fit.
  const uint64_t reserved =
      std::max(workspace_->extent_bytes(), planned_moments_.back().workspace_bytes);
  GEMINID_RETURN_IF_ERROR(SetReservation(reserved));
  for (const PlannedPlacement& placement : plan_->resident_at_start) {
    resident_at_start_[placement.index] = true;
    if (!mover_->NeedsGather(placement.index)) continue;
    mover_->Gather(placement.index, plan_base_bytes_ + placement.device_offset,
                   TransferCause::kPrefetch);
  }
  return absl::OkStatus();
}

}  // namespace geminid::zero
