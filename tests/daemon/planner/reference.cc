#include "tests/daemon/planner/reference.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace geminid::planner {
namespace {

using Set = std::uint32_t;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

class Exhaustive {
 public:
  Exhaustive(const Trace& trace, bool weights_change) : trace_(trace) {
    const std::size_t sets = std::size_t{1} << trace.chunks.size();
    size_.resize(sets);
    transfer_.resize(sets);
    for (std::size_t set = 0; set < sets; ++set) {
      for (std::size_t i = 0; i < trace.chunks.size(); ++i) {
        if ((set >> i & 1) == 0) continue;
        size_[set] += trace.chunks[i].size_bytes;
        transfer_[set] += trace.chunks[i].transfer_bytes;
      }
    }
    for (std::size_t i = 0; i < trace.chunks.size(); ++i) {
      if (!weights_change || trace.chunks[i].frozen) lasting_ |= Set{1} << i;
    }
  }

  std::uint64_t Solve() const {
    std::uint64_t least = kNever;
    for (Set start = 0; start < size_.size(); ++start) {
      if ((start & ~lasting_) == 0) least = std::min(least, SolveFrom(start));
    }
    return least;
  }

 private:
  // The least cost of an iteration that begins and ends with the chunks of `start` in the arena.
  std::uint64_t SolveFrom(Set start) const {
    std::vector<std::uint64_t> cost(size_.size(), kNever);
    cost[start] = 0;
    for (const MomentTrace& moment : trace_.moments) {
      Set used = 0;
      Set invalidated = 0;
      for (const Use& use : moment.uses) {
        used |= Set{1} << use.chunk;
        if (use.invalidates) invalidated |= Set{1} << use.chunk;
      }
      std::vector<std::uint64_t> next(size_.size(), kNever);
      for (Set held = 0; held < size_.size(); ++held) {
        if (cost[held] == kNever) continue;
        const Set optional = held & ~used;
        const std::uint64_t paid = cost[held] + transfer_[used & ~held];
        for (Set retained = optional;; retained = (retained - 1) & optional) {
          if (size_[retained | used] + moment.workspace_bytes <= trace_.arena_bytes) {
            std::uint64_t& best = next[(retained | used) & ~invalidated];
            best = std::min(best, paid);
          }
          if (retained == 0) break;
        }
      }
      cost = next;
    }
    std::uint64_t least = kNever;
    for (Set held = 0; held < size_.size(); ++held) {
      if ((start & ~held) == 0) least = std::min(least, cost[held]);
    }
    return least;
  }

  const Trace& trace_;
  std::vector<std::uint64_t> size_;
  std::vector<std::uint64_t> transfer_;
  Set lasting_ = 0;
};

}  // namespace

std::uint64_t ExhaustiveLeastBytes(const Trace& trace, bool weights_change_between_iterations) {
  return Exhaustive(trace, weights_change_between_iterations).Solve();
}

}  // namespace geminid::planner
