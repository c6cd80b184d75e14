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
#include "kernels/runtime/parallel/thread_pool.h"

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
// Muon's matrices are not cut: a segment has a whole tensor, and is stepped by ApplyMatrices.
//
// Bits: for elementwise optimizers those of the dense step, whatever the cuts, with state in either
// form. For the others sums
// over segments are added in the order of the segments given, in float64: the same for the same
// segments in the same order, equal to rounding for other cuts and world sizes.
namespace geminid::kernels {

// What one tensor has of its own.
struct TensorOptions {
  // A matrix, row-major; rows = 1 for vectors. Of other tensors the last dimension is the columns.
  FactorShape shape;
  double learning_rate_scale = 1.0;  // >= 0
  // In place of the optimizer's; those that it does not have are ignored. beta1 is SGD's and LARS's
  // momentum too.
  std::optional<double> weight_decay = {};
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> epsilon = {};
  // Updates of this tensor, the next one included, where it was left out of some; 0: StepScalars'.
  uint64_t step = 0;
  bool frozen = false;  // Apply copies; Prepare ignores its segments
  // With Muon: the tensor is matrices of so many of its rows, one after the other; 0: it is none,
  // and AdamW steps it.
  uint64_t matrix_rows = 0;
  // Tells this tensor from others where state is rounded (StateRounding): a hash of its name.
  uint64_t rounding_id = 0;
};

// The scalars of one step.
struct StepScalars {
  uint64_t step = 1;  // >= 1
  double learning_rate = 0;
  double grad_scale = 1;     // clip coefficient / loss scale
  double gradient_norm = 0;  // over all ranks, of grad_scale * gradient; LAMB's max_grad_norm
};

// Elements that LAMB's and LARS's AddSums adds as one tree.
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

// The sums of a step, in their order: LAMB and LARS have the first, Adafactor the first two.
enum class SumPass : uint8_t {
  kFirst,      // norms; for Adafactor and CAME of rows and columns too
  kUpdates,    // of the updates before they are clipped
  kResiduals,  // of rows and columns, of how far updates are from their average
};

// What Prepare leaves to others, where segments or factors lie on a device. Called within it.
struct StepElsewhere {
  // Adds the pass's sums of this rank's segments, which have been checked, in their order to
  // `sums`: what AddSums does.
  std::function<Status(SumPass pass, std::span<const Segment> segments, std::span<double> sums)>
      add_sums;
  // After kFirst and kResiduals, of sums over all ranks: what MakeFactors does.
  std::function<Status(SumPass pass, std::span<const double> sums)> make_factors;
};

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
  void SetTensor(size_t tensor, const TensorOptions& options);

  // `old_factors` and `new_factors` may be the same array: then a failed Prepare may leave it
  // changed. Elementwise optimizers may be given no segments. kCallbackFailed if `reduce` failed.
  // A rank whose segments are bad still reduces, so that the others fail with it and none hangs.
  // With `elsewhere` it reads no array of a segment itself, and with its make_factors no factors.
  Status Prepare(const StepScalars& scalars, std::span<const Segment> segments,
                 const float* old_factors, const ReduceSum& reduce, float* new_factors,
                 const StepElsewhere& elsewhere = {});

  // Of a step that is being prepared: adds a segment's to all sums, those that add_sums is given.
  // LAMB's and LARS's of calls that cut it at multiples of kNormsTree are the same. Of what is not
  // trained nothing is added. One thread at a time.
  Status AddSums(SumPass pass, const Segment& segment, double* sums);
  // Makes factors of all tensors, and scales, of the sums of kFirst or kResiduals. What is not
  // trained stays in `new_factors` as it is.
  Status MakeFactors(SumPass pass, std::span<const double> sums, const float* old_factors,
                     float* new_factors);

  // What Prepare found, 2 numbers per tensor, to be kept with a commit: with them and new_factors
  // an interrupted step is finished when part of the old state is gone already.
  std::span<const double> TensorSums() const { return tensor_sums_; }
  Status Restore(const StepScalars& scalars, std::span<const double> tensor_sums,
                 const float* new_factors);

