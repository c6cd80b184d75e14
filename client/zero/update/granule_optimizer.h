// The optimizer on this rank's granules: what must be known of whole tensors first, at the commit,
// then every granule out of place, in any order.
#ifndef GEMINID_CLIENT_ZERO_UPDATE_GRANULE_OPTIMIZER_H_
#define GEMINID_CLIENT_ZERO_UPDATE_GRANULE_OPTIMIZER_H_

#include <cstdint>
#include <optional>
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
  // `options` must have passed CheckOptimizer, and CheckPieces if they have a model: then the
  // tensors of all that follows are the model's. `layout` outlives it.
  GranuleOptimizer(const Layout& layout, const std::vector<Parameter>& parameters, int rank,
                   const Options& options);

  absl::Status status() const;

  // What the state store must have for it.
  size_t state_arrays() const { return static_cast<size_t>(kernels::StateArrays(options_)); }
  size_t matrix_state_arrays() const {
    return static_cast<size_t>(kernels::MatrixStateArrays(options_));
  }
  uint64_t tensor_state_bytes() const;
  // Host memory that updates of matrices need on so many threads, and where it is: before the
  // first.
  absl::StatusOr<uint64_t> WorkspaceBytes(size_t threads) const;
  void SetWorkspace(std::span<std::byte> workspace) { step_.SetMatrixWorkspace(workspace); }
  uint64_t device_scale_bytes() const { return step_.FactorTotal() * sizeof(float); }

  // Of each tensor, the elements that this rank adds to sums; none for optimizers that need none.
  std::vector<int64_t> CountedElements() const;

  // All ranks together, when all gradients are reduced and no update is in progress: sums over
  // whole tensors, for the optimizers that need any. Writes the store's spare tensor state: the
  // sums of every tensor, then all factors, then the counts of updates. `rates`: by parameter; a
  // model's tensors have none of their own.
  absl::Status Prepare(const kernels::StepScalars& scalars, std::span<const TensorRates> rates,
                       const StateStore& store, collectives::Communicator* communicator);

  // Instead, to finish a step that another process prepared: `tensor_state` is what it wrote.
  absl::Status Restore(const StepNote& note, std::span<const std::byte> tensor_state);

  // A run's tensor state as this optimizer keeps it: it may come from an engine that counts updates
  // by parameter, or from one that does not. INVALID_ARGUMENT where that cannot be.
  absl::StatusOr<std::vector<std::byte>> Adopt(const Progress& progress,
                                               const std::vector<Parameter>& parameters) const;
  // What the store has now is this; the next Prepare goes on from there.
  void GoOnFrom(std::span<const std::byte> tensor_state);

  // Writes the granule's next version to its spare, on the pool's threads if there are several. The
  // bits do not depend on how many.
  absl::Status Update(uint32_t granule, const StateStore& store, kernels::ThreadPool* pool) const;
  // The same on the host, from and to other places than the store's; which may be the same place.
  absl::Status UpdateBetween(uint32_t granule, const StateView& from, const StateView& to,
                             const StateStore& store, kernels::ThreadPool* pool) const;

  // Elements of a granule whose state and gradient have been brought to the device.
  struct Slice {
    uint32_t granule = 0;
    uint64_t begin = 0;
    uint64_t elements = 0;
    StateView state{};  // from its first element on, as the gradient
    const std::byte* gradient = nullptr;
    DataType gradient_type = DataType::kBFloat16;
  };
  // Queues the update of the slice, in place. Its bits are those of Update.
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
  // Without counts: where they would be.
  uint64_t SumsAndFactorsBytes() const;
  // The part of the run that lies in [begin, end) of its granule.
  static Run PartOf(const Run& run, uint64_t begin, uint64_t end);
  kernels::Segment SegmentOf(const Run& run, const Slice& at) const;
  // Of a whole granule whose state is there.
  kernels::Segment SegmentOf(const Run& run, uint32_t granule, const StateView& state,
                             const StateStore& store) const;
  kernels::Status Apply(const Run& run, uint32_t granule, const StateView& from,
                        const StateView& to, const StateStore& store) const;
  // On the host: all runs are whole tensors, or none.
  absl::Status UpdateMatrices(uint32_t granule, const StateStore& store,
                              kernels::ThreadPool* pool) const;
  bool HasMatrices(uint32_t granule) const;
  absl::Status UpdateOnDevice(uint32_t granule, const StateStore& store,
                              kernels::ThreadPool* pool) const;
  std::vector<kernels::Segment> AllSegments(const StateStore& store) const;

  const Layout& layout_;
  const kernels::OptimizerOptions options_;
  const bool needs_sums_;
  const bool of_model_;
  const size_t tensors_;
  const std::vector<kernels::TensorOptions> tensor_options_;  // as given at the start
  kernels::ShardedStep step_;
  UpdateCounts updates_;
  std::vector<std::vector<Run>> runs_;  // by granule; frozen granules have none
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_UPDATE_GRANULE_OPTIMIZER_H_
