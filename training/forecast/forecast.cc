#include "training/forecast/forecast.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "geminid/types.h"
#include "training/forecast/executed_disk.h"
#include "training/forecast/hardware.h"

namespace geminid::forecast {
namespace {

using planner::Tier;
using planner::TierPlan;
using planner::TierProblem;

// The rate of the slowest link that a ring over all ranks crosses. A ring with as many lanes as a
// node has ranks uses all adapters of the node.
double CollectiveBytesPerSecond(const Job& job) {
  const Hardware& hardware = job.hardware;
  if (job.nodes == 1) return hardware.peer_bytes_per_second;
  if (job.ranks_per_node() == 1) return hardware.network_bytes_per_second;
  return std::min(hardware.peer_bytes_per_second, hardware.network_bytes_per_second);
}

double CollectiveSeconds(const TierProblem& problem, const TierPlan& plan, const Job& job) {
  if (job.ranks == 1) return 0;
  const double ranks = job.ranks;
  return GatheredOf(problem, plan).bytes * (ranks - 1) / ranks / CollectiveBytesPerSecond(job);
}

std::uint64_t ParametersOf(const TierProblem& problem, std::uint32_t ranks) {
  std::uint64_t shard = 0;
  for (const planner::OptimizerItem& item : problem.optimizer) shard += item.parameters;
  return shard * ranks;
}

absl::StatusOr<ExecutablePlan> MakePlan(const TierProblem& problem, const Job& job) {
  // All hardware in the table is a GPU.
  const bool state_on_host =
      job.optimizer.options.kind == kernels::OptimizerKind::kMuon && IsInTable(job.hardware);
  return MakeExecutablePlan(problem, state_on_host);
}

// The same for a model with the engine's bytes of host memory. Its state may be on disk.
absl::StatusOr<ExecutablePlan> MakePlan(const Model& model, TierProblem problem, const Job& job) {
  if (HasStateDisk(job)) return MakePlanWithDisk(model, std::move(problem), job);
  const std::uint64_t host_bytes = problem.machine.host_bytes;
  GEMINID_ASSIGN_OR_RETURN(const ExecutedState state, ExecutedStateOf(model, job, host_bytes));
  problem.machine.host_bytes = PlannersHostBytes(host_bytes, HostExcess(problem, state));
  GEMINID_ASSIGN_OR_RETURN(ExecutablePlan made, MakePlan(problem, job));
  SetHost(state, made.mode, host_bytes, &made.plan);
  return made;
}

absl::StatusOr<Forecast> Finish(ExecutablePlan made, TierProblem problem, const Job& job,
                                std::uint64_t tokens) {
  Forecast forecast;
  forecast.state_mode = made.mode;
  forecast.keeps_activations = job.keeps();
  forecast.plan = std::move(made.plan);
  forecast.problem = std::move(problem);
  forecast.parameters = ParametersOf(forecast.problem, job.ranks);
  if (!forecast.fits()) return forecast;
  forecast.collective_seconds = CollectiveSeconds(forecast.problem, forecast.plan, job);
  forecast.bound_by_collectives = forecast.collective_seconds > forecast.plan.seconds.step;
  forecast.step_seconds = std::max(forecast.collective_seconds, forecast.plan.seconds.step);
  if (forecast.step_seconds > 0) {
    forecast.tokens_per_second = static_cast<double>(tokens) * job.ranks / forecast.step_seconds;
  }
  return forecast;
}

// Searches between all state on disk and none, in whole extents of each rank.
absl::StatusOr<std::uint64_t> LeastHostBesideDisk(const Model& model, Job job) {
  const std::uint64_t ranks = job.ranks_per_node();
  GEMINID_ASSIGN_OR_RETURN(const ExecutedState all, ExecutedStateOf(model, job, 0));
  const auto fits = [&](std::uint64_t extents) {
    job.host_bytes = extents * kExtentAlignmentBytes * ranks;
    return forecast::Fits(model, job);
  };
  const auto extents_of = [](std::uint64_t bytes) {
    return (bytes + kExtentAlignmentBytes - 1) / kExtentAlignmentBytes;
  };
  std::uint64_t most = extents_of(all.host_bytes);
  GEMINID_ASSIGN_OR_RETURN(const bool with_all, fits(most));
  if (with_all) return job.host_bytes;
  std::uint64_t least = most;  // too little
  most = extents_of(all.choice.undivided_bytes + all.besides.of(planner::Owner::kStaging));
  GEMINID_ASSIGN_OR_RETURN(const bool with_none, fits(most));
  if (!with_none) {
    return absl::ResourceExhaustedError("it does not fit however much host memory there is");
  }
  while (most - least > 1) {
    const std::uint64_t middle = least + (most - least) / 2;
    GEMINID_ASSIGN_OR_RETURN(const bool enough, fits(middle));
    (enough ? most : least) = middle;
  }
  return most * kExtentAlignmentBytes * ranks;
}

// Searches the least host memory of one rank, in whole extents.
class HostSearch {
 public:
  // `excess`: as HostExcess says.
  HostSearch(TierProblem problem, const Job& job, std::int64_t excess)
      : problem_(std::move(problem)),
        job_(job),
        excess_(excess),
        most_(RoundDownToExtent(kMostHostBytes / job.ranks_per_node())) {}

