#ifndef GEMINID_TOOLS_BENCH_LARGE_BATCH_EXPERIMENT_H_
#define GEMINID_TOOLS_BENCH_LARGE_BATCH_EXPERIMENT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/optimizers/optimizer.h"

// Does a layer-wise optimizer, with the scaling rule of its paper, reach the loss of the small
// batch at 16 times the batch and a sixteenth of the steps?
//
// A network with one hidden layer learns the classes that a teacher network draws at random by its
// probabilities, so the loss has a floor well above 0. Everything follows from the seed.
namespace geminid::bench {

// The training data: `samples` inputs and their classes.
struct LargeBatchProblem {
  explicit LargeBatchProblem(size_t samples, uint64_t seed = 1);

  size_t samples() const { return classes.size(); }

  std::vector<float> inputs;  // samples x kInputs
  std::vector<uint8_t> classes;
  double floor = 0;  // mean loss of the teacher itself
};

struct LargeBatchRun {
  kernels::OptimizerOptions optimizer;  // its learning rate is the peak
  size_t batch = 512;
  size_t epochs = 16;
  double warm_up = 0.1;  // of all steps, linear; then the rate falls to 0 as a cosine
};

struct LossPoint {
  size_t samples = 0;  // seen so far
  double loss = 0;     // over the whole problem
};

struct LargeBatchResult {
  size_t steps = 0;
  double learning_rate = 0;
  double first_loss = 0;
  double last_loss = 0;
  std::vector<LossPoint> curve;  // after each epoch, the start first
};

// Trains. Empty curve if the optimizer refused a step (e.g. it diverged).
LargeBatchResult Train(const LargeBatchProblem& problem, const LargeBatchRun& run);

// LAMB with the small batch's rate times sqrt(batch / small_batch); LARS with that rate times batch
// / small_batch.
LargeBatchRun LambRun(size_t batch, size_t small_batch, size_t epochs);
LargeBatchRun LarsRun(size_t batch, size_t small_batch, size_t epochs);

struct LargeBatchCurve {
  std::string name;
  LargeBatchResult result;
};

// The numbers that a person would write on an axis between two numbers: the multiples of 1, 2 or 5
// times a power of ten, at most seven.
std::vector<double> NiceTicks(double least, double most);

// A picture of the curves over the samples seen, with the floor.
std::string LargeBatchSvg(const std::vector<LargeBatchCurve>& curves, double floor);

}  // namespace geminid::bench

#endif  // GEMINID_TOOLS_BENCH_LARGE_BATCH_EXPERIMENT_H_
