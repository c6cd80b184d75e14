#ifndef GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_H_
#define GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "kernels/numeric/norm/block_tree.h"
#include "kernels/optimizers/optimizer.h"
#include "kernels/optimizers/step/elementwise.h"
#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

// A step of any optimizer over tensors that are cut into segments and spread over ranks.
//
//   ShardedStep step(options, tensors);
//   each step, all ranks together:
//     step.Prepare(scalars, this rank's segments, old_factors, reduce, new_factors);
//     for each segment, later, in any order, on any threads: step.Apply(segment, new_arrays);
//
// Prepare reads the old state and all gradients, writes no parameters, and calls `reduce` the same
// number of times on every rank: 0 for elementwise optimizers, 1 for LAMB and LARS, 2 for
// Adafactor, 3 for CAME. Apply is the step itself, from old arrays to new ones or in place.
//
// Bits: for elementwise optimizers those of the dense step, whatever the cuts. For the others sums
// over segments are added in the order of the segments given, in float64: the same for the same
// segments in the same order, equal to rounding for other cuts and world sizes.
namespace geminid::kernels {

// What one tensor has of its own.
struct TensorOptions {
  // A matrix, row-major; rows = 1 for vectors. Of other tensors the last dimension is the columns.
  FactorShape shape;
  double learning_rate_scale = 1.0;         // >= 0
  std::optional<double> weight_decay = {};  // in place of the optimizer's
  bool frozen = false;                      // Apply copies; Prepare ignores its segments
};

// The scalars of one step.
struct StepScalars {
  uint64_t step = 1;  // >= 1
  double learning_rate = 0;
  double grad_scale = 1;     // clip coefficient / loss scale
  double gradient_norm = 0;  // over all ranks, of grad_scale * gradient; LAMB's max_grad_norm
};

// Elements that AddNorms adds as one tree.
inline constexpr size_t kNormsTree = kSumBlock * kTreeBlocks;

// Elements between tensors: Apply copies them.
inline constexpr uint32_t kNoTensor = UINT32_MAX;

// Consecutive elements of a tensor: [offset, offset + count) in row-major order.
struct Segment {
  uint32_t tensor = kNoTensor;
  uint64_t offset = 0;
  size_t count = 0;
  ConstParameterArrays arrays;  // from the segment's first element on
  GradientArray gradient;
};

// Adds `values` over all ranks, into them, with the same bits on every rank. False if it failed.
using ReduceSum = std::function<bool(std::span<double> values)>;

// Adds the norms of this rank's segments, which have been checked, in their order to `sums`, 2
// numbers per tensor: what AddNorms does, where segments lie on a device. Called within Prepare.
using AddAllNorms =
    std::function<Status(std::span<const Segment> segments, std::span<double> sums)>;

class ShardedStep {
 public:
  // Allocates everything that steps need: per tensor 4 numbers, and for Adafactor and CAME 8 + 4
  // bytes per factor and 8 per column of the widest matrix.
  ShardedStep(const OptimizerOptions& options, std::vector<TensorOptions> tensors);

  // Of the options and the tensors; Prepare returns it too.
  Status status() const { return status_; }

  // Factors of all tensors, one after the other. The arrays given to Prepare have so many.
  uint64_t FactorTotal() const { return factor_total_; }

  // What a tensor has of its own, from the next Prepare on; the shape stays. Frozen for a step: its
  // weights, state and factors stay as they are. A tensor frozen from the start stays frozen.
  void SetTensor(size_t tensor, double learning_rate_scale, std::optional<double> weight_decay,
                 bool frozen);

  // `old_factors` and `new_factors` may be the same array: then a failed Prepare may leave it
  // changed. Elementwise optimizers may be given no segments. kCallbackFailed if `reduce` failed.
  // A rank whose segments are bad still reduces, so that the others fail with it and none hangs.
  // With `add_norms`, LAMB and LARS read no array of a segment themselves.
  Status Prepare(const StepScalars& scalars, std::span<const Segment> segments,
                 const float* old_factors, const ReduceSum& reduce, float* new_factors,
                 const AddAllNorms& add_norms = nullptr);

  // LAMB and LARS, of a step that is being prepared: adds a segment's to 2 numbers; those of calls
  // that cut it at multiples of kNormsTree are the same. Of what is not trained nothing is added.
  Status AddNorms(const Segment& segment, double* two) const;

  // What Prepare found, 2 numbers per tensor, to be kept with a commit: with them and new_factors
  // an interrupted step is finished when part of the old state is gone already.
  std::span<const double> TensorSums() const { return tensor_sums_; }
  Status Restore(const StepScalars& scalars, std::span<const double> tensor_sums,
                 const float* new_factors);

  // For the kernels of a device: the options with which a segment is stepped. Nothing for those
  // that are not trained, or bad.
  std::optional<OptimizerOptions> OptionsFor(const Segment& segment) const;
  // Whether Prepare or Restore has succeeded, so that segments can be applied...
  bool ready() const { return ready_; }
  // ... and whether Apply copies this one.
  bool Copies(const Segment& segment) const;

  // After Prepare or Restore. Thread-safe.
  Status Apply(const Segment& segment, const ParameterArrays& new_arrays) const;

 private:
  // Where a tensor's numbers are.
  struct Place {
    uint64_t factors = 0;  // in factors and scales_
    uint64_t sums = 0;     // in sums_
  };

  OptimizerOptions OptionsOf(const TensorOptions& tensor) const;
  Status CheckTensor(const TensorOptions& tensor) const;
  Status CheckSegment(const Segment& segment) const;
  Status CheckRules() const;
  bool Trains(const Segment& segment) const;

  // Zeroes the sums, has `add_all` add those of all segments, and reduces them: those of tensors,
  // and with `factors` those of rows and columns.
  template <class AddAll>
  Status SumOverRanks(bool factors, const ReduceSum& reduce, AddAll add_all);
  Status CheckSegments(std::span<const Segment> segments) const;
  // `add` for each segment that is trained.
  template <class Add>
  Status ForEachTrained(std::span<const Segment> segments, Add add) const;
  Status PrepareFactored(std::span<const Segment> segments, const float* old_factors,
                         const ReduceSum& reduce, float* new_factors);
  Status PrepareConfidence(std::span<const Segment> segments, const float* old_factors,
                           const ReduceSum& reduce, float* new_factors);
  Status AddFirstSums(const Segment& segment);
  Status AddUpdateSquares(const Segment& segment);
  Status AddResidualSquares(const Segment& segment);
  Status MakeFactors(const float* old_factors, float* new_factors);

  OptimizerOptions options_;
  std::vector<TensorOptions> tensors_;
  std::vector<Place> places_;  // by tensor
  uint64_t factor_total_ = 0;
  Status status_ = Status::kOk;

  StepScalars scalars_;
  bool ready_ = false;
  std::vector<double> sums_;          // what is reduced: 2 per tensor, then rows and columns
  std::vector<double> column_space_;  // of the widest matrix
  std::vector<double> tensor_sums_;   // what Apply needs: ||w||^2 and ||u||^2, for LARS ||g||^2
  std::vector<float> scales_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_H_
