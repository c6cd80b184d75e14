// The value of each part of the planner: plans a fixed set of traces without one part at a time.
// Prints a table for docs/planner.md. --help explains how to read it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "daemon/planner/make_plan.h"
#include "daemon/planner/problem/stage.h"
#include "tests/daemon/planner/transformers.h"
#include "tests/tools/sim/rivals.h"
#include "tools/sim/policies/policy.h"
#include "tools/sim/random_trace.h"

namespace geminid::sim {
namespace {

using planner::Objective;
using planner::Plan;
using planner::PlannerOptions;
using planner::Stage;
using planner::StageSet;
using planner::Trace;

constexpr std::uint64_t kSeeds = 200;  // as in never_worse_test.cc
constexpr std::uint64_t kGigabyte = 1'000'000'000;

enum class Group : std::uint8_t { kModels, kModelsStay, kChain, kModel, kAdapters, kRandom };
constexpr std::size_t kGroups = 6;
const char* const kGroupNames[kGroups] = {"published models", "the same, weights stay",
                                          "equal chains",     "unequal chains",
                                          "frozen and small", "no order, jagged room"};

const char* const kStageNames[planner::kNumStages] = {"taking back what still fits",
                                                      "held-back space",
                                                      "the candidate that keeps nothing",
                                                      "cache: cheapest window",
                                                      "cache: cheapest reload",
                                                      "cache: last needed",
                                                      "cache: pinned",
                                                      "caches without drains",
                                                      "loading ahead in caches",
                                                      "placing from the peak",
                                                      "placing at low offsets",
                                                      "clearing windows",
                                                      "longer drains"};

// One trace, and the limits that no plan may exceed.
struct Case {
  Group group = Group::kModels;
  Trace trace;
  bool weights_change = true;
  double least_rival_bytes = HUGE_VAL;    // up and down, including the tolerance
  double least_rival_seconds = HUGE_VAL;  // including the tolerance
};

PlannerOptions OptionsFor(const Case& one, Objective objective) {
  PlannerOptions options = SimulatedPlannerOptions();
  options.objective = objective;
  options.weights_change_between_iterations = one.weights_change;
  if (objective == Objective::kBytes && one.group >= Group::kChain) options.drain_moments = 0;
  return options;
}

void AddModels(std::vector<Case>& cases) {
  struct Memory {
    std::uint64_t gigabytes, batch;
  };
  for (const planner::Transformer& model : planner::PublishedTransformers()) {
    for (const Memory& memory : {Memory{6, 1}, {24, 4}, {32, 4}, {80, 16}}) {
      for (const bool recompute : {true, false}) {
        const Trace trace =
            planner::TransformerTrace(model, {.device_bytes = memory.gigabytes * kGigabyte,
                                              .batch = memory.batch,
                                              .recompute = recompute});
        if (!MakePlan(trace, PlannerOptions()).ok()) continue;  // an operator does not fit
        cases.push_back({.group = Group::kModels, .trace = trace});
        cases.push_back({.group = Group::kModelsStay, .trace = trace, .weights_change = false});
      }
    }
  }
}

void AddRivals(Case& one) {
  PlannerOptions no_drains = SimulatedPlannerOptions();
  no_drains.drain_moments = 0;
  for (const Schedule& rival : RivalsOf(one.trace, no_drains)) {
    const ScheduledBytes bytes = BytesOf(one.trace, rival);
    const double tolerance = rival.iterations > 1 ? kLongerPeriod : planner::kRounding;
    one.least_rival_bytes =
        std::min(one.least_rival_bytes, (bytes.up + bytes.down) * (1 + tolerance));
  }
  for (const Schedule& rival : RivalsOf(one.trace, SimulatedPlannerOptions())) {
    if (rival.policy == "cpu") continue;
    one.least_rival_seconds = std::min(
        one.least_rival_seconds, PredictedSeconds(one.trace, rival) * (1 + kNotWorthMoreBytes));
  }
  PlannerOptions cpu = SimulatedPlannerOptions();
  cpu.policy = planner::Policy::kCpu;
  one.least_rival_seconds =
      std::min(one.least_rival_seconds,
               MakePlan(one.trace, cpu)->predicted_step_seconds * (1 + kNotWorthMoreBytes));
}

void AddRandom(std::vector<Case>& cases) {
  for (int kind = 0; kind < kTraceKinds; ++kind) {
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Case one{.group = static_cast<Group>(static_cast<int>(Group::kChain) + kind),
               .trace = RandomTrace(static_cast<TraceKind>(kind), seed)};
      AddRivals(one);
      cases.push_back(std::move(one));
    }
  }
}

struct Figures {
  std::array<double, kGroups> bytes = {};    // per group, bytes over bound, fewest bytes
  std::array<double, kGroups> seconds = {};  // step over bound, fastest step
  double worst_bytes = 0;                    // of one trace, relative to all parts
  double worst_seconds = 0;
  int lost_bytes = 0;    // traces on which a rival moves less
  int lost_seconds = 0;  // traces on which a rival is faster
  double planning_seconds = 0;
};

struct PerCase {
  std::vector<double> bytes, seconds;
};

// Processor time, so that other work on the machine does not count.
double Now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Figures Measure(const std::vector<Case>& cases, const StageSet& without, const PerCase* all_parts,
                PerCase& per_case) {
  Figures figures;
  std::array<int, kGroups> counts = {};
  const double start = Now();
  for (const Case& one : cases) {
    const Plan least = MakePlan(one.trace, OptionsFor(one, Objective::kBytes), without).value();
    const Plan fast = MakePlan(one.trace, OptionsFor(one, Objective::kStepTime), without).value();
    const double bytes = static_cast<double>(least.h2d_bytes);
    const std::size_t group = static_cast<std::size_t>(one.group);
    ++counts[group];
    figures.bytes[group] +=
        least.lower_bound_bytes == 0 ? 1 : bytes / static_cast<double>(least.lower_bound_bytes);
    figures.seconds[group] += fast.predicted_step_seconds / fast.step_lower_bound_seconds;
    figures.lost_bytes += bytes + static_cast<double>(least.d2h_bytes) > one.least_rival_bytes;
    figures.lost_seconds += fast.predicted_step_seconds > one.least_rival_seconds;
    per_case.bytes.push_back(std::max(bytes, 1.0));
    per_case.seconds.push_back(fast.predicted_step_seconds);
    if (all_parts == nullptr) continue;
    const std::size_t i = per_case.bytes.size() - 1;
    figures.worst_bytes =
        std::max(figures.worst_bytes, per_case.bytes[i] / all_parts->bytes[i] - 1);
    figures.worst_seconds =
        std::max(figures.worst_seconds, per_case.seconds[i] / all_parts->seconds[i] - 1);
  }
  figures.planning_seconds = Now() - start;
  for (std::size_t g = 0; g < kGroups; ++g) {
    figures.bytes[g] /= std::max(counts[g], 1);
    figures.seconds[g] /= std::max(counts[g], 1);
  }
  return figures;
}

void Print(const std::string& name, const Figures& figures, const Figures& all) {
  std::printf("| %s |", name.c_str());
  double most_bytes = -1, most_seconds = -1;
  for (std::size_t g = 0; g < kGroups; ++g) {
    most_bytes = std::max(most_bytes, figures.bytes[g] / all.bytes[g] - 1);
    most_seconds = std::max(most_seconds, figures.seconds[g] / all.seconds[g] - 1);
  }
  std::printf(" %+.2f %% | %+.2f %% | %+.1f %% | %+.1f %% | %d + %d | %.2f |\n", 100 * most_bytes,
              100 * most_seconds, 100 * figures.worst_bytes, 100 * figures.worst_seconds,
              figures.lost_bytes, figures.lost_seconds,
              figures.planning_seconds / all.planning_seconds);
  std::fflush(stdout);
}

constexpr char kHelp[] =
    "planner_ablation: plans a fixed set of traces without one part of the planner at a time.\n"
    "Per part: the group of traces whose mean bytes over bound grow most; the same for the step\n"
    "over its bound; the one trace that grows most in bytes, and in step time; the traces on "
    "which\n"
    "a rival then moves less and is faster; the time to plan. All against the whole planner.\n";

int Main(int argc, char** argv) {
  if (argc > 1) {
    std::fputs(kHelp, stdout);
    return std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  std::vector<Case> cases;
  AddModels(cases);
  AddRandom(cases);
  PerCase all_cases;
  const Figures all = Measure(cases, StageSet(), nullptr, all_cases);
  std::printf("| traces | bytes / bound | step / bound |\n|---|---|---|\n");
  for (std::size_t g = 0; g < kGroups; ++g) {
    std::printf("| %s | %.4f | %.4f |\n", kGroupNames[g], all.bytes[g], all.seconds[g]);
  }
  std::printf(
      "\n| without | bytes | step | worst bytes | worst step | rivals | time |\n"
      "|---|---|---|---|---|---|---|\n");
  Print("nothing", all, all);
  for (std::size_t s = 0; s < planner::kNumStages; ++s) {
    const auto stage = static_cast<Stage>(s);
    PerCase per_case;
    Print(kStageNames[s], Measure(cases, StageSet(stage), &all_cases, per_case), all);
  }
  return 0;
}

}  // namespace
}  // namespace geminid::sim

int main(int argc, char** argv) { return geminid::sim::Main(argc, argv); }
