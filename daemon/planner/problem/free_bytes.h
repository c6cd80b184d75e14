#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_FREE_BYTES_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_FREE_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace geminid::planner {

// Free bytes per moment of a cyclic iteration, with range queries in O(log N): a segment tree.
// Ranges [first, last] are unrolled moments with -N <= first and last < 2N. A range may be empty
// (last < first) but not longer than N moments.
class FreeBytes {
 public:
  explicit FreeBytes(const std::vector<std::int64_t>& bytes);

  // Adds `bytes` (may be negative) to every moment of the range.
  void Add(std::int64_t first, std::int64_t last, std::int64_t bytes);

  // Whether every moment of the range has at least `bytes`.
  bool Has(std::int64_t first, std::int64_t last, std::int64_t bytes) const {
    return LastBelow(first, last, bytes) < first;
  }

  // The last moment of the range with less than `bytes`, or first - 1 if there is none.
  std::int64_t LastBelow(std::int64_t first, std::int64_t last, std::int64_t bytes) const;

 private:
  void Build(std::size_t node, std::int64_t low, std::int64_t high,
             const std::vector<std::int64_t>& bytes);
  void AddIn(std::size_t node, std::int64_t low, std::int64_t high, std::int64_t first,
             std::int64_t last, std::int64_t bytes);
  std::int64_t LastBelowIn(std::size_t node, std::int64_t low, std::int64_t high,
                           std::int64_t first, std::int64_t last, std::int64_t bytes) const;

  std::int64_t num_moments_;
  std::vector<std::int64_t> min_;    // of the node's moments, with its own pending sum
  std::vector<std::int64_t> added_;  // bytes that were added to the whole node
};

// Splits an unrolled range into parts within [0, num_moments), and calls visit(first, last, shift)
// for each, the later part first. `shift` is the number that was added to map the part.
template <typename Visitor>
void ForEachPart(std::int64_t first, std::int64_t last, std::int64_t num_moments,
                 const Visitor& visit) {
  for (std::int64_t cycle = 1; cycle >= -1; --cycle) {
    const std::int64_t start = cycle * num_moments;
    const std::int64_t low = first > start ? first : start;
    const std::int64_t high = last < start + num_moments - 1 ? last : start + num_moments - 1;
    if (low <= high) visit(low - start, high - start, -start);
  }
}

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_FREE_BYTES_H_
