// Training without a network: every gradient is a known function of the weight it belongs to, so
// that a dense reference can say what every bit of the weights must be after any number of steps.
#ifndef GEMINID_TESTS_CLIENT_ZERO_SYNTHETIC_TRAINING_H_
#define GEMINID_TESTS_CLIENT_ZERO_SYNTHETIC_TRAINING_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "geminid/admission.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"

namespace geminid::zero {

// The operators of one micro-batch are Forward: op 0, 1, ... and backward in reverse. Each operator
// uses some parameters; a parameter used by two has backward_uses = 2.
struct SyntheticModel {
  std::vector<Parameter> parameters;
  std::vector<std::vector<uint32_t>> operators;
};

// A tied embedding, matrices of several sizes, vectors, one tensor larger than a chunk.
SyntheticModel SmallModel();
// The same with vectors, a matrix and the large tensor of the other type: `other`.
SyntheticModel MixedModel(DataType other);

struct SyntheticRun {
  SyntheticModel model = SmallModel();
  std::string socket;
  int world_size = 1;
  int first_step = 0;  // of a run that goes on
  int steps = 4;       // up to here
  uint64_t arena_bytes = 8 << 20;
  uint64_t activation_bytes = 4096;  // per operator, from forward to backward
  uint32_t activation_places = 0;    // above 0: they are items of an ActivationStack
  double copy_bytes_per_second = 0;
  std::string job = "synthetic";
  std::optional<Admission> admission;
  std::string run{};       // where what a rank leaves is kept for its successor; empty: it is not
  int overflow_step = -1;  // in this step the first rank writes an infinite gradient
  bool apart = false;      // each rank has an engine of its own, as parts of one model have
  int ranks_per_host = 0;  // above 0: weights are sharded within hosts of so many ranks
  Options options;
  // In place of initial values. Called on each rank's thread, as all of these.
  std::function<absl::Status(Engine*, collectives::Communicator*, int rank)> prepare;
  std::function<absl::Status(int rank)> before_end;  // the engine still lives
  std::function<void(Engine*, int rank, int step)> between_steps;
  std::function<uint64_t(int rank, int step, uint64_t planned)> activation_bytes_at;
  std::function<std::vector<std::vector<uint32_t>>(int step)> operators_at;
  // How long each operator takes by the clock that the engine is given: time passes nowhere else.
  std::function<absl::Duration(int rank, int step)> operator_time;
  std::function<absl::Status(int rank, int step)> before_step;  // an error ends this rank
};

struct SyntheticResult {
  std::vector<std::vector<float>> weights;  // fp32 masters
  std::vector<StepResult> steps;
  std::vector<Statistics> statistics;  // by rank
  // By rank: of its communicator, and of what the engine made from it.
  std::vector<collectives::CommunicatorStats> exchanged;
};

// Runs the ranks as threads of this process against the daemon at `socket`. The first error of any
// rank, by rank; all ranks have ended.
absl::StatusOr<SyntheticResult> Train(const SyntheticRun& run);
// For SyntheticRun::operators_at: from this step on two operators come in each other's place.
inline std::function<std::vector<std::vector<uint32_t>>(int)> OperatorsSwappedFrom(
    int first_step, const SyntheticRun& run) {
  return [first_step, operators = run.model.operators](int step) {
    std::vector<std::vector<uint32_t>> now = operators;
    if (step >= first_step) std::swap(now[3], now[8]);
    return now;
  };
}
// The same with each rank's own outcome.
std::vector<absl::Status> TrainStatuses(const SyntheticRun& run, SyntheticResult* result);

// One rank of it on this thread, among the others of `communicator`. With Options::resume it goes
// on where its predecessor stopped, if it can. An error leaves its session to its successor.
absl::Status TrainOneRank(const SyntheticRun& run, int rank,
                          collectives::Communicator* communicator, SyntheticResult* result);

// What the weights and the norms must be, computed densely: no ranks, chunks or granules.
struct DenseResult {
  std::vector<std::vector<float>> weights;
  std::vector<double> gradient_norms;  // by step, before clipping, added up in float64
  // By step: the mean of the squared norms of each rank's gradient of each micro-batch.
  std::vector<double> mean_squares;
};
DenseResult RunDensely(const SyntheticRun& run);
std::vector<std::vector<float>> TrainDensely(const SyntheticRun& run);  // the weights alone

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_SYNTHETIC_TRAINING_H_
