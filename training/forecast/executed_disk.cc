#include "training/forecast/executed_disk.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/disk/extent_map.h"
#include "client/zero/state/state_list.h"
#include "collectives/shm/segment.h"
#include "collectives/shm/shm_communicator.h"
#include "kernels/optimizers/muon/muon.h"
#include "training/forecast/forecast.h"
#include "training/forecast/trainer_layout.h"
#include "training/models/parameters.h"

namespace geminid::forecast {
namespace {

using planner::Owner;
using planner::Resource;
using planner::Tier;
using planner::TierPlan;

constexpr double kSecondsPerDay = 24 * 3600;
// Updates overlap with the next forward pass, which is about a third of a step's computation.
constexpr double kForwardShare = 1.0 / 3;
constexpr std::uint64_t kTensorStates = 2;  // versions of the numbers per tensor
constexpr std::size_t kUpdateThreads = 1;   // of geminid-train, without --update-threads
// Of a run's world, its trainer, the engine's copies and the engine's agreements.
constexpr std::uint64_t kCommunicators = 4;

// The workspace of the largest matrix that the optimizer steps as a whole.
absl::StatusOr<std::uint64_t> OptimizerWorkspaceBytes(const Model& model,
                                                      const Optimizer& optimizer) {
  std::size_t most = 0;
  if (optimizer.options.kind != kernels::OptimizerKind::kMuon) return most;
  kernels::MatrixShape last;
  for (const trainer::ParameterSpec& spec : trainer::MakeParameters(model).specs) {
    if (!spec.is_layer_matrix()) continue;
    const kernels::MatrixShape shape = {.rows = static_cast<std::uint64_t>(*(spec.shape.end() - 2)),
                                        .cols = static_cast<std::uint64_t>(spec.shape.back())};
    if (shape.rows == last.rows && shape.cols == last.cols) continue;
    last = shape;
    std::size_t bytes = 0;
    if (kernels::MuonWorkspaceBytes(shape, kUpdateThreads, &bytes) != kernels::Status::kOk) {
      return absl::ResourceExhaustedError(absl::StrCat("no processor multiplies matrices of ",
                                                       shape.rows, " x ", shape.cols,
                                                       " elements, as Muon would have to"));
    }
    most = std::max(most, bytes);
  }
  return most;
}

absl::StatusOr<zero::StateStoreOptions> StoreOptionsOf(const Model& model,
                                                       const Optimizer& optimizer) {
  zero::StateStoreOptions options;
  GEMINID_ASSIGN_OR_RETURN(options.workspace_bytes, OptimizerWorkspaceBytes(model, optimizer));
  for (const Tensor& tensor : Tensors(model)) {
    options.tensor_state_bytes +=
        optimizer.tensor_state_bytes(tensor.rows, tensor.columns) / kTensorStates;
  }
  options.state_arrays = static_cast<std::size_t>(kernels::StateArrays(optimizer.options));
  options.whole_state_arrays =
      static_cast<std::size_t>(kernels::MatrixStateArrays(optimizer.options));
  if (optimizer.small_state) options.state_type = zero::DataType::kBFloat16;
  return options;
}

Owner OwnerOf(const zero::StateList& list, std::size_t slot) {
  switch (list.specs[slot].kind) {
    case ChunkKind::kWeight:
      return Owner::kWeights;
    case ChunkKind::kRemainder:
    case ChunkKind::kExpAvg:
    case ChunkKind::kExpAvgSq:
      return Owner::kOptimizerState;
    case ChunkKind::kGradient:
      return slot < list.first_tensor_state ? Owner::kGradients : Owner::kStaging;
    default:
      return Owner::kStaging;
  }
}

void AddOwner(Owner owner, std::uint64_t bytes, planner::TierBytes* tier) {
  tier->by_owner[static_cast<std::size_t>(owner)] += bytes;
  tier->peak += bytes;
}

void Add(const planner::TierBytes& more, planner::TierBytes* tier) {
  for (std::size_t i = 0; i < more.by_owner.size(); ++i) tier->by_owner[i] += more.by_owner[i];
  tier->peak += more.peak;
}

// Marks the plan as not fitting and names the missing bytes if the tier lacks memory.
void Judge(Tier tier, std::uint64_t needed, TierPlan* plan) {
  const std::uint64_t limit = plan->tier(tier).limit;
  if (needed <= limit) return;
  plan->fits = false;
  plan->lacking[static_cast<std::size_t>(tier)] = needed - limit;
}

void AddSeconds(const Job& job, const ExecutedState& state, TierPlan* plan) {
  const auto bytes = static_cast<double>(state.step_bytes) * job.ranks_per_node();
  const double read = bytes / job.disk_read_bytes_per_second;
  const double written = bytes / job.disk_write_bytes_per_second;
  // Nothing else is done meanwhile.
  const double sums =
      static_cast<double>(state.sums_bytes) * job.ranks_per_node() / job.disk_read_bytes_per_second;
  plan->busy_seconds[static_cast<std::size_t>(Resource::kDiskRead)] = sums + read;
  plan->busy_seconds[static_cast<std::size_t>(Resource::kDiskWrite)] = written;
  const double disk = std::max(read, written);
  plan->seconds.disk = sums + std::max(0.0, disk - kForwardShare * plan->seconds.compute);
  plan->seconds.step += plan->seconds.disk;
  plan->step_lower_bound_seconds = std::max(plan->step_lower_bound_seconds, sums + disk);
  const auto busiest = std::ranges::max_element(plan->busy_seconds);
  plan->bottleneck = static_cast<Resource>(busiest - plan->busy_seconds.begin());
  if (job.disk_endurance_bytes > 0 && bytes > 0) {
    plan->disk.life_days = job.disk_endurance_bytes / bytes * plan->seconds.step / kSecondsPerDay;
    plan->disk.wears_out_soon = plan->disk.life_days < planner::kLeastDiskLifeDays;
  }
}

}  // namespace

std::uint64_t SharedBytes(const Job& job) {
  if (job.ranks_per_node() == 1) return 0;
  const collectives::ShmOptions defaults;
  const collectives::SegmentShape shape = {.world_size = job.ranks_per_node(),
                                           .slots = defaults.slots,
                                           .piece_bytes = defaults.piece_bytes};
  return kCommunicators * base::RoundUpToPage(collectives::SegmentLayout::Of(shape).end);
}

absl::StatusOr<ExecutedState> ExecutedStateOf(const Model& model, const Job& job,
                                              std::uint64_t host_bytes) {
  GEMINID_ASSIGN_OR_RETURN(const zero::Layout layout,
                           TrainerLayout(model, job.optimizer, job.ranks));
  GEMINID_ASSIGN_OR_RETURN(zero::StateStoreOptions options, StoreOptionsOf(model, job.optimizer));
  ExecutedState state;
  const std::uint64_t shared = SharedBytes(job);
  if (HasStateDisk(job)) {
    options.disk = zero::DiskStateOptions{};
    // All ranks choose as the first one, to which the shared memory is charged.
    state.choice = zero::ChooseOnDisk(layout, options, host_bytes - std::min(host_bytes, shared));
    options.on_disk = state.choice.on_disk;
  } else {
    state.choice.host_bytes = state.choice.undivided_bytes = zero::HostBytesOf(layout, options);
  }
  const zero::StateList list = zero::ListState(layout, options);
  for (std::size_t slot = 0; slot < list.specs.size(); ++slot) {
    AddOwner(OwnerOf(list, slot), list.specs[slot].bytes, &state.host);
  }
  const std::uint64_t ranks = job.ranks_per_node();
  AddOwner(Owner::kStaging, (shared + ranks - 1) / ranks, &state.besides);
  AddOwner(Owner::kWorkspace, options.workspace_bytes, &state.besides);
  Add(state.besides, &state.host);
  state.host_bytes = state.choice.host_bytes + state.besides.of(Owner::kStaging);
  std::vector<zero::DiskShape> shapes = list.DiskShapes();
  state.payload_bytes = list.disk_bytes();
  state.file_bytes = zero::DiskFileBytes(shapes, /*folders=*/1);
  shapes.resize(list.extents.size());  // without spare extents
  state.step_bytes = disk::ExtentMap(zero::PayloadsOf(shapes)).total_bytes();
  if (kernels::NeedsSums(job.optimizer.options.kind)) state.sums_bytes = state.step_bytes;
  return state;
}

std::int64_t HostExcess(const planner::TierProblem& problem, const ExecutedState& state) {
  std::uint64_t bytes = 0, spare = 0;
  for (const planner::OptimizerItem& item : problem.optimizer) {
    bytes += item.state_bytes() + item.gradient_bytes;
    if (item.parameters > 0) spare = std::max(spare, item.state_bytes());
  }
  return static_cast<std::int64_t>(bytes + spare) - static_cast<std::int64_t>(state.host_bytes);
}

std::uint64_t PlannersHostBytes(std::uint64_t host_bytes, std::int64_t excess) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(0, static_cast<std::int64_t>(host_bytes) + excess));
}

