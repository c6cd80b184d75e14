// The order in which jobs get other rows, so that the node has room at each step.
#ifndef GEMINID_DAEMON_PLANNER_SHARING_MOVE_ORDER_H_
#define GEMINID_DAEMON_PLANNER_SHARING_MOVE_ORDER_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "daemon/planner/sharing/share.h"

namespace geminid::planner {

struct Move {
  std::size_t job = 0;  // index among the jobs
  std::optional<std::size_t> from{};
  std::optional<std::size_t> to{};  // rows of the job; nothing: it waits
  bool operator==(const Move&) const = default;
};

// The moves from the jobs' present rows to `rows`. If jobs would have to swap rows, the job of the
// lowest priority without a guarantee waits in between. Nothing: no order keeps all guarantees.
std::optional<std::vector<Move>> OrderMoves(const Share& node, std::span<const SharingJob> jobs,
                                            std::span<const std::optional<std::size_t>> rows);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_SHARING_MOVE_ORDER_H_
