#include "daemon/planner/sharing/move_order.h"

#include <algorithm>

#include "daemon/planner/sharing/sharing_problem.h"

namespace geminid::planner {
namespace {

// The first pending move that fits, or none.
std::optional<std::size_t> FindFitting(std::span<const SharingJob> jobs,
                                       const std::vector<Move>& pending,
                                       const ResourceAmounts& free) {
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const SharingJob& job = jobs[pending[i].job];
    if (Fits(AmountsOf(job, pending[i].to), Plus(free, AmountsOf(job, pending[i].from)))) return i;
  }
  return std::nullopt;
}

// The job that may wait in between, or none.
std::optional<std::size_t> FindVictim(std::span<const SharingJob> jobs,
                                      const std::vector<Move>& pending) {
  std::optional<std::size_t> victim;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const SharingJob& job = jobs[pending[i].job];
    if (!pending[i].from || job.guarantee != Share{}) continue;
    if (!victim || job.priority < jobs[pending[*victim].job].priority) victim = i;
  }
  return victim;
}

}  // namespace

std::optional<std::vector<Move>> OrderMoves(const Share& node, std::span<const SharingJob> jobs,
                                            std::span<const std::optional<std::size_t>> rows) {
  ResourceAmounts free = node.amounts();
  std::vector<Move> pending;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    free = Minus(free, AmountsOf(jobs[j], jobs[j].row));
    if (jobs[j].row != rows[j]) pending.push_back({j, jobs[j].row, rows[j]});
  }
  std::vector<Move> ordered;
  while (!pending.empty()) {
    const std::optional<std::size_t> fitting = FindFitting(jobs, pending, free);
    const std::optional<std::size_t> next = fitting ? fitting : FindVictim(jobs, pending);
    if (!next) return std::nullopt;
    Move& move = pending[*next];
    const Move step = {move.job, move.from, fitting ? move.to : std::nullopt};
    free =
        Minus(Plus(free, AmountsOf(jobs[move.job], step.from)), AmountsOf(jobs[move.job], step.to));
    ordered.push_back(step);
    move.from = step.to;
    if (fitting) pending.erase(pending.begin() + static_cast<std::ptrdiff_t>(*next));
  }
  return ordered;
}

}  // namespace geminid::planner