void SetHost(const ExecutedState& state, StateMode mode, std::uint64_t limit, TierPlan* plan) {
  planner::TierBytes& host = plan->tiers[static_cast<std::size_t>(Tier::kHost)];
  const std::uint64_t activations = host.of(Owner::kActivations);
  host = mode == StateMode::kDevice ? state.besides : state.host;
  host.limit = limit;
  AddOwner(Owner::kActivations, activations, &host);
  if (mode == StateMode::kDevice) Judge(Tier::kHost, host.peak, plan);
}

absl::StatusOr<ExecutablePlan> MakePlanWithDisk(const Model& model, planner::TierProblem problem,
                                                const Job& job) {
  const std::uint64_t host_bytes = problem.machine.host_bytes;
  GEMINID_ASSIGN_OR_RETURN(const ExecutedState state, ExecutedStateOf(model, job, host_bytes));
  problem.machine.host_bytes = kMostHostBytes / job.ranks_per_node();
  GEMINID_ASSIGN_OR_RETURN(ExecutablePlan made, MakeExecutablePlan(problem));
  TierPlan& plan = made.plan;
  planner::TierBytes& host = plan.tiers[static_cast<std::size_t>(Tier::kHost)];
  planner::TierBytes& disk = plan.tiers[static_cast<std::size_t>(Tier::kDisk)];
  host.limit = host_bytes;
  disk.limit = job.disk_bytes / job.ranks_per_node();
  SetHost(state, made.mode, host_bytes, &plan);
  // In mode kDevice all state is on the device and none elsewhere.
  if (made.mode == StateMode::kDevice) return made;
  Judge(Tier::kHost, state.host_bytes + host.of(Owner::kActivations), &plan);
  if (state.choice.chunks == 0) return made;
  AddOwner(Owner::kOptimizerState, state.payload_bytes, &disk);
  AddOwner(Owner::kStaging, state.file_bytes - state.payload_bytes, &disk);
  Judge(Tier::kDisk, disk.peak, &plan);
  plan.disk.used = true;
  plan.disk.disk_bytes = state.file_bytes;
  if (!plan.fits) return made;
  plan.everything_on_device = false;
  plan.traffic.disk_read = state.step_bytes + state.sums_bytes;
  plan.traffic.disk_written = state.step_bytes;
  plan.traffic.host_memory += plan.traffic.disk_read + plan.traffic.disk_written;
  AddSeconds(job, state, &plan);
  return made;
}

}  // namespace geminid::forecast
