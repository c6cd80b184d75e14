// The value of each part of the planner over the hierarchy: plans a fixed set of problems without
// one part at a time. Prints a table for docs/planner_hierarchy.md. --help explains how to read it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "daemon/planner/hierarchy/hierarchy.h"
#include "tests/daemon/planner/hierarchy/problems.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/problem.h"

namespace geminid::planner {
namespace {

enum class Group : std::uint8_t { kRandom, kChains, kModels, kNodes, kDisk };
constexpr std::size_t kGroups = 5;
const char* const kGroupNames[kGroups] = {"random problems", "equal chains", "models on one device",
                                          "models on eight devices", "with a disk"};

struct Case {
  Group group;
  HierarchyProblem problem;
};

// A model that does not fit on the device. `host_gib` is per node.
struct ModelCase {
  const char* model;
  const char* hardware;
  std::uint32_t ranks;
  std::uint64_t device_gib, host_gib, disk_gib, sequences;
};

constexpr ModelCase kModelCases[] = {{"gpt2-medium", "rtx-2060-6gb", 1, 3, 24, 0, 4},
                                     {"opt-1.3b", "rtx-3090-24gb", 1, 8, 32, 0, 8},
                                     {"opt-6.7b", "rtx-3090-24gb", 1, 23, 128, 0, 4},
                                     {"llama-7b", "a100-80gb", 1, 79, 256, 0, 8},
                                     {"opt-13b", "a100-40gb", 8, 20, 512, 0, 8},
                                     {"llama-13b", "h100-80gb", 8, 16, 512, 0, 4},
                                     {"gpt2-xl", "rtx-2060-6gb", 1, 5, 10, 32, 4},
                                     {"opt-6.7b", "rtx-3090-24gb", 1, 23, 48, 256, 4},
                                     {"llama-13b", "a100-80gb", 1, 40, 64, 512, 8}};

HierarchyProblem ProblemOf(const ModelCase& one) {
  constexpr double kDiskRate = 6e9;
  forecast::Job job;
  job.hardware = *forecast::FindHardware(one.hardware);
  job.hardware.reserved_bytes = 0;
  job.hardware.device_bytes = one.device_gib * kGiB;
  job.ranks = one.ranks;
  job.host_bytes = one.host_gib * kGiB;
  job.disk_bytes = one.disk_gib * kGiB;
  job.disk_read_bytes_per_second = job.disk_write_bytes_per_second = kDiskRate;
  job.batch = {.sequences = one.sequences, .sequence_length = 1024};
  return *forecast::MakeProblem(*forecast::FindModel(one.model), job);
}

std::vector<Case> MakeCases() {
  std::vector<Case> cases;
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    cases.push_back({Group::kRandom, RandomProblem(seed <= 8 ? 6 : 24, seed)});
  }
  for (const std::uint64_t arena_mib : {48, 96, 160, 240}) {
    HierarchyProblem problem = Chain({.layers = 12}, arena_mib * kMiB);
    problem.machine.up_bytes_per_second = problem.machine.down_bytes_per_second = 8e9;
    problem.machine.host_memory_bytes_per_second = 60e9;
    cases.push_back({Group::kChains, std::move(problem)});
  }
  for (const ModelCase& one : kModelCases) {
    const Group group = one.disk_gib > 0 ? Group::kDisk
                        : one.ranks > 1  ? Group::kNodes
                                         : Group::kModels;
    cases.push_back({group, ProblemOf(one)});
  }
  return cases;
}

struct Figures {
  std::array<double, kGroups> over_bound = {};  // mean step over the lower bound of all decisions
  std::vector<double> seconds;                  // per case
  double worst = 0;                             // of one case, relative to all parts
  double planning_seconds = 0;
};

// Processor time, so that other work on the machine does not count.
double Now() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

Figures Measure(const std::vector<Case>& cases, const std::vector<double>& bounds,
                const HierarchyPartSet& without, const Figures* all) {
  Figures figures;
  std::array<int, kGroups> counts = {};
  const double start = Now();
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const HierarchyPlan plan = *MakeHierarchyPlan(cases[i].problem, without);
    const std::size_t group = static_cast<std::size_t>(cases[i].group);
    if (!plan.fits) std::printf("case %zu does not fit\n", i);
    figures.seconds.push_back(plan.seconds.step);
    const double bound = bounds[i];
    figures.over_bound[group] += plan.seconds.step / bound;
    ++counts[group];
    if (all != nullptr) {
      figures.worst = std::max(figures.worst, plan.seconds.step / all->seconds[i] - 1);
    }
  }
  figures.planning_seconds = Now() - start;
  for (std::size_t g = 0; g < kGroups; ++g) figures.over_bound[g] /= std::max(counts[g], 1);
  return figures;
}

