// From the sample to the plan: the same on every rank.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/zero/engine_impl.h"
#include "client/zero/extent.h"

namespace geminid::zero {
namespace {

// A reduced chunk leaves during the operator after the one that completed its gradient.
constexpr uint32_t kDrainMoments = 1;

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

}  // namespace

absl::StatusOr<Trace> EngineImpl::MakeTrace() {
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
    traced.transfer_bytes = store_->on_device() ? 0 : shard_bytes;
    traced.gradient_bytes = store_->on_device() || !chunk.trainable ? 0 : shard_bytes;
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
  uint64_t structure = trace->moments.size();
  for (const TraceMoment& moment : trace->moments) {
    for (const TraceUse& use : moment.uses) {
      // FNV-1a, over what must be equal.
      structure = (structure ^ (uint64_t{use.index} << 1 | use.invalidates)) * 1099511628211ull;
    }
    structure = (structure ^ 0xff) * 1099511628211ull;
  }
  absl::Status status = CheckSameOnAllRanks(structure, "the order of operators");
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

// With room for the state, every gathered chunk and the activations, nothing needs to cross the
// link at all. Decided on what all ranks agreed on, so all decide alike.
absl::Status EngineImpl::MoveStateIfEverythingFits(Trace* trace) {
  if (options_.placement != Placement::kAuto || store_->on_device()) return absl::OkStatus();
  uint64_t needed = store_->device_bytes_needed();
  for (const TraceChunk& chunk : trace->chunks) needed += chunk.device_bytes;
  uint64_t workspace = 0;
  for (const TraceMoment& moment : trace->moments) {
    workspace = std::max(workspace, moment.workspace_bytes);
  }
  if (needed + workspace > trace->arena_bytes) return absl::OkStatus();
  if (absl::Status status = updater_->WaitIdle(); !status.ok()) return status;
  if (absl::Status status = store_->MoveToDevice(); !status.ok()) return status;
  plan_base_bytes_ = store_->device_bytes();
  meter_.AddModel(static_cast<int64_t>(plan_base_bytes_));
  trace->arena_bytes -= plan_base_bytes_;
  for (TraceChunk& chunk : trace->chunks) {
    chunk.transfer_bytes = 0;
    chunk.gradient_bytes = 0;
  }
  return absl::OkStatus();
}

// The order of the next forward pass, then what no operator uses.
void EngineImpl::SetUpdateOrder() {
  std::vector<uint32_t> order = recorder_.FirstUseOrder();
  std::vector<bool> listed(chunks_.size(), false);
  for (uint32_t chunk : order) listed[chunk] = true;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (!listed[chunk]) order.push_back(chunk);
  }
  update_order_.clear();
  for (uint32_t chunk : order) {
    if (layout_.chunks[chunk].trainable) update_order_.push_back(chunk);
  }
}

absl::Status EngineImpl::MakePlanFromSample() {
  if (absl::Status status = mover_->WaitIdle(); !status.ok()) return status;
  absl::StatusOr<Trace> trace = MakeTrace();
  if (!trace.ok()) return trace.status();
  if (absl::Status status = AgreeOnTrace(&*trace); !status.ok()) return status;
  if (absl::Status status = MoveStateIfEverythingFits(&*trace); !status.ok()) return status;
  PlanRequest request;
  request.policy = ToPolicy(options_.placement);
  request.drain_moments = kDrainMoments;
  request.max_lookahead_moments = static_cast<uint32_t>(options_.max_lookahead_moments);
  absl::StatusOr<Plan> plan = session_->MakePlan(*trace, request);
  if (!plan.ok()) return plan.status();
  if (absl::Status status = CheckSameOnAllRanks(plan->plan_hash, "the plan"); !status.ok()) {
    return status;
  }
  planned_workspace_bytes_.clear();
  planned_chunks_.clear();
  for (const TraceMoment& moment : trace->moments) {
    planned_workspace_bytes_.push_back(moment.workspace_bytes);
    std::vector<uint32_t> chunks;
    for (const TraceUse& use : moment.uses) chunks.push_back(use.index);
    planned_chunks_.push_back(std::move(chunks));
  }
  SetUpdateOrder();
  resident_at_start_.assign(chunks_.size(), false);
  for (const PlannedPlacement& placement : plan->resident_at_start) {
    resident_at_start_[placement.index] = true;
    mover_->Gather(placement.index, plan_base_bytes_ + placement.device_offset,
                   TransferCause::kPrefetch);
  }
  plan_ = *std::move(plan);
  ++plans_made_;
  recorder_.Clear();
  return absl::OkStatus();
}

}  // namespace geminid::zero
