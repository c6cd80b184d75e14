// Training without a network. Every gradient is a known function of its weight, so a dense
// reference can compute every bit of the weights after any number of steps.
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

// A micro-batch runs operators 0, 1, ... forward, then backward in reverse. Each operator uses some
// parameters. A parameter that two operators use has backward_uses = 2.
struct SyntheticModel {
  std::vector<Parameter> parameters;
  std::vector<std::vector<uint32_t>> operators;
};

// A tied embedding, matrices of several sizes, vectors, and one tensor larger than a chunk.
SyntheticModel SmallModel();
// The same, with vectors, a matrix and the large tensor of type `other`.
SyntheticModel MixedModel(DataType other);

struct SyntheticRun {
  SyntheticModel model = SmallModel();
  std::string socket;
  int world_size = 1;
  int first_step = 0;  // of a run that resumes
  int steps = 4;       // the end of the run
  uint64_t arena_bytes = 8 << 20;
  uint64_t activation_bytes = 4096;  // per operator, from forward to backward
  uint32_t activation_places = 0;    // above 0: the activations are items of an ActivationStack
  double copy_bytes_per_second = 0;
  std::string job = "synthetic";
  std::optional<Admission> admission;
  std::string run{};       // the name under which a rank's state is retained; empty: none
  int overflow_step = -1;  // in this step the first rank writes an infinite gradient
  bool apart = false;      // each rank has its own engine for a part of one model
  int ranks_per_host = 0;  // above 0: weights are sharded within hosts of so many ranks
  Options options;
  // Replaces initial values. Each of these functions is called on the ranks' threads.
  std::function<absl::Status(Engine*, collectives::Communicator*, int rank)> prepare;
  std::function<absl::Status(int rank)> before_end;  // the engine is still alive
  std::function<void(Engine*, int rank, int step)> between_steps;
  std::function<uint64_t(int rank, int step, uint64_t planned)> activation_bytes_at;
  std::function<std::vector<std::vector<uint32_t>>(int step)> operators_at;
  // How long each operator takes on the engine's clock. No other time passes.
  std::function<absl::Duration(int rank, int step)> operator_time;
  std::function<absl::Status(int rank, int step)> before_step;  // an error ends this rank
};

struct SyntheticResult {
  std::vector<std::vector<float>> weights;  // fp32 masters
  std::vector<StepResult> steps;
  std::vector<Statistics> statistics;  // by rank
  // By rank: statistics of its communicator and of those that the engine made from it.
  std::vector<collectives::CommunicatorStats> exchanged;
};

// Runs the ranks as threads of this process with the daemon at `socket`. All ranks have ended when
// it returns. The error is that of the lowest rank that failed.
absl::StatusOr<SyntheticResult> Train(const SyntheticRun& run);
// For SyntheticRun::operators_at: from this step on two operators swap their places.
inline std::function<std::vector<std::vector<uint32_t>>(int)> OperatorsSwappedFrom(
    int first_step, const SyntheticRun& run) {
  return [first_step, operators = run.model.operators](int step) {
    std::vector<std::vector<uint32_t>> now = operators;
    if (step >= first_step) std::swap(now[3], now[8]);
    return now;
  };
}
// The same, with the result of each rank.
std::vector<absl::Status> TrainStatuses(const SyntheticRun& run, SyntheticResult* result);

// Runs one rank on this thread, in the group `communicator`. With Options::resume it goes on where
// its previous process stopped, if it can. After an error its session stays for a replacement.
absl::Status TrainOneRank(const SyntheticRun& run, int rank,
                          collectives::Communicator* communicator, SyntheticResult* result);

// The weights and norms, computed densely, without ranks, chunks or granules.
struct DenseResult {
  std::vector<std::vector<float>> weights;
  std::vector<double> gradient_norms;  // by step, before clipping, summed in float64
  // By step: the mean of the squared norms of the gradients of all ranks and micro-batches.
  std::vector<double> mean_squares;
};
DenseResult RunDensely(const SyntheticRun& run);
std::vector<std::vector<float>> TrainDensely(const SyntheticRun& run);  // only the weights

}  // namespace geminid::zero

#endif  // GEMINID_TESTS_CLIENT_ZERO_SYNTHETIC_TRAINING_H_