  // For the kernels of a device: the options with which a segment, or a tensor, is stepped. Nothing
  // for those that are not trained, or bad.
  std::optional<OptimizerOptions> OptionsFor(const Segment& segment) const;
  std::optional<OptimizerOptions> OptionsFor(size_t tensor) const;
  size_t tensors() const { return tensors_.size(); }
  const FactorShape& ShapeOf(size_t tensor) const { return tensors_[tensor].shape; }
  // Where a tensor's numbers are.
  struct Place {
    uint64_t factors = 0;  // in factors and scales
    uint64_t sums = 0;     // of rows and columns, in the sums
  };
  const Place& PlaceOf(size_t tensor) const { return places_[tensor]; }
  // Of all tensors, FactorTotal() of them, as MakeFactors left them. Empty before it: where factors
  // were made elsewhere, the host adds and applies no segment of Adafactor and CAME.
  std::span<const float> Scales() const {
    return has_scales_ ? std::span<const float>(scales_) : std::span<const float>();
  }
  // Where kernels find them; the next Prepare and Restore forget it.
  void SetDeviceScales(const float* scales) { device_scales_ = scales; }
  const float* device_scales() const { return device_scales_; }

  // The arrays with the rounding of this segment's tensor in this step.
  ParameterArrays WithRounding(const Segment& segment, ParameterArrays new_arrays) const;

  // Whether Prepare or Restore has succeeded, so that segments can be applied...
  bool ready() const { return ready_; }
  // ... and whether Apply copies this one.
  bool Copies(const Segment& segment) const;

  // After Prepare or Restore. The rounding of state is the step's own. Thread-safe. kUnsupported
  // for what ApplyMatrices steps.
  Status Apply(const Segment& segment, const ParameterArrays& new_arrays) const;

  // Whether ApplyMatrices is to step this one, which must have all of its tensor.
  bool OfMatrices(const Segment& segment) const;
  // What ApplyMatrices needs, for the largest of all tensors, on so many threads.
  Status MatrixWorkspaceBytes(size_t threads, size_t* bytes) const;
  // Memory for that, aligned to 64 bytes. It stays the caller's.
  void SetMatrixWorkspace(std::span<std::byte> workspace) { matrix_workspace_ = workspace; }
  // As Apply, on the pool's threads or, without one, on the caller's; one call at a time.
  Status ApplyMatrices(const Segment& segment, const ParameterArrays& new_arrays,
                       ThreadPool* pool) const;

 private:
  OptimizerOptions OptionsOf(const TensorOptions& tensor) const;
  Status CheckTensor(const TensorOptions& tensor) const;
  Status CheckSegment(const Segment& segment) const;
  Status CheckRules() const;
  int StateArraysOf(const Segment& segment) const;
  MatrixShape MatricesOf(const TensorOptions& tensor) const;
  bool Trains(const Segment& segment) const;

  // Zeroes the sums of the pass, adds those of all segments, and reduces them. With another
  // `status` than kOk it only makes the other ranks fail, too.
  Status SumOverRanks(SumPass pass, std::span<const Segment> segments, const ReduceSum& reduce,
                      const StepElsewhere& elsewhere, Status status);
  Status CheckSegments(std::span<const Segment> segments) const;
  Status PrepareFactored(std::span<const Segment> segments, const float* old_factors,
                         const ReduceSum& reduce, float* new_factors,
                         const StepElsewhere& elsewhere);
  Status AddFirstSums(const OptimizerOptions& options, const Segment& segment, double* sums);
  Status AddUpdateSquares(const OptimizerOptions& options, const Segment& segment, double* sums);
  Status AddResidualSquares(const OptimizerOptions& options, const Segment& segment, double* sums);
  Status MakeFactorsThere(SumPass pass, const float* old_factors, float* new_factors,
                          const StepElsewhere& elsewhere);

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
  bool has_scales_ = false;
  const float* device_scales_ = nullptr;
  std::span<std::byte> matrix_workspace_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_H_
