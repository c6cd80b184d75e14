// The communicators along the axes of a tensor-parallel grid, as this rank belongs to them.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_TENSOR_GROUPS_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_TENSOR_GROUPS_H_

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "collectives/tensor_parallel/tensor_grid.h"
#include "collectives/tensor_parallel/tensor_layout.h"
#include "geminid/communicator.h"

namespace geminid::collectives {

class TensorGroups {
 public:
  // A collective of the grid's ranks, which `ranks` is of. Lets go of `ranks` when it returns.
  static absl::StatusOr<std::unique_ptr<TensorGroups>> Connect(const TensorGrid& grid,
                                                               Communicator& ranks);

  const TensorGrid& grid() const { return grid_; }
  int rank() const { return rank_; }

  // Of the ranks that differ from this one along `axis` alone. The grid has this axis.
  Communicator& Along(GridAxis axis) { return *groups_[static_cast<size_t>(axis)]; }

  // `values` added up over all ranks that differ along these axes alone, one axis after the other.
  absl::Status AddAlong(const Axes& axes, Buffer values);

  // Payload bytes received so far, and from how many ranks of the grid any came.
  struct Received {
    uint64_t bytes = 0;
    int partners = 0;
  };
  Received received() const;

 private:
  using Groups = std::array<std::unique_ptr<Communicator>, kGridAxes>;

  TensorGroups(const TensorGrid& grid, int rank, Groups groups);

  TensorGrid grid_;
  int rank_;
  Groups groups_;  // null where the grid has no such axis
};

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_TENSOR_GROUPS_H_
