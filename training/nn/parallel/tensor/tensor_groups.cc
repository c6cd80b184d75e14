#include "training/nn/parallel/tensor/tensor_groups.h"

#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace geminid::collectives {

absl::StatusOr<std::unique_ptr<TensorGroups>> TensorGroups::Connect(const TensorGrid& grid,
                                                                    Communicator& ranks,
                                                                    const ConnectDevices& devices) {
  Groups groups;
  for (int index = 0; index < kGridAxes; ++index) {
    const auto axis = static_cast<GridAxis>(index);
    if (!grid.mesh().Has(Name(axis))) continue;
    GEMINID_ASSIGN_OR_RETURN(auto connected, grid.mesh().Connect(ranks, {Name(axis)}));
    Group& group = groups[static_cast<size_t>(index)];
    group.ranks = connected.get();
    if (devices != nullptr) {
      GEMINID_ASSIGN_OR_RETURN(group.layers, devices(*connected));
    } else {
      group.layers = std::make_unique<HostAxisRanks>(*connected);
    }
    if (devices != nullptr || connected->WorldSize() == 1) {
      group.own = std::move(connected);
    } else {
      GEMINID_ASSIGN_OR_RETURN(group.queue, AsyncCommunicator::Start(std::move(connected)));
    }
  }
  return std::unique_ptr<TensorGroups>(new TensorGroups(grid, ranks.Rank(), std::move(groups)));
}

TensorGroups::TensorGroups(const TensorGrid& grid, int rank, Groups groups)
    : grid_(grid), rank_(rank), groups_(std::move(groups)) {}

ScopedPending TensorGroups::Begin(GridAxis axis, Exchange operations) {
  const Group& group = groups_[static_cast<size_t>(axis)];
  if (group.queue == nullptr) return ScopedPending(Pending(operations(*group.layers)));
  return ScopedPending(group.queue->Run([&group, operations = std::move(operations)](
                                            Communicator&) { return operations(*group.layers); }));
}

absl::Status TensorGroups::AddAlong(const Axes& axes, Buffer values) {
  for (const GridAxis axis : axes) {
    GEMINID_RETURN_IF_ERROR(Along(axis).AllReduce(values, values, ReduceOp::kSum));
  }
  return absl::OkStatus();
}

absl::Status TensorGroups::AddOnHost(const Axes& axes, Buffer values) {
  for (const GridAxis axis : axes) {
    GEMINID_RETURN_IF_ERROR(OnHost(axis).AllReduce(values, values));
  }
  return absl::OkStatus();
}

void TensorGroups::Abort(const std::string& reason) {
  for (const Group& group : groups_) {
    if (group.queue != nullptr) group.queue->Abort(reason);
    if (group.queue == nullptr && group.layers != nullptr) group.layers->Abort(reason);
  }
}

TensorGroups::Received TensorGroups::received() const {
  Received received;
  std::set<int> partners;
  for (int index = 0; index < kGridAxes; ++index) {
    const Group& group = groups_[static_cast<size_t>(index)];
    if (group.ranks == nullptr) continue;
    const std::vector<int> members =
        grid_.mesh().Group(rank_, {Name(static_cast<GridAxis>(index))});
    const CommunicatorStats stats = group.ranks->Stats();
    for (size_t member = 0; member < members.size(); ++member) {
      const uint64_t bytes = stats.peers[member].bytes_received;
      received.bytes += bytes;
      if (bytes > 0) partners.insert(members[member]);
    }
  }
  received.partners = static_cast<int>(partners.size());
  return received;
}

}  // namespace geminid::collectives