  // Returns more than `most_bytes` if that does not fit.
  absl::StatusOr<std::uint64_t> Run() {
    GEMINID_ASSIGN_OR_RETURN(bool fits, Fits(0));
    if (fits) return 0;
    GEMINID_ASSIGN_OR_RETURN(fits, Fits(std::min(predicted_, most_)));
    if (!fits) {
      GEMINID_ASSIGN_OR_RETURN(fits, Fits(most_));
      if (!fits) return most_ + kExtentAlignmentBytes;
    }
    while (fits_ - fails_ > kExtentAlignmentBytes) {
      GEMINID_RETURN_IF_ERROR(Fits(Next()).status());
    }
    return fits_;
  }

 private:
  // If only host memory is lacking, the bytes that the planner names after a failed plan are exact;
  // so the search tries them from below. Halving ends the search in any case.
  std::uint64_t Next() {
    const std::uint64_t below = fits_ - kExtentAlignmentBytes;
    halve_ = !halve_;
    if (!halve_) return RoundDownToExtent(fails_ + (fits_ - fails_) / 2);
    return predicted_ > fails_ && predicted_ < fits_ ? predicted_ : below;
  }

  absl::StatusOr<bool> Fits(std::uint64_t bytes) {
    problem_.machine.host_bytes = PlannersHostBytes(bytes, excess_);
    GEMINID_ASSIGN_OR_RETURN(const ExecutablePlan made, MakePlan(problem_, job_));
    const TierPlan& plan = made.plan;
    if (plan.fits) {
      fits_ = bytes;
      return true;
    }
    fails_ = bytes;
    const std::uint64_t lacking = plan.lacking[static_cast<std::size_t>(Tier::kHost)];
    predicted_ =
        lacking > 0 ? RoundDownToExtent(bytes + lacking + kExtentAlignmentBytes - 1) : most_;
    return false;
  }

  TierProblem problem_;
  const Job& job_;
  const std::int64_t excess_;
  const std::uint64_t most_;
  std::uint64_t fails_ = 0, fits_ = 0;  // the most that does not fit, the least that does
  std::uint64_t predicted_ = 0;
  bool halve_ = false;
};

// Of all ranks of a node.
absl::StatusOr<std::uint64_t> LeastHostBeyond(TierProblem problem, const Job& job,
                                              std::int64_t excess) {
  GEMINID_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                           HostSearch(std::move(problem), job, excess).Run());
  if (bytes > kMostHostBytes / job.ranks_per_node()) {
    return absl::ResourceExhaustedError("it does not fit however much host memory there is");
  }
  return bytes * job.ranks_per_node();
}

}  // namespace

// A gather follows each load of a shard, at least one follows each update, and a reduction follows
// each gradient.
GatherTraffic GatheredOf(const TierProblem& problem, const TierPlan& plan) {
  std::vector<std::uint64_t> gathers(problem.trace.chunks.size(), 0);
  for (const planner::Step& step : plan.device_plan.steps) {
    for (const planner::Load& load : step.loads) ++gathers[load.chunk];
  }
  GatherTraffic all;
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    const planner::Chunk& chunk = problem.trace.chunks[i];
    const std::uint64_t reductions = chunk.frozen ? 0 : 1;
    const std::uint64_t gathered = std::max(gathers[i], reductions);
    const std::uint64_t times = gathered + reductions;
    const auto bytes = static_cast<double>(chunk.size_bytes);
    all.bytes += static_cast<double>(times) * bytes;
    all.collectives += times;
    all.gather_bytes += static_cast<double>(gathered) * bytes;
    all.gathers += gathered;
    if (gathered == 0) continue;
    all.chunk_bytes += bytes;
    ++all.chunks;
  }
  return all;
}

