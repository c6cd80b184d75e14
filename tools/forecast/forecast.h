// Will it fit, how fast, and what would make it fit. Every answer is the planner's.
#ifndef GEMINID_TOOLS_FORECAST_FORECAST_H_
#define GEMINID_TOOLS_FORECAST_FORECAST_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/hierarchy/hierarchy.h"
#include "tools/forecast/catalogue.h"
#include "tools/forecast/model.h"
#include "tools/forecast/problem.h"

namespace geminid::forecast {

// One step. Bytes in `plan` are of one rank.
struct Forecast {
  planner::HierarchyProblem problem;
  planner::HierarchyPlan plan;
  std::uint64_t parameters = 0;  // of the model
  // Time in which one rank's gathers and reductions cross the slowest link between ranks: bytes x
  // (P - 1) / P for each, a ring's. They run beside computation, so they bound the step from below.
  double collective_seconds = 0;
  bool bound_by_collectives = false;
  // The longer of the planner's step and the collectives.
  double step_seconds = 0;
  double tokens_per_second = 0;  // of all ranks

  bool fits() const { return plan.fits; }
};

enum class Effort : std::uint8_t {
  kFastest,   // the fastest plan that is found
  kFirstFit,  // any plan that fits, much sooner; whether there is one does not depend on the effort
};

// Errors: INVALID_ARGUMENT. Not fitting is an answer.
absl::StatusOr<Forecast> MakeForecast(const Model& model, const Job& job,
                                      Effort effort = Effort::kFastest);

// The same for a problem from elsewhere, such as a recorded trace. `tokens` per rank and step.
absl::StatusOr<Forecast> MakeForecast(planner::HierarchyProblem problem, const Job& job,
                                      std::uint64_t tokens, Effort effort = Effort::kFastest);

absl::StatusOr<bool> Fits(const Model& model, const Job& job);

// Bytes per parameter of a tier, all ranks together.
double BytesPerParameter(const Forecast& forecast, const Job& job, planner::Tier tier);

// One change after which it fits: `value` is what the number would then be, of one node.
struct Change {
  enum class Kind : std::uint8_t {
    kDeviceBytes,
    kHostBytes,
    kDiskBytes,
    kSequences,
    kSequenceLength,
    kNodes
  };
  Kind kind = Kind::kHostBytes;
  std::uint64_t value = 0;
  std::string text;  // "add 12 GiB of host memory to each node, 76 GiB in all"
};
const char* Name(Change::Kind kind);

// The smallest change of each kind after which a forecast that does not fit would: more of what the
// planner says is lacking, or a smaller batch, a shorter sequence, more nodes. Each was tried.
// Empty if none helps alone.
absl::StatusOr<std::vector<Change>> WhatWouldFit(const Model& model, const Job& job,
                                                 const Forecast& forecast);

// More host memory than any node has.
inline constexpr std::uint64_t kMostHostBytes = std::uint64_t{1} << 49;

// The least host memory of a node with which it fits, everything else being as in `job`; 0 if it
// fits without. Planned and found to fit, while one extent (4 KiB) less of each rank was planned
// and found not to. RESOURCE_EXHAUSTED if no amount helps.
absl::StatusOr<std::uint64_t> LeastHostBytes(const Model& model, const Job& job);

// The largest member of `family`, by steps of its size, that fits; NOT_FOUND if none does. Tries a
// dozen.
absl::StatusOr<Model> LargestThatFits(const Family& family, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TOOLS_FORECAST_FORECAST_H_
