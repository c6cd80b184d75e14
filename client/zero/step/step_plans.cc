#include "client/zero/step/step_plans.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/zero/core/extent.h"
#include "client/zero/core/homes.h"

namespace geminid::zero {
namespace {

// A reduced chunk leaves during the moment after the one that completed its gradient. If there is
// no room for both, the next chunk waits until it has left.
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

StepPlans::StepPlans(const EngineSetup& setup, Parts parts)
    : setup_(setup),
      links_(*parts.links),
      director_(*parts.director),
      residency_(*parts.residency),
      store_(*parts.store),
      book_(*parts.book),
      move_state_(std::move(parts.move_state)),
      times_(setup.clock) {
  SetUpdateOrder();
}

Trace StepPlans::MakeTrace(const std::vector<Moment>& moments) const {
  Trace trace;
  // In whole extents: a plan's offsets are aligned, the arena's end need not be.
  trace.arena_bytes = (setup_.session->arena_bytes() - store_.device_bytes()) /
                      kExtentAlignmentBytes * kExtentAlignmentBytes;
  const uint64_t world = static_cast<uint64_t>(setup_.communicator->WorldSize());
  for (uint32_t i = 0; i < setup_.gathered.size(); ++i) {
    const uint32_t owner = book_.owners()[i];
    const ChunkShape& chunk = setup_.layout.chunks[owner];
    TraceChunk traced;
    traced.chunk = setup_.gathered[i];
    traced.device_bytes = RoundUpToExtent(chunk.bytes());
    const uint64_t shard_bytes = store_.on_device(owner) ? 0 : chunk.bytes() / world;
    traced.transfer_bytes = i == owner ? shard_bytes : 0;
    traced.gradient_bytes = chunk.trainable ? shard_bytes : 0;
    traced.frozen = !chunk.trainable;
    trace.chunks.push_back(traced);
  }
  for (const Moment& moment : moments) {
    TraceMoment traced;
    traced.workspace_bytes = RoundUpToExtent(moment.workspace_bytes);
    traced.compute_seconds = moment.compute_seconds;
    for (const Moment::Use& use : moment.uses) traced.uses.push_back({use.chunk, use.invalidates});
    trace.moments.push_back(std::move(traced));
  }
  const double measured = residency_.mover().HostToDeviceBytesPerSecond();
  // With all state on the device nothing crosses the link, so any speed will do.
  const double speed = measured > 0 ? measured : 1e9;
  trace.link.host_to_device_bytes_per_second = speed;
  trace.link.device_to_host_bytes_per_second = speed;
  return trace;
}

// Chunks in the order of the next forward pass, then the chunks that no operator uses.
std::vector<uint32_t> StepPlans::FirstUseOrder() const {
  std::vector<uint32_t> order = director_.training_recorder().FirstUseOrder();
  const size_t chunks = setup_.layout.chunks.size();
  std::erase_if(order, [chunks](uint32_t chunk) { return chunk >= chunks; });
  std::vector<bool> listed(chunks, false);
  for (uint32_t chunk : order) listed[chunk] = true;
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    if (!listed[chunk]) order.push_back(chunk);
  }
  return order;
}

void StepPlans::SetUpdateOrder() {
  update_order_ = FirstUseOrder();
  std::erase_if(update_order_,
                [this](uint32_t chunk) { return !setup_.layout.chunks[chunk].trainable; });
}

// --- where the optimizer's state lives -----------------------------------------------------------

StatePlacementProblem StepPlans::MakeStatePlacementProblem(const Trace& trace) const {
  StatePlacementProblem problem;
  problem.trace = setup_.weights_stay() ? WithWhatStays(trace, setup_.staying_weights()) : trace;
  problem.order = FirstUseOrder();
  std::erase_if(problem.order, [this](uint32_t chunk) { return store_.chunk_on_disk(chunk); });
  if (setup_.state_stays(store_.any_on_disk())) problem.order.clear();
  for (uint32_t chunk = 0; chunk < setup_.layout.chunks.size(); ++chunk) {
    problem.state_bytes.push_back(store_.device_bytes_of(chunk));
    problem.gradients.push_back(book_.StorageOf(chunk));
  }
  problem.spare_bytes = store_.device_spare_bytes();
  return problem;
}

uint64_t StepPlans::StateBudgetBytes(const StatePlacementProblem& problem) const {
  const double share = setup_.options.state_placement == StatePlacement::kAuto
                           ? kAutoStateShare
                           : setup_.options.state_share;
  const uint64_t margin = MarginBytes(problem.trace, kDrainMoments);
  return static_cast<uint64_t>(share * static_cast<double>(margin));
}

absl::StatusOr<Plan> StepPlans::RequestPlan(const Trace& trace, bool weights_change) {
  const bool stays = weights_change && setup_.weights_stay();
  PlanRequest request;
  request.weights_change_between_iterations = weights_change && !stays;
  request.policy = ToPolicy(setup_.options.placement);
  request.drain_moments = kDrainMoments;
  request.max_lookahead_moments = static_cast<uint32_t>(setup_.options.max_lookahead_moments);
  const Trace of = stays ? WithWhatStays(trace, setup_.staying_weights()) : trace;
  const auto make = [&] { return setup_.session->MakePlan(of, request); };
  absl::StatusOr<Plan> plan = setup_.Waited(StallCause::kDaemon, make);
  if (absl::IsResourceExhausted(plan.status())) {
    request.drain_moments = 0;
    absl::StatusOr<Plan> tighter = setup_.Waited(StallCause::kDaemon, make);
    if (!absl::IsResourceExhausted(tighter.status())) plan = std::move(tighter);
  }
  // If a chunk's place is in another one's way, the planner may move the chunk in between.
  if (stays && plan.ok() && !KeepsStayingWeights(*plan, setup_.staying_weights())) {
    return absl::ResourceExhaustedError(
        "the device has no room for weights that stay from one update to the next beside the "
        "chunks that are loaded and evicted; use ZeRO stage 3, or more device memory");
  }
  return plan;
}

// All ranks decide alike: the trace is agreed, and a plan is a pure function of the trace.
absl::StatusOr<size_t> StepPlans::CountStateOnDevice(const StatePlacementProblem& problem) {
  const bool automatic = setup_.options.state_placement == StatePlacement::kAuto;
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

// Called before the first plan only. The last plan that is requested is the one that is put in
// force, because the daemon explains the last one.
absl::Status StepPlans::PlaceState(Trace* trace) {
  const StatePlacement wanted = setup_.options.state_placement;
  const bool none = wanted == StatePlacement::kHost || wanted == StatePlacement::kDisk ||
                    (wanted == StatePlacement::kStreamed && setup_.options.state_share == 0);
  const bool movable =
      setup_.options.placement == Placement::kAuto && !none && !store_.any_on_device();
  if (std::exchange(state_placed_, true) || !movable) return absl::OkStatus();
  // State goes to the arena's bottom, where blocks of workspace may lie that found no other place.
  std::vector<double> in_the_way = {residency_.AnythingLies() ? 1.0 : 0.0};
  GEMINID_RETURN_IF_ERROR(links_.agreement().Worst(&in_the_way));
  if (in_the_way[0] > 0) return absl::OkStatus();
  StatePlacementProblem problem = MakeStatePlacementProblem(*trace);
  GEMINID_ASSIGN_OR_RETURN(size_t count, CountStateOnDevice(problem));
  problem.trace = *trace;
  *trace = WithStateOnDevice(problem, count);
  return move_state_(std::span(problem.order).first(count));
}

// Adds room above the recorded workspace, if growth was seen and the arena has that room.
absl::StatusOr<Plan> StepPlans::RequestPlanWithMargin(Trace* trace) {
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

// Plans the last micro-batch. If it followed a plan, its uses are taken from that plan, since an
// operator may have used less than planned.
absl::Status StepPlans::MakePlanFromRecording() {
  times_.EndOnStream();
  GEMINID_RETURN_IF_ERROR(residency_.mover().Synchronize());
  for (const auto& [moment, took] : times_.TookOnStreams()) {
    director_.recorder().SetCompute(moment, absl::ToDoubleSeconds(took));
  }
  const bool followed = director_.outcome() == Director::Outcome::kFollowed;
  // Weights that stayed may lie where the state is to go.
  if (setup_.weights_stay() && !state_placed_) {
    GEMINID_RETURN_IF_ERROR(residency_.Move(director_.DropAll()));
  }
  GEMINID_RETURN_IF_ERROR(residency_.mover().WaitIdle());
  const std::vector<Moment> recorded = director_.training_recorder().Moments();
  Trace trace = MakeTrace(recorded);
  for (size_t m = 0; followed && m < trace.moments.size(); ++m) {
    trace.moments[m].uses = planned_trace_.moments[m].uses;
  }
  GEMINID_RETURN_IF_ERROR(setup_.Waited(StallCause::kCollective,
                                        [&] { return links_.agreement().AgreeOnTrace(&trace); }));
  absl::Status placed = PlaceState(&trace);
  if (placed.ok() && (!followed || first_workspace_bytes_.size() != trace.moments.size())) {
    first_workspace_bytes_.clear();
    for (const TraceMoment& moment : trace.moments) {
      first_workspace_bytes_.push_back(moment.workspace_bytes);
    }
  }
  absl::StatusOr<Plan> plan = placed.ok() ? RequestPlanWithMargin(&trace) : placed;
  const bool moves_kept = plan.ok() && MovesHeldChunks(RunOf(*plan, trace), recorded);
  const bool none = absl::IsResourceExhausted(plan.status()) || moves_kept;
  std::string why;
  if (none) {
    why = absl::StrCat(
        "no plan: chunks are fetched on demand, without prefetch. ",
        moves_kept ? "The arena is so full that a plan would move weights that operators use"
                   : std::string(plan.status().message()));
  }
  tally_.SetWhyNone(std::move(why));
  if (none && setup_.options.placement != Placement::kDevice) {
    // Without a plan it ran on demand, where held chunks can wait in host memory, and will again.
    director_.PlanRefused();
    return director_.training_plan() == nullptr ? absl::OkStatus() : TellController();
  }
  if (!plan.ok()) return plan.status();
  if (!followed) SetUpdateOrder();
  GEMINID_RETURN_IF_ERROR(PutInForce(trace, *std::move(plan)));
  return TellController();
}

// Weights that stay in ZeRO's lower stages have lasting places already. With placement cpu, weights
// are meant to leave.
void StepPlans::PlaceAtHome(const Trace& trace, PlannedRun* run) const {
  if (setup_.weights_stay() || setup_.options.placement == Placement::kCpu) return;
  if (auto homes = HomesOf(trace)) run->PlaceAtHome(*std::move(homes));
}

// Between micro-batches. Chunks that the earlier plan left where this one wants them stay there.
absl::Status StepPlans::PutInForce(const Trace& trace, Plan plan) {
  GEMINID_RETURN_IF_ERROR(setup_.Waited(StallCause::kCollective, [&] {
    return links_.agreement().CheckSame(plan.plan_hash, "the plan");
  }));
  planned_trace_ = trace;
  PlannedRun run = RunOf(std::move(plan), trace);
  PlaceAtHome(trace, &run);
  const PlannedRun* const before = director_.training_plan();
  const auto same_workspace = [](const TraceMoment& a, const TraceMoment& b) {
    return a.workspace_bytes == b.workspace_bytes;
  };
  const bool same = before != nullptr && before->SameMoves(run) &&
                    std::ranges::equal(before->moments(), run.moments(), same_workspace);
  tally_.CountPlan(/*differs=*/!same);
  const Moves moves = director_.PutInForce(std::move(run));
  // As after each planned micro-batch: the chunks that stay and the next first allocation must fit.
  const Residency::PlacementScope placing(&residency_);
  return residency_.MoveWithRoom(moves,
                                 {.workspace_bytes = placing.workspace_bytes(),
                                  .wanted_bytes = planned_trace_.moments.back().workspace_bytes});
}

// --- evaluation ----------------------------------------------------------------------------------

// Makes a plan of evaluation's own, beside training's. Without a plan evaluation runs on demand.
absl::Status StepPlans::PlanEvaluation(bool end) {
  micro_batch_.evaluated = true;
  const std::vector<Moment> sample = director_.TakeEvaluationSample(end);
  if (sample.empty()) return absl::OkStatus();
  Trace trace = MakeTrace(sample);
  GEMINID_RETURN_IF_ERROR(links_.agreement().CheckSameOperators(trace.moments));
  GEMINID_RETURN_IF_ERROR(links_.agreement().AgreeOnTrace(&trace));
  absl::StatusOr<Plan> plan = RequestPlan(trace, /*weights_change=*/false);
  if (absl::IsResourceExhausted(plan.status())) return absl::OkStatus();
  if (!plan.ok()) return plan.status();
  GEMINID_RETURN_IF_ERROR(links_.agreement().CheckSame(plan->plan_hash, "the plan of evaluation"));
  PlannedRun run = RunOf(*std::move(plan), trace);
  if (!MovesHeldChunks(run, sample)) director_.SetEvaluationPlan(std::move(run));
  // The daemon explains the last plan that it made; this makes that training's plan.
  if (director_.training_plan() != nullptr) return RequestPlan(planned_trace_).status();
  return absl::OkStatus();
}

}  // namespace geminid::zero
