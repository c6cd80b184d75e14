// Goodput: the throughput of a run times its statistical efficiency (Qiao et al., "Pollux:
// Co-adaptive Cluster Scheduling for Goodput-Optimized Deep Learning", OSDI 2021); and the batch
// with the highest goodput. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_GOODPUT_H_
#define GEMINID_TRAINING_GOODPUT_GOODPUT_H_

#include <cstdint>
#include <vector>

#include "training/goodput/step_model.h"

namespace geminid::trainer {

// The progress per sequence with a batch of `batch`, relative to a batch of `base`: (noise_scale +
// base) / (noise_scale + batch). 1 at `base`, above 1 for smaller batches. All arguments are in
// sequences and above 0; the noise scale may be 0.
double Efficiency(double noise_scale, double base, double batch);

// A step's sequences over all ranks, divided into micro-batches.
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
  double goodput = 0;  // in sequences of the run's own batch per second
};

// The row of `shape` for a run whose steps have the shape `now`. `noise_scale` is in sequences.
BatchRow RowOf(const StepModel& model, double noise_scale, const BatchShape& now,
               const BatchShape& shape);

struct BatchLimits {
  uint64_t multiple = 1;        // a micro-batch's sequences are a multiple of this: the ranks
  uint64_t most_sequences = 0;  // of a micro-batch, because of memory
  uint64_t most_total = 0;      // sequences of a step
};

// Divides a total into as few micro-batches as the limits allow, of equal size. The total of the
// result may be a little larger.
BatchShape ShapeOf(uint64_t total, const BatchLimits& limits);

// The total with the highest goodput within the limits; of equals the smallest. Goodput has one
// maximum, at sqrt(update * noise_scale / per_sequence) where micro-batches have no fixed cost.
// All of these are in the units of StepModel.
BatchRow BestBatch(const StepModel& model, double noise_scale, const BatchShape& now,
                   const BatchLimits& limits);

// The batches whose total is that of `now` times a power of two from 1/4 to 16, for a table: within
// the limits, smallest first, no total twice.
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
// The factor from the learning rate for `base` to that for `batch`.
double RateFactor(RateRule rule, double noise_scale, double base, double batch);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_GOODPUT_H_
