#include "tools/sim/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::sim {
namespace {

// AllPolicies begins with the planner's plans for the least time and the least bytes.
constexpr size_t kOurs = 2;

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

absl::StatusOr<Outcome> RunOne(const Machine& machine, const Workload& workload,
                               const PolicySpec& policy, const SimulationOptions& options) {
  Outcome outcome;
  outcome.policy = Name(policy);
  absl::StatusOr<Schedule> schedule =
      MakeSchedule(workload.trace, policy, SimulatedPlannerOptions());
  if (absl::IsResourceExhausted(schedule.status())) {
    outcome.does_not_fit = std::string(schedule.status().message());
    return outcome;
  }
  if (!schedule.ok()) return schedule.status();
  const ScheduledBytes bytes = BytesOf(workload.trace, *schedule);
  outcome.up_bytes = bytes.up;
  outcome.down_bytes = bytes.down;
  // Whole repetitions of the schedule, so that the mean is that of all its iterations.
  SimulationOptions whole = options;
  whole.steps =
      (options.steps + schedule->iterations - 1) / schedule->iterations * schedule->iterations;
  absl::StatusOr<SimulationResult> result = Simulate(machine, workload, *schedule, whole);
  if (!result.ok()) return result.status();
  outcome.step_seconds = Mean(result->step_seconds);
  for (const RankUse& rank : result->ranks) {
    outcome.wait_seconds +=
        std::accumulate(rank.wait_seconds.begin(), rank.wait_seconds.end(), 0.0);
  }
  outcome.wait_seconds /= static_cast<double>(result->ranks.size() * result->step_seconds.size());
  return outcome;
}

void Add(const Outcome& least_time, const Outcome& least_bytes, const Outcome& rival,
         Savings* savings) {
  if (!rival.does_not_fit.empty()) {
    ++savings->does_not_fit;
    return;
  }
  ++savings->traces;
  const double bytes =
      (rival.up_bytes + rival.down_bytes) / (least_bytes.up_bytes + least_bytes.down_bytes);
  const double time = rival.step_seconds / least_time.step_seconds;
  savings->byte_ratios.push_back(std::isfinite(bytes) ? bytes : 1);
  savings->time_ratios.push_back(time);
  if (savings->byte_ratios.back() < 1 - kSavingsTolerance) ++savings->auto_moves_more;
  if (time < 1 - kSavingsTolerance) ++savings->auto_takes_longer;
}

}  // namespace

absl::StatusOr<std::vector<Outcome>> Compare(const Machine& machine, const Workload& workload,
                                             const std::vector<PolicySpec>& policies,
                                             const SimulationOptions& options) {
  std::vector<Outcome> outcomes;
  for (const PolicySpec& policy : policies) {
    absl::StatusOr<Outcome> outcome = RunOne(machine, workload, policy, options);
    if (!outcome.ok()) {
      return absl::Status(
          outcome.status().code(),
          absl::StrCat("policy ", Name(policy), ": ", std::string(outcome.status().message())));
    }
    outcomes.push_back(*std::move(outcome));
  }
  return outcomes;
}

Machine LinkAlone(const planner::Trace& trace) {
  Machine machine;
  TakeLinks(trace.link, &machine);
  return machine;
}

absl::StatusOr<std::vector<Savings>> CompareOnRandomTraces(uint64_t traces, uint64_t first_seed) {
  std::vector<Savings> all;
  const std::vector<PolicySpec> policies = AllPolicies();
  for (int k = 0; k < kTraceKinds; ++k) {
    const auto kind = static_cast<TraceKind>(k);
    std::vector<Savings> savings(policies.size());
    for (uint64_t seed = first_seed; seed < first_seed + traces; ++seed) {
      Workload workload;
      workload.trace = RandomTrace(kind, seed);
      workload.updates.resize(workload.trace.chunks.size());
      SimulationOptions options;
      options.steps = 1;
      absl::StatusOr<std::vector<Outcome>> outcomes =
          Compare(LinkAlone(workload.trace), workload, policies, options);
      if (!outcomes.ok()) {
        return absl::Status(outcomes.status().code(),
                            absl::StrCat(Name(kind), " trace ", seed, ": ",
                                         std::string(outcomes.status().message())));
      }
      for (size_t p = kOurs; p < policies.size(); ++p) {
        Add((*outcomes)[0], (*outcomes)[1], (*outcomes)[p], &savings[p]);
      }
    }
    for (size_t p = kOurs; p < policies.size(); ++p) {
      savings[p].rival = Name(policies[p]);
      savings[p].kind = Name(kind);
      std::sort(savings[p].byte_ratios.begin(), savings[p].byte_ratios.end());
      std::sort(savings[p].time_ratios.begin(), savings[p].time_ratios.end());
      all.push_back(std::move(savings[p]));
    }
  }
  return all;
}

double Quantile(const std::vector<double>& ascending, double p) {
  if (ascending.empty()) return 0;
  const double rank = std::ceil(p * static_cast<double>(ascending.size()));
  const auto index = static_cast<size_t>(std::max(1.0, rank)) - 1;
  return ascending[std::min(index, ascending.size() - 1)];
}

}  // namespace geminid::sim