absl::StatusOr<Forecast> MakeForecast(TierProblem problem, const Job& job, std::uint64_t tokens) {
  GEMINID_RETURN_IF_ERROR(Validate(job));
  GEMINID_ASSIGN_OR_RETURN(ExecutablePlan made, MakePlan(problem, job));
  return Finish(std::move(made), std::move(problem), job, tokens);
}

absl::StatusOr<Forecast> MakeForecast(const Model& model, const Job& job) {
  GEMINID_ASSIGN_OR_RETURN(TierProblem problem, MakeProblem(model, job));
  GEMINID_ASSIGN_OR_RETURN(ExecutablePlan made, MakePlan(model, problem, job));
  GEMINID_ASSIGN_OR_RETURN(Forecast forecast,
                           Finish(std::move(made), std::move(problem), job, job.batch.tokens()));
  forecast.parameters = CountParameters(model);
  return forecast;
}

absl::StatusOr<bool> Fits(const TierProblem& problem, const Job& job) {
  GEMINID_ASSIGN_OR_RETURN(const ExecutablePlan made, MakePlan(problem, job));
  return made.plan.fits;
}

absl::StatusOr<bool> Fits(const Model& model, const Job& job) {
  const absl::StatusOr<TierProblem> problem = MakeProblem(model, job);
  if (absl::IsResourceExhausted(problem.status())) return false;
  if (!problem.ok()) return problem.status();
  GEMINID_ASSIGN_OR_RETURN(const ExecutablePlan made, MakePlan(model, *problem, job));
  return made.plan.fits;
}

double BytesPerParameter(const Forecast& forecast, const Job& job, Tier tier) {
  if (forecast.parameters == 0) return 0;
  return static_cast<double>(forecast.plan.tier(tier).peak) * job.ranks /
         static_cast<double>(forecast.parameters);
}

std::uint64_t UpdatedWeightBytes(const Forecast& forecast) {
  const std::vector<planner::OptimizerPlace>& places = forecast.plan.decisions.optimizer;
  std::uint64_t bytes = 0;
  for (std::size_t c = 0; c < places.size(); ++c) {
    if (places[c] != planner::OptimizerPlace::kDevice) continue;
    bytes += forecast.problem.optimizer[c].weight_bytes;
  }
  return bytes;
}

absl::StatusOr<std::uint64_t> LeastHostBytes(TierProblem problem, const Job& job) {
  return LeastHostBeyond(std::move(problem), job, /*excess=*/0);
}

absl::StatusOr<std::uint64_t> LeastHostBytes(const Model& model, const Job& job) {
  GEMINID_ASSIGN_OR_RETURN(TierProblem problem, MakeProblem(model, job));
  if (HasStateDisk(job)) return LeastHostBesideDisk(model, job);
  GEMINID_ASSIGN_OR_RETURN(const ExecutedState state, ExecutedStateOf(model, job, job.host_bytes));
  const std::int64_t excess = HostExcess(problem, state);
  GEMINID_ASSIGN_OR_RETURN(const std::uint64_t bytes,
                           LeastHostBeyond(std::move(problem), job, excess));
  // With all state on the device the planner needs none.
  const std::uint64_t besides = base::RoundUp(state.besides.peak, kExtentAlignmentBytes);
  return std::max(bytes, besides * job.ranks_per_node());
}

absl::StatusOr<Model> LargestThatFits(const Family& family, const Job& job) {
  std::uint64_t fits = 0;
  for (std::uint64_t low = 1, high = kMaxFamilyStep; low <= high;) {
    const std::uint64_t step = (low + high) / 2;
    GEMINID_ASSIGN_OR_RETURN(const Model model, MemberOfStep(family, step));
    GEMINID_ASSIGN_OR_RETURN(const bool member_fits, Fits(model, job));
    if (member_fits) {
      fits = step;
      low = step + 1;
    } else {
      high = step - 1;
    }
  }
  if (fits == 0) {
    return absl::NotFoundError(
        absl::StrCat("not even the smallest ", family.name, " model fits; it needs more memory"));
  }
  return MemberOfStep(family, fits);
}

}  // namespace geminid::forecast
