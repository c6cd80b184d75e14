#ifndef GEMINID_DAEMON_PLANNER_PROBLEM_LEAST_CAPACITY_H_
#define GEMINID_DAEMON_PLANNER_PROBLEM_LEAST_CAPACITY_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace geminid::planner {

// Least capacity over ranges of moments of a cyclic iteration, in O(1) each: a sparse table.
class LeastCapacity {
 public:
  explicit LeastCapacity(const std::vector<std::int64_t>& bytes) : levels_{bytes} {
    for (std::size_t width = 2; width <= bytes.size(); width *= 2) {
      const std::vector<std::int64_t>& half = levels_.back();
      std::vector<std::int64_t> level(bytes.size() - width + 1);
      for (std::size_t i = 0; i < level.size(); ++i) {
        level[i] = std::min(half[i], half[i + width / 2]);
      }
      levels_.push_back(std::move(level));
    }
  }

  // Over [begin, end): unrolled moments, not empty.
  std::int64_t Over(std::int64_t begin, std::int64_t end) const {
    const auto n = static_cast<std::int64_t>(levels_[0].size());
    if (end - begin >= n) return Within(0, n);
    if (begin < 0) return Over(begin + n, end + n);
    if (end <= n) return Within(begin, end);
    return begin >= n ? Within(begin - n, end - n) : std::min(Within(begin, n), Within(0, end - n));
  }

 private:
  std::int64_t Within(std::int64_t begin, std::int64_t end) const {
    const auto length = static_cast<std::uint64_t>(end - begin);
    // Bit 0 changes the width of length 0 only, for which no caller asks.
    const auto level = static_cast<std::size_t>(std::bit_width(length | 1) - 1);
    const std::int64_t width = std::int64_t{1} << level;
    return std::min(levels_[level][static_cast<std::size_t>(begin)],
                    levels_[level][static_cast<std::size_t>(end - width)]);
  }

  std::vector<std::vector<std::int64_t>> levels_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PROBLEM_LEAST_CAPACITY_H_
