// The communicators of this rank along the axes of a tensor-parallel grid.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GROUPS_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GROUPS_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/async_communicator.h"
#include "geminid/communicator.h"
#include "training/nn/parallel/axis_ranks.h"
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/tensor/scoped_pending.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {

// Operations that the ranks of a group run together.
using Exchange = std::function<absl::Status(AxisRanks&)>;

// Makes, of the ranks along an axis, what exchanges the memory of their devices. The communicator
// outlives the result.
using ConnectDevices =
    std::function<absl::StatusOr<std::unique_ptr<AxisRanks>>(Communicator& ranks)>;

class TensorGroups {
 public:
  // A collective of the grid's ranks; `ranks` is their communicator and is not used afterwards.
  // Null `devices`: the layers' memory is the host's.
  static absl::StatusOr<std::unique_ptr<TensorGroups>> Connect(
      const TensorGrid& grid, Communicator& ranks, const ConnectDevices& devices = nullptr);

  const TensorGrid& grid() const { return grid_; }
  int rank() const { return rank_; }

  // The ranks that differ from this rank only along `axis`, which the grid has. Do not use them
  // while an operation of Begin runs along this axis. OnHost is for buffers in host memory.
  AxisRanks& Along(GridAxis axis) { return *groups_[static_cast<size_t>(axis)].layers; }
  Communicator& OnHost(GridAxis axis) { return *groups_[static_cast<size_t>(axis)].ranks; }

  // Runs operations of the same ranks in the background. Operations along an axis run in the order
  // of these calls, on that axis's thread. All ranks of the group make the same calls in the same
  // order. If the group has one rank, or devices compute, the operations are done on return.
  ScopedPending Begin(GridAxis axis, Exchange operations);

  // Sums `values` over all ranks that differ only along these axes, one axis after another.
  absl::Status AddAlong(const Axes& axes, Buffer values);
  absl::Status AddOnHost(const Axes& axes, Buffer values);

  // Ends the current and all later waits of the ranks that share an axis with this rank, with
  // ABORTED and `reason`.
  void Abort(const std::string& reason);
  // Returns `taken`; if it is a refusal, tells the other ranks.
  template <typename Taken>
  absl::StatusOr<Taken> OrTellRanks(absl::StatusOr<Taken> taken) {
    (void)TellIfRefused(*this, taken.status());
    return taken;
  }

  // The payload bytes received so far, and the number of the grid's ranks that sent any.
  struct Received {
    uint64_t bytes = 0;
    int partners = 0;
  };
  Received received() const;

 private:
  struct Group {
    std::unique_ptr<Communicator> own;         // if there is no queue
    std::unique_ptr<AsyncCommunicator> queue;  // if the group has several ranks and hosts compute
    Communicator* ranks = nullptr;      // of `own` or `queue`; null if the grid has no such axis
    std::unique_ptr<AxisRanks> layers;  // the same ranks
  };
  using Groups = std::array<Group, kGridAxes>;

  TensorGroups(const TensorGrid& grid, int rank, Groups groups);

  TensorGrid grid_;
  int rank_;
  Groups groups_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GROUPS_H_
