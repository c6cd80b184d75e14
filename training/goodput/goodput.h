// Goodput: the throughput of a run times its statistical efficiency (Qiao et al., "Pollux:
// Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021). And the batch
// that has the most of it. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_GOODPUT_H_
#define GEMINID_TRAINING_GOODPUT_GOODPUT_H_

#include <cstdint>
#include <vector>

#include "training/goodput/step_model.h"

namespace geminid::trainer {

// What a sequence of a batch of `batch` is worth, in sequences of a batch of `base`: (noise_scale +
// base) / (noise_scale + batch). 1 at `base`, above 1 for smaller batches. All in sequences, above
// 0; a noise scale may be 0.
double Efficiency(double noise_scale, double base, double batch);

// A step's sequences over all ranks, and how they are trained on.
struct BatchShape {
  uint64_t sequences = 0;  // of a micro-batch
  uint64_t micro_batches = 0;

  uint64_t total() const { return sequences * micro_batches; }
  bool operator==(const BatchShape&) const = default;
};

// One batch that a run could have.
struct BatchRow {
  BatchShape shape;
  double step_seconds = 0;
  double efficiency = 1;
  double goodput = 0;  // sequences of the run's own batch a second
};

// Of a run that has steps of `now`. `noise_scale`: in sequences.
BatchRow RowOf(const StepModel& model, double noise_scale, const BatchShape& now,
               const BatchShape& shape);

struct BatchLimits {
  uint64_t multiple = 1;        // what a micro-batch's sequences are a multiple of: the ranks
  uint64_t most_sequences = 0;  // of a micro-batch: what fits the memory
  uint64_t most_total = 0;      // of a step
};

// How a total is trained on: in as few micro-batches as the limits allow, of equal size. Its own
// total may be a little more than what was asked for.
BatchShape ShapeOf(uint64_t total, const BatchLimits& limits);

// The total that has the most goodput of all that the limits allow; the smallest of equals. The
// goodput has one maximum: sqrt(update * noise_scale / per_sequence) where micro-batches have no
// fixed part.
BatchRow BestBatch(const StepModel& model, double noise_scale, const BatchShape& now,
                   const BatchLimits& limits);

// The batches of powers of two beside `now`, for a table: its total times 1/4 to 16, within the
// limits. The smallest first, no total twice.
std::vector<BatchRow> BatchTable(const StepModel& model, double noise_scale, const BatchShape& now,
                                 const BatchLimits& limits);

// How the learning rate follows the batch.
enum class RateRule {
  // AdaScale's gain (Johnson et al., ICML 2020), for updates that are proportional to the gradient.
  kAdaScale,
  // sqrt(batch / base), for updates that are divided by the gradient's size, as Adam's (Malladi et
  // al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", NeurIPS 2022).
  kSquareRoot,
};
const char* Name(RateRule rule);
// What the learning rate of `base` is multiplied by.
double RateFactor(RateRule rule, double noise_scale, double base, double batch);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_GOODPUT_H_
