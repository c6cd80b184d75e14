#ifndef GEMINID_DAEMON_PLANNER_RETENTION_FARTHEST_FIRST_H_
#define GEMINID_DAEMON_PLANNER_RETENTION_FARTHEST_FIRST_H_

#include <cstddef>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "daemon/planner/problem/problem.h"

namespace geminid::planner {

// Belady's rule with a capacity per moment, run over one iteration after another. At each moment
// the chunks in an interior of a gap share `free_bytes`. If they exceed it, the chunk with the
// farthest next use gives way. kWhole evicts whole chunks, which is what a plan can do. kBytes
// evicts only the missing bytes, which is optimal if each byte is a page of its own.
//
// Starts with every gap over the boundary held in full, for free. So the bytes lost in the first q
// iterations are a lower bound on the loss of any schedule in q iterations.
//
// O(G log G) per iteration for G gaps. The gap number decides ties.
class FarthestFirst {
 public:
  enum class EvictionUnit { kWhole, kBytes };

  // `takes_part` says per gap whether the gap competes; gaps without value must not. All arguments
  // are held by reference and must outlive this object.
  FarthestFirst(const Problem& problem, const std::vector<std::int64_t>& free_bytes,
                const std::vector<std::uint8_t>& takes_part, EvictionUnit unit);

  void RunIteration();

  // Per gap, the bytes still held when the gap ended in the last iteration. For a gap over the
  // boundary, the gap that started an iteration earlier counts. Zero for gaps that do not take
  // part.
  const std::vector<std::int64_t>& kept_bytes() const { return kept_bytes_; }

  // Bytes lost in gaps that ended in the last iteration.
  std::int64_t lost_bytes() const { return lost_bytes_; }

  // Bytes held now per gap: the whole state at the end of an iteration. If it equals the state of
  // an earlier iteration, everything between the two repeats for ever.
  const std::vector<std::int64_t>& held_bytes() const { return held_bytes_; }

 private:
  void Start(std::size_t gap, std::int64_t end);
  void Shrink(std::int64_t free_bytes);
  void Finish(std::size_t gap);
  std::int64_t ExtentBytes(std::size_t gap) const {
    return problem_.items[problem_.gaps[gap].item].extent_bytes;
  }

  const Problem& problem_;
  const std::vector<std::int64_t>& free_bytes_;
  const std::vector<std::uint8_t>& takes_part_;
  const EvictionUnit unit_;
  std::vector<std::vector<std::uint32_t>> starting_;  // gaps by first interior moment
  std::vector<std::vector<std::uint32_t>> ending_;    // gaps by last interior moment
  std::vector<std::uint32_t> without_interior_;
  std::priority_queue<std::pair<std::int64_t, std::uint32_t>> by_end_;
  std::vector<std::int64_t> held_bytes_;
  std::vector<std::int64_t> kept_bytes_;
  std::int64_t now_ = 0;
  std::int64_t occupied_bytes_ = 0;
  std::int64_t lost_bytes_ = 0;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_RETENTION_FARTHEST_FIRST_H_