void Print(const std::string& name, const Figures& figures, const Figures& all) {
  std::printf("| %s |", name.c_str());
  for (std::size_t g = 0; g < kGroups; ++g) {
    std::printf(" %+.2f %% |", 100 * (figures.over_bound[g] / all.over_bound[g] - 1));
  }
  std::printf(" %+.1f %% | %.2f |\n", 100 * figures.worst,
              figures.planning_seconds / all.planning_seconds);
  std::fflush(stdout);
}

// Finds parts that can be left out together. A part is left out for good if no group becomes longer
// by kWorth.
const char* const kPartNames[kNumHierarchyParts] = {
    "the device filled evenly",  "the dual",
    "chains of updates",         "an even price, low",
    "an even price, high",       "the state that is waited for",
    "held-back space",           "changes of one item",
    "changes of two items",      "restarts",
    "smaller caches of the disk"};

void PrintTogether(const std::vector<Case>& cases, const std::vector<double>& bounds,
                   const Figures& all) {
  constexpr double kWorth = 0.005;
  HierarchyPartSet without;
  std::printf("\nTogether, one after the other:\n");
  for (std::size_t p = 0; p < kNumHierarchyParts; ++p) {
    const HierarchyPartSet fewer = without.With(static_cast<HierarchyPart>(p));
    const Figures figures = Measure(cases, bounds, fewer, &all);
    bool is_worth = false;
    for (std::size_t g = 0; g < kGroups; ++g) {
      is_worth |= figures.over_bound[g] / all.over_bound[g] - 1 >= kWorth;
    }
    if (!is_worth) without = fewer;
    Print(std::string(kPartNames[p]) + (is_worth ? ": stays" : ": goes"), figures, all);
  }
}

constexpr char kHelp[] =
    "hierarchy_ablation: plans a fixed set of problems over device, host and disk without one "
    "part\n"
    "of the planner at a time. Per part: how much longer the mean step over its bound becomes in\n"
    "each group of problems; the one problem whose step grows most; the time to plan.\n";

int Main(int argc, char** argv) {
  if (argc > 1) {
    std::fputs(kHelp, stdout);
    return std::strcmp(argv[1], "--help") == 0 ? 0 : 2;
  }
  const std::vector<Case> cases = MakeCases();
  std::vector<double> bounds;
  for (const Case& one : cases) {
    bounds.push_back(MakeHierarchyPlan(one.problem)->any_decisions_lower_bound_seconds);
  }
  const Figures all = Measure(cases, bounds, {}, nullptr);
  std::printf("| problems | step / bound |\n|---|---|\n");
  for (std::size_t g = 0; g < kGroups; ++g) {
    std::printf("| %s | %.4f |\n", kGroupNames[g], all.over_bound[g]);
  }
  std::printf("\n| without |");
  for (const char* name : kGroupNames) std::printf(" %s |", name);
  std::printf(" worst | time |\n|---|---|---|---|---|---|---|---|\n");
  for (std::size_t p = 0; p < kNumHierarchyParts; ++p) {
    const auto part = static_cast<HierarchyPart>(p);
    Print(kPartNames[p], Measure(cases, bounds, HierarchyPartSet(part), &all), all);
  }
  PrintTogether(cases, bounds, all);
  return 0;
}

}  // namespace
}  // namespace geminid::planner

int main(int argc, char** argv) { return geminid::planner::Main(argc, argv); }
