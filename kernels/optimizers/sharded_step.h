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

// A step of any optimizer over tensors that are divided into segments and sharded over ranks.
//
//   ShardedStep step(options, tensors);
//   each step, all ranks together:
//     step.Prepare(scalars, this rank's segments, old_factors, reduce, new_factors);
//     for each segment, later, in any order, on any threads: step.Apply(segment, new_arrays);
//
// Prepare reads the old state and all gradients, and writes no parameters. It calls `reduce` the
// same number of times on every rank: 0 for elementwise optimizers, 1 for LAMB and LARS, 2 for
// Adafactor, 3 for CAME. Apply is the step itself, from old arrays to new ones or in place.
//
// Muon's matrices are not divided: a segment is a whole tensor, and ApplyMatrices steps it.
//
// Bits: elementwise optimizers give those of the dense step for any division into segments, with
// state in either form. The others add sums over segments in float64, in the order of the segments
// given. So the bits are the same for the same segments in the same order, and equal up to rounding
// for other segments and world sizes.
namespace geminid::kernels {

// The options of one tensor.
struct TensorOptions {
  // Row-major; rows = 1 for vectors. Of other tensors the last dimension is the columns.
  FactorShape shape;
  double learning_rate_scale = 1.0;  // >= 0
  // Replace the optimizer's hyperparameters; those that it does not have are ignored. beta1 is also
  // the momentum of SGD and LARS.
  std::optional<double> weight_decay = {};
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> epsilon = {};
  // The number of this tensor's next update, if it skipped some steps; 0: StepScalars::step.
  uint64_t step = 0;
  bool frozen = false;  // Apply copies; Prepare ignores its segments
  // With Muon: the tensor consists of matrices of so many rows each, one after the other; 0: it is
  // no matrix, and AdamW steps it.
  uint64_t matrix_rows = 0;
  // A hash of the tensor's name; seeds the rounding of its state (StateRounding).
  uint64_t rounding_id = 0;
};

// The scalars of one step.
struct StepScalars {
  uint64_t step = 1;  // >= 1
  double learning_rate = 0;
  double grad_scale = 1;     // clip coefficient / loss scale
  double gradient_norm = 0;  // over all ranks, of grad_scale * gradient; for LAMB's max_grad_norm
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

// Sums `values` over all ranks, in place, with the same bits on every rank. False if that failed.
using ReduceSum = std::function<bool(std::span<double> values)>;

// The sums of a step, in their order: LAMB and LARS have the first, Adafactor the first two.
enum class SumPass : uint8_t {
  kFirst,      // norms; for Adafactor and CAME also sums over rows and columns
  kUpdates,    // squares of the updates before clipping
  kResiduals,  // by rows and columns: how far updates are from their average
};

// Work that Prepare delegates where segments or factors lie on a device. Prepare calls these.
struct StepElsewhere {
  // Does AddSums: adds the pass's sums of this rank's segments, which have been checked, to `sums`
  // in the order of the segments.
  std::function<Status(SumPass pass, std::span<const Segment> segments, std::span<double> sums)>
      add_sums;
  // Does MakeFactors, after kFirst and kResiduals, with the sums over all ranks.
  std::function<Status(SumPass pass, std::span<const double> sums)> make_factors;
};

class ShardedStep {
 public:
  // Allocates everything that steps need: per tensor 4 numbers, and for Adafactor and CAME 8 + 4
  // bytes per factor and 8 per column of the widest matrix.
  ShardedStep(const OptimizerOptions& options, std::vector<TensorOptions> tensors);

  // Whether the options and the tensors are valid; Prepare returns this too.
  Status status() const { return status_; }

  // The factors of all tensors together: the length of the arrays of factors given to Prepare.
  uint64_t FactorTotal() const { return factor_total_; }

  // Sets a tensor's options from the next Prepare on; its shape cannot change. A tensor frozen for
  // a step keeps its weights, state and factors. A tensor frozen from the start stays frozen.
  void SetTensor(size_t tensor, const TensorOptions& options);

