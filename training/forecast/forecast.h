// Answers whether a model fits, how fast a step is, and what would make it fit. The planner gives
// every answer.
#ifndef GEMINID_TRAINING_FORECAST_FORECAST_H_
#define GEMINID_TRAINING_FORECAST_FORECAST_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/hierarchy/hierarchy.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/executable.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"
#include "training/forecast/trace_file.h"

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
  bool keeps_activations = false;  // all of them, as asked
  // How the engine would place the optimizer's state; none: not restricted to what it executes.
  std::optional<StateMode> state_mode;
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

// Whole chunks that are gathered and reduced by the ranks that share them, in one pass.
struct Gathered {
  double bytes = 0;  // a ring of P receives (P - 1) / P of them
  std::uint64_t collectives = 0;
  // Of these, the gathers; and each chunk that is gathered, once.
  double gather_bytes = 0;
  std::uint64_t gathers = 0;
  double chunk_bytes = 0;
  std::uint64_t chunks = 0;
};
Gathered GatheredOf(const planner::HierarchyProblem& problem, const planner::HierarchyPlan& plan);

absl::StatusOr<bool> Fits(const Model& model, const Job& job);
absl::StatusOr<bool> Fits(const planner::HierarchyProblem& problem, const Job& job);

// Bytes per parameter of a tier, all ranks together.
double BytesPerParameter(const Forecast& forecast, const Job& job, planner::Tier tier);

// Of one rank's weights on the device, those of the state that is updated there; the others are
// gathered for the operators.
std::uint64_t UpdatedWeightBytes(const Forecast& forecast);

// One change after which it fits: `value` is what the number would then be, of one node; of a
// device what is usable.
struct Change {
  enum class Kind : std::uint8_t {
    kDeviceBytes,
    kHostBytes,
    kDeviceAndHostBytes,
    kDiskBytes,
    kSequences,
    kSequenceLength,
    kNodes
  };
  Kind kind = Kind::kHostBytes;
  std::uint64_t value = 0;
  std::uint64_t host_bytes = 0;  // of kDeviceAndHostBytes, whose value is the device's
  std::string
      text;  // flags, then what they mean: "--host-memory 76GiB: 12.0 GiB more in each node"
};
const char* Name(Change::Kind kind);

// The steps in which memory of about this size is sought, so that people can ask for it.
std::uint64_t MemoryStep(std::uint64_t bytes);
// The steps in which sequences are shortened.
inline constexpr std::uint64_t kTokensStep = 64;

// The smallest change of each kind after which a forecast that does not fit would: memory of the
// device, of the host, and of both where both lack, in whole MemoryStep, a disk where one may be
// planned; of a model also the largest batch, the longest sequence and the fewest nodes. Each was
// tried, and so was one step less. Empty if none helps alone.
absl::StatusOr<std::vector<Change>> WhatWouldFit(const Model& model, const Job& job);
absl::StatusOr<std::vector<Change>> WhatWouldFit(const RecordedTrace& trace, const Job& job);

// More host memory than any node has.
inline constexpr std::uint64_t kMostHostBytes = std::uint64_t{1} << 49;

// The least host memory of a node with which it fits, everything else being as in `job`; 0 if it
// fits without. Planned and found to fit, while one extent (4 KiB) less of each rank was planned
// and found not to. RESOURCE_EXHAUSTED if no amount helps.
absl::StatusOr<std::uint64_t> LeastHostBytes(const Model& model, const Job& job);
absl::StatusOr<std::uint64_t> LeastHostBytes(planner::HierarchyProblem problem, const Job& job);

// The largest member of `family`, by steps of its size, that fits; NOT_FOUND if none does. Tries a
// dozen.
absl::StatusOr<Model> LargestThatFits(const Family& family, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_FORECAST_H_
