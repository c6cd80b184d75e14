// The communicators along the axes of a tensor-parallel grid, as this rank belongs to them.
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
#include "training/nn/parallel/memory.h"
#include "training/nn/parallel/tensor/begun.h"
#include "training/nn/parallel/tensor/tensor_grid.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {

// Operations of the ranks of a group.
using Exchange = std::function<absl::Status(Communicator&)>;

class TensorGroups {
 public:
  // A collective of the grid's ranks, which `ranks` is of. Lets go of `ranks` when it returns.
  static absl::StatusOr<std::unique_ptr<TensorGroups>> Connect(const TensorGrid& grid,
                                                               Communicator& ranks);

  const TensorGrid& grid() const { return grid_; }
  int rank() const { return rank_; }

  // Of the ranks that differ from this one along `axis` alone. The grid has this axis. Not while
  // something that was begun along it goes on.
  Communicator& Along(GridAxis axis) { return *groups_[static_cast<size_t>(axis)].ranks; }

  // The same ranks, beside what the caller does: operations along an axis run in the order of these
  // calls, on a thread of that axis. All ranks of the group make the same calls in the same order.
  // Where there is one rank they are done when this returns.
  Begun Begin(GridAxis axis, Exchange operations);

  // `values` added up over all ranks that differ along these axes alone, one axis after the other.
  absl::Status AddAlong(const Axes& axes, Buffer values);

  // What the ranks of the grid that share an axis with this one wait for ends with ABORTED and
  // `reason`, and so does all that comes later.
  void Abort(const std::string& reason);
  // Hands on what this rank takes for a call; if it was refused, the others are told.
  template <typename Taken>
  absl::StatusOr<Taken> OrTell(absl::StatusOr<Taken> taken) {
    (void)TellIfRefused(*this, taken.status());
    return taken;
  }

  // Payload bytes received so far, and from how many ranks of the grid any came.
  struct Received {
    uint64_t bytes = 0;
    int partners = 0;
  };
  Received received() const;

 private:
  struct Group {
    std::unique_ptr<Communicator> alone;       // of one rank
    std::unique_ptr<AsyncCommunicator> queue;  // of several
    Communicator* ranks = nullptr;             // of either; null where the grid has no such axis
  };
  using Groups = std::array<Group, kGridAxes>;

  TensorGroups(const TensorGrid& grid, int rank, Groups groups);

  TensorGrid grid_;
  int rank_;
  Groups groups_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_GROUPS_H_