  // `old_factors` and `new_factors` may be the same array: then a failed Prepare may leave it
  // changed. Elementwise optimizers may be given no segments. kCallbackFailed if `reduce` failed. A
  // rank whose segments are invalid still reduces, so that the others fail with it and none hangs.
  // With `elsewhere` Prepare itself reads no array of a segment; with its make_factors, no factors.
  Status Prepare(const StepScalars& scalars, std::span<const Segment> segments,
                 const float* old_factors, const ReduceSum& reduce, float* new_factors,
                 const StepElsewhere& elsewhere = {});

  // During Prepare: adds a segment's sums to `sums`, the array that add_sums gets. For LAMB and
  // LARS, calls that divide a segment at multiples of kNormsTree give the same sums. Adds nothing
  // for segments that are not trained. One thread at a time.
  Status AddSums(SumPass pass, const Segment& segment, double* sums);
  // Computes the factors of all tensors, and scales, from the sums of kFirst or kResiduals. Factors
  // of tensors that are not trained stay as they are in `new_factors`.
  Status MakeFactors(SumPass pass, std::span<const double> sums, const float* old_factors,
                     float* new_factors);

  // The sums that Prepare found, 2 numbers per tensor. Store them with a commit: with them and
  // new_factors, Restore lets an interrupted step finish after part of the old state is gone.
  std::span<const double> TensorSums() const { return tensor_sums_; }
  Status Restore(const StepScalars& scalars, std::span<const double> tensor_sums,
                 const float* new_factors);

  // For device kernels: the options with which a segment, or a tensor, is stepped. nullopt for
  // those that are not trained, or invalid.
  std::optional<OptimizerOptions> OptionsFor(const Segment& segment) const;
  std::optional<OptimizerOptions> OptionsFor(size_t tensor) const;
  size_t tensors() const { return tensors_.size(); }
  const FactorShape& ShapeOf(size_t tensor) const { return tensors_[tensor].shape; }
  // Where a tensor's numbers begin.
  struct Place {
    uint64_t factors = 0;  // in factors and scales
    uint64_t sums = 0;     // of rows and columns, in the sums
  };
  const Place& PlaceOf(size_t tensor) const { return places_[tensor]; }
  // The scales of all tensors, FactorTotal() of them, from the last MakeFactors; empty before. If
  // factors were made elsewhere, the host adds and applies no segment of Adafactor and CAME.
  std::span<const float> Scales() const {
    return has_scales_ ? std::span<const float>(scales_) : std::span<const float>();
  }
  // Sets where device kernels find the scales; the next Prepare or Restore clears it.
  void SetDeviceScales(const float* scales) { device_scales_ = scales; }
  const float* device_scales() const { return device_scales_; }

  // Returns `new_arrays` with the rounding of the segment's tensor for this step.
  ParameterArrays WithRounding(const Segment& segment, ParameterArrays new_arrays) const;

  // Whether Prepare or Restore has succeeded, so that segments can be applied.
  bool ready() const { return ready_; }
  // Whether Apply only copies this segment.
  bool Copies(const Segment& segment) const;

  // After Prepare or Restore. Apply sets the rounding of state itself. Thread-safe. kUnsupported
  // for segments that ApplyMatrices steps.
  Status Apply(const Segment& segment, const ParameterArrays& new_arrays) const;

  // Whether ApplyMatrices steps this segment, which must be a whole tensor.
  bool OfMatrices(const Segment& segment) const;
  // Bytes of workspace that ApplyMatrices needs for the largest tensor on `threads` threads.
  Status MatrixWorkspaceBytes(size_t threads, size_t* bytes) const;
  // Sets that workspace, aligned to 64 bytes; the caller still owns it.
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

  // Zeroes the sums of the pass, adds those of all segments, and reduces them. If `status` is not
  // kOk, it only reduces, so that the other ranks fail too.
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
  std::vector<double> sums_;          // to reduce: 2 per tensor, then rows and columns
  std::vector<double> column_space_;  // of the widest matrix
  std::vector<double> tensor_sums_;   // what Apply needs: ||w||^2 and ||u||^2, for LARS ||g||^2
  std::vector<float> scales_;
  bool has_scales_ = false;
  const float* device_scales_ = nullptr;
  std::span<std::byte> matrix_workspace_;
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_OPTIMIZERS_SHARDED_STEP_H_
