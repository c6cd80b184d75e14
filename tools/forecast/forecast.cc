#include "tools/forecast/forecast.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::forecast {
namespace {

using planner::HierarchyPlan;
using planner::HierarchyProblem;
using planner::Tier;

// Bisection for the least host memory ends at this part of what the fastest plan takes.
constexpr std::uint64_t kLeastHostSteps = 256;

// The slowest link that a ring over all ranks crosses. A ring of a node's worth of lanes uses all
// adapters of the node.
double CollectiveBytesPerSecond(const Job& job) {
  const Hardware& hardware = job.hardware;
  if (job.nodes == 1) return hardware.peer_bytes_per_second;
  if (job.ranks_per_node() == 1) return hardware.network_bytes_per_second;
  return std::min(hardware.peer_bytes_per_second, hardware.network_bytes_per_second);
}

// Each load of a shard is followed by a gather, each update by at least one, each gradient by a
// reduction.
double CollectiveSeconds(const HierarchyProblem& problem, const HierarchyPlan& plan,
                         const Job& job) {
  if (job.ranks == 1) return 0;
  std::vector<std::uint64_t> gathers(problem.trace.chunks.size(), 0);
  for (const planner::Step& step : plan.device_plan.steps) {
    for (const planner::Load& load : step.loads) ++gathers[load.chunk];
  }
  double bytes = 0;
  for (std::size_t i = 0; i < gathers.size(); ++i) {
    const planner::Chunk& chunk = problem.trace.chunks[i];
    const std::uint64_t reductions = chunk.frozen ? 0 : 1;
    const std::uint64_t times = std::max(gathers[i], reductions) + reductions;
    bytes += static_cast<double>(times) * static_cast<double>(chunk.size_bytes);
  }
  const double ranks = job.ranks;
  return bytes * (ranks - 1) / ranks / CollectiveBytesPerSecond(job);
}

std::uint64_t ParametersOf(const HierarchyProblem& problem, std::uint32_t ranks) {
  std::uint64_t shard = 0;
  for (const planner::OptimizerItem& item : problem.optimizer) shard += item.parameters;
  return shard * ranks;
}

}  // namespace

absl::StatusOr<Forecast> MakeForecast(HierarchyProblem problem, const Job& job,
                                      std::uint64_t tokens) {
  GEMINID_RETURN_IF_ERROR(Validate(job));
  Forecast forecast;
  GEMINID_ASSIGN_OR_RETURN(forecast.plan, planner::MakeHierarchyPlan(problem));
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

absl::StatusOr<Forecast> MakeForecast(const Model& model, const Job& job) {
  GEMINID_ASSIGN_OR_RETURN(HierarchyProblem problem, MakeProblem(model, job));
  GEMINID_ASSIGN_OR_RETURN(Forecast forecast,
                           MakeForecast(std::move(problem), job, job.batch.tokens()));
  forecast.parameters = CountParameters(model);
  return forecast;
}

double BytesPerParameter(const Forecast& forecast, const Job& job, Tier tier) {
  if (forecast.parameters == 0) return 0;
  return static_cast<double>(forecast.plan.tier(tier).peak) * job.ranks /
         static_cast<double>(forecast.parameters);
}

absl::StatusOr<std::uint64_t> LeastHostBytes(const Model& model, const Job& job) {
  const auto plan_with = [&](std::uint64_t bytes) {
    Job changed = job;
    changed.host_bytes = bytes;
    return MakeForecast(model, changed);
  };
  GEMINID_ASSIGN_OR_RETURN(const Forecast without, plan_with(0));
  if (without.fits()) return 0;
  for (const planner::Remedy& remedy : without.plan.remedies) {
    if (remedy.tier != Tier::kHost) continue;
    const std::uint64_t bytes = remedy.more_bytes * job.ranks_per_node();
    GEMINID_ASSIGN_OR_RETURN(const Forecast with, plan_with(bytes));
    if (with.fits()) return bytes;
  }
  GEMINID_ASSIGN_OR_RETURN(const Forecast most, plan_with(kMostHostBytes));
  if (!most.fits()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(model.name, " does not fit however much host memory there is"));
  }
  std::uint64_t low = 0;  // does not fit
  std::uint64_t high = most.plan.tier(Tier::kHost).peak * job.ranks_per_node();
  const std::uint64_t precision = high / kLeastHostSteps + 1;
  while (high - low > precision) {
    const std::uint64_t middle = low + (high - low) / 2;
    GEMINID_ASSIGN_OR_RETURN(const Forecast forecast, plan_with(middle));
    (forecast.fits() ? high : low) = middle;
  }
  return high;
}

absl::StatusOr<Model> LargestThatFits(const Family& family, const Job& job) {
  std::uint64_t fits = 0;
  for (std::uint64_t low = 1, high = kMaxFamilyStep; low <= high;) {
    const std::uint64_t step = (low + high) / 2;
    GEMINID_ASSIGN_OR_RETURN(const Model model, MemberOfStep(family, step));
    GEMINID_ASSIGN_OR_RETURN(const Forecast forecast, MakeForecast(model, job));
    if (forecast.fits()) {
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
