// The optimizer on this rank's granules. At the commit it computes sums over whole tensors. After
// that it updates every granule out of place, in any order.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_GRANULE_OPTIMIZER_H_
#define GEMINID_CLIENT_ZERO_UPDATE_GRANULE_OPTIMIZER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/zero/basics/layout.h"
#include "client/zero/state/state_store.h"
#include "client/zero/state/step_notes.h"
#include "client/zero/state/update_counts.h"
#include "geminid/communicator.h"
#include "geminid/zero.h"
#include "kernels/optimizers/sharded_step.h"
#include "kernels/runtime/parallel/thread_pool.h"

namespace geminid::zero {

class GranuleOptimizer {
 public:
  // `options` must have passed CheckOptimizer and, if they have a model, CheckPieces. With a model,
  // every "tensor" below is a tensor of the model. `layout` outlives this object.
  GranuleOptimizer(const Layout& layout, const std::vector<Parameter>& parameters, int rank,
                   const Options& options);

  absl::Status status() const;

  // What the state store must hold for this optimizer.
  size_t state_arrays() const { return static_cast<size_t>(kernels::StateArrays(options_)); }
  size_t matrix_state_arrays() const {
    return static_cast<size_t>(kernels::MatrixStateArrays(options_));
  }
  uint64_t tensor_state_bytes() const;
  // Host memory that updates of matrices need on so many threads. SetWorkspace says where it is,
  // before the first update.
  absl::StatusOr<uint64_t> WorkspaceBytes(size_t threads) const;
  void SetWorkspace(std::span<std::byte> workspace) { step_.SetMatrixWorkspace(workspace); }
  uint64_t device_scale_bytes() const { return step_.FactorTotal() * sizeof(float); }

  // By tensor, the elements that this rank adds to sums. Empty for optimizers without sums.
  std::vector<int64_t> CountedElements() const;

  // All ranks together, after all gradients are reduced and while no update is in progress. Sums
  // over whole tensors, for optimizers that need sums. Writes the store's spare tensor state: the
  // sums of every tensor, then all factors, then the counts of updates. `rates`: by parameter;
  // ignored for a model's tensors, which have no rates of their own.
  absl::Status Prepare(const kernels::StepScalars& scalars, std::span<const TensorRates> rates,
                       const StateStore& store, collectives::Communicator* communicator);

  // Replaces Prepare if another process prepared the step and wrote this `tensor_state`.
  absl::Status Restore(const StepNote& note, std::span<const std::byte> tensor_state);

  // Converts a run's tensor state to this optimizer's form: the engine that wrote it may or may not
  // have counted updates by parameter. INVALID_ARGUMENT if the conversion is impossible.
  absl::StatusOr<std::vector<std::byte>> Adopt(const Progress& progress,
                                               const std::vector<Parameter>& parameters) const;
  // The store's current tensor state is `tensor_state`; the next Prepare continues from it.
  void GoOnFrom(std::span<const std::byte> tensor_state);

  // Writes the granule's next version to its spare, on the pool's threads if it has several. The
  // result does not depend on their number.
  absl::Status Update(uint32_t granule, const StateStore& store, kernels::ThreadPool* pool) const;
  // The same on the host, for state outside of the store. The result is the next version there.
  absl::Status UpdateInPlace(uint32_t granule, const StateView& state, const StateStore& store,
                             kernels::ThreadPool* pool) const {
    return UpdateBetween(granule, state, state, store, pool);
  }

  // A slice of a granule, with its state and gradient in the device's memory.
  struct Slice {
    uint32_t granule = 0;
    uint64_t begin = 0;
    uint64_t elements = 0;
    StateView state{};  // begins at the slice's first element, like the gradient
    const std::byte* gradient = nullptr;
    DataType gradient_type = DataType::kBFloat16;
  };
  // Queues an update of the slice in place. The result is bit-identical to Update's.
  void QueueInPlace(const Slice& slice, const ComputePlace& place, kernels::ThreadPool* pool) const;

 private:
  // Consecutive elements of a granule that belong to one tensor, or to none.
  struct Run {
    uint32_t tensor = kernels::kNoTensor;
    uint64_t tensor_offset = 0;
    uint64_t granule_offset = 0;
    uint64_t elements = 0;
    bool counts = false;  // in sums over the tensor
  };

  double SetRates(const kernels::StepScalars& scalars, std::span<const TensorRates> rates);
  void MakeRuns(const std::vector<Parameter>& parameters, int rank,
                const std::vector<Parameter>& model);
  absl::Status WriteTensorState(const StateStore& store) const;
  // The bytes of the tensor state before the counts of updates.
  uint64_t SumsAndFactorsBytes() const;
  // The elements of the run that are in [begin, end) of its granule.
  static Run PartOf(const Run& run, uint64_t begin, uint64_t end);
  kernels::Segment SegmentOf(const Run& run, const Slice& at) const;
  // For a whole granule, whose state is `state`.
  kernels::Segment SegmentOf(const Run& run, uint32_t granule, const StateView& state,
                             const StateStore& store) const;
  kernels::Status Apply(const Run& run, uint32_t granule, const StateView& from,
                        const StateView& to, const StateStore& store) const;
  // On the host.
  absl::Status UpdateBetween(uint32_t granule, const StateView& from, const StateView& to,
                             const StateStore& store, kernels::ThreadPool* pool) const;
  // The runs of such a granule are all whole tensors, or none is.
  absl::Status UpdateMatrices(uint32_t granule, const StateView& from, const StateView& to,
                              const StateStore& store, kernels::ThreadPool* pool) const;
  bool HasMatrices(uint32_t granule) const;
  absl::Status UpdateOnDevice(uint32_t granule, const StateStore& store,
                              kernels::ThreadPool* pool) const;
  // A segment of state on disk, which is in memory when a pass over all of them comes to it.
  struct Segments {
    std::vector<kernels::Segment> all;
    std::vector<Run> runs;           // that they are of
    std::vector<uint32_t> granules;  // that these lie in
  };
  Segments AllSegments(const StateStore& store) const;
  // What ShardedStep::AddSums adds for all of them, in their order.
  absl::Status AddSums(kernels::SumPass pass, const Segments& segments, const StateStore& store,
                       std::span<double> sums);
  // Of segments some of which are on disk: the host alone computes.
  absl::Status PrepareFromDisk(const kernels::StepScalars& scalars, const Segments& segments,
                               const float* old_factors, const kernels::ReduceSum& reduce,
                               float* new_factors, const StateStore& store);

  const Layout& layout_;
  const kernels::OptimizerOptions options_;
  const bool needs_sums_;
  const bool of_model_;
  const size_t tensors_;
  const std::vector<kernels::TensorOptions> tensor_options_;  // as they were at construction
  kernels::ShardedStep step_;
  UpdateCounts updates_;
  std::vector<std::vector<Run>> runs_;  // by granule; frozen granules have none
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_GRANULE_OPTIMIZER_H_
