#include "collectives/tensor_parallel/tensor_groups.h"

#include <set>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace geminid::collectives {

absl::StatusOr<std::unique_ptr<TensorGroups>> TensorGroups::Connect(const TensorGrid& grid,
                                                                    Communicator& ranks) {
  Groups groups;
  for (int index = 0; index < kGridAxes; ++index) {
    const auto axis = static_cast<GridAxis>(index);
    if (!grid.mesh().Has(Name(axis))) continue;
    auto group = grid.mesh().Connect(ranks, {Name(axis)});
    if (!group.ok()) return group.status();
    groups[static_cast<size_t>(index)] = *std::move(group);
  }
  return std::unique_ptr<TensorGroups>(new TensorGroups(grid, ranks.Rank(), std::move(groups)));
}

TensorGroups::TensorGroups(const TensorGrid& grid, int rank, Groups groups)
    : grid_(grid), rank_(rank), groups_(std::move(groups)) {}

absl::Status TensorGroups::AddAlong(const Axes& axes, Buffer values) {
  for (const GridAxis axis : axes) {
    GEMINID_RETURN_IF_ERROR(Along(axis).AllReduce(values, values));
  }
  return absl::OkStatus();
}

TensorGroups::Received TensorGroups::received() const {
  Received received;
  std::set<int> partners;
  for (int index = 0; index < kGridAxes; ++index) {
    const auto& group = groups_[static_cast<size_t>(index)];
    if (group == nullptr) continue;
    const std::vector<int> members =
        grid_.mesh().Group(rank_, {Name(static_cast<GridAxis>(index))});
    const CommunicatorStats stats = group->Stats();
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
