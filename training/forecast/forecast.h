// Answers whether a model fits, how fast a step is, and what would make it fit, for a run of
// geminid-train.
#ifndef GEMINID_TRAINING_FORECAST_FORECAST_H_
#define GEMINID_TRAINING_FORECAST_FORECAST_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/planner/tiers/tier_plan.h"
#include "training/forecast/catalogue.h"
#include "training/forecast/executable.h"
#include "training/forecast/model.h"
#include "training/forecast/problem.h"
#include "training/forecast/trace_file.h"

namespace geminid::forecast {

// The forecast of one step. Bytes in `plan` are of one rank.
struct Forecast {
  planner::TierProblem problem;
  planner::TierPlan plan;
  std::uint64_t parameters = 0;  // of the model
  // Seconds in which one rank's gathers and reductions cross the slowest link: bytes x (P - 1) / P
  // for each, as in a ring. They overlap with computation, so they bound the step from below.
  double collective_seconds = 0;
  bool bound_by_collectives = false;
  bool keeps_activations = false;  // all of them, as the job asks
  StateMode state_mode = StateMode::kAuto;  // how the engine would place the optimizer's state
  // The longer of the planner's step and the collectives.
  double step_seconds = 0;
  double tokens_per_second = 0;  // of all ranks

  bool fits() const { return plan.fits; }
};

// Errors: INVALID_ARGUMENT. A plan that does not fit is an answer, not an error.
absl::StatusOr<Forecast> MakeForecast(const Model& model, const Job& job);

// The same for a given problem, such as a recorded trace's. `tokens` are per rank and step.
absl::StatusOr<Forecast> MakeForecast(planner::TierProblem problem, const Job& job,
                                      std::uint64_t tokens);

// The whole chunks that ranks gather and reduce in one pass.
struct GatherTraffic {
  double bytes = 0;  // a ring of P receives (P - 1) / P of them
  std::uint64_t collectives = 0;
  // The gathers among these; then every chunk that is gathered, counted once.
  double gather_bytes = 0;
  std::uint64_t gathers = 0;
  double chunk_bytes = 0;
  std::uint64_t chunks = 0;
};
GatherTraffic GatheredOf(const planner::TierProblem& problem, const planner::TierPlan& plan);

absl::StatusOr<bool> Fits(const Model& model, const Job& job);
absl::StatusOr<bool> Fits(const planner::TierProblem& problem, const Job& job);

// Bytes per parameter in a tier, over all ranks.
double BytesPerParameter(const Forecast& forecast, const Job& job, planner::Tier tier);

// One rank's device bytes of weights whose state is updated there; the other weights are gathered
// for the operators.
std::uint64_t UpdatedWeightBytes(const Forecast& forecast);

// One change after which the job fits. `value` is the new number, of one node; for a device its
// usable bytes.
struct Change {
  enum class Kind : std::uint8_t {
    kDeviceBytes,
    kHostBytes,
    kDeviceAndHostBytes,
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

// The granularity in which memory of about this size is searched, so that people can ask for it.
std::uint64_t MemoryStep(std::uint64_t bytes);
// The granularity in which sequences are shortened.
inline constexpr std::uint64_t kTokensStep = 64;

// The smallest change of each kind with which a job that does not fit would fit. Kinds: memory of
// the device, of the host, or of both if both lack, in whole MemoryStep; for a model also the
// largest batch, the longest sequence and the fewest nodes. Each was planned and fits, and one step
// less does not. Empty if no change alone helps.
absl::StatusOr<std::vector<Change>> FittingChanges(const Model& model, const Job& job);
absl::StatusOr<std::vector<Change>> FittingChanges(const RecordedTrace& trace, const Job& job);

// More host memory than any node has.
inline constexpr std::uint64_t kMostHostBytes = std::uint64_t{1} << 49;

// The least host memory of a node with which the job fits, everything else as in `job`; 0 if it
// needs none. A plan with it was found to fit, and one with one extent (4 KiB) less per rank not
// to. RESOURCE_EXHAUSTED if no amount helps.
absl::StatusOr<std::uint64_t> LeastHostBytes(const Model& model, const Job& job);
absl::StatusOr<std::uint64_t> LeastHostBytes(planner::TierProblem problem, const Job& job);

// The largest member of `family`, by steps of its size, that fits; NOT_FOUND if none does. Makes
// about a dozen plans.
absl::StatusOr<Model> LargestThatFits(const Family& family, const Job& job);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_FORECAST_H_
