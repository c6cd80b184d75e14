#ifndef GEMINID_DAEMON_CORE_PLANNER_FREE_SPACE_H_
#define GEMINID_DAEMON_CORE_PLANNER_FREE_SPACE_H_

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

namespace geminid::planner {

// The free byte ranges of the arena at one moment of a sweep through time.
class FreeSpace {
 public:
  static constexpr std::int64_t kNowhere = -1;
  enum class Prefer { kHighest, kLowest };

  // A range taken for other moments than the present: [begin, end) in bytes.
  struct Obstacle {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::uint32_t owner = 0;
  };

  explicit FreeSpace(std::int64_t size_bytes) { blocks_.emplace(0, size_bytes); }

  // The highest or lowest offset at which `size_bytes` are free below `ceiling_bytes` and touch no
  // obstacle for which is_in_the_way(owner); kNowhere if there is none. `obstacles` are disjoint
  // and sorted. Takes nothing.
  template <typename InTheWay>
  std::int64_t Find(std::int64_t size_bytes, std::int64_t ceiling_bytes, Prefer prefer,
                    const std::vector<Obstacle>& obstacles, const InTheWay& is_in_the_way) const {
    return prefer == Prefer::kHighest
               ? FindHighest(size_bytes, ceiling_bytes, obstacles, is_in_the_way)
               : FindLowest(size_bytes, ceiling_bytes, obstacles, is_in_the_way);
  }

  // The range must be free.
  void Take(std::int64_t offset_bytes, std::int64_t size_bytes) {
    auto block = std::prev(blocks_.upper_bound(offset_bytes));
    const std::int64_t end = block->second;
    if (block->first == offset_bytes) {
      blocks_.erase(block);
    } else {
      block->second = offset_bytes;
    }
    if (offset_bytes + size_bytes < end) blocks_.emplace(offset_bytes + size_bytes, end);
  }

  // The range must be taken.
  void Give(std::int64_t offset_bytes, std::int64_t size_bytes) {
    std::int64_t end = offset_bytes + size_bytes;
    auto after = blocks_.lower_bound(offset_bytes);
    if (after != blocks_.end() && after->first == end) {
      end = after->second;
      after = blocks_.erase(after);
    }
    if (after != blocks_.begin() && std::prev(after)->second == offset_bytes) {
      std::prev(after)->second = end;
    } else {
      blocks_.emplace(offset_bytes, end);
    }
  }

 private:
  template <typename InTheWay>
  std::int64_t FindHighest(std::int64_t size, std::int64_t ceiling,
                           const std::vector<Obstacle>& obstacles,
                           const InTheWay& is_in_the_way) const {
    for (auto block = blocks_.lower_bound(ceiling); block != blocks_.begin();) {
      --block;
      std::int64_t top = std::min(block->second, ceiling);
      auto obstacle = FirstEndingAfter(obstacles, top);
      while (obstacle != obstacles.end() && obstacle->begin < top) ++obstacle;
      while (top - size >= block->first) {
        while (obstacle != obstacles.begin() && !is_in_the_way(std::prev(obstacle)->owner)) {
          --obstacle;
        }
        if (obstacle == obstacles.begin() || std::prev(obstacle)->end <= top - size) {
          return top - size;
        }
        --obstacle;
        top = std::min(top, obstacle->begin);
      }
    }
    return kNowhere;
  }

  template <typename InTheWay>
  std::int64_t FindLowest(std::int64_t size, std::int64_t ceiling,
                          const std::vector<Obstacle>& obstacles,
                          const InTheWay& is_in_the_way) const {
    for (const auto& [begin, end] : blocks_) {
      if (begin + size > ceiling) return kNowhere;
      const std::int64_t top = std::min(end, ceiling);
      std::int64_t bottom = begin;
      auto obstacle = FirstEndingAfter(obstacles, bottom);
      while (bottom + size <= top) {
        while (obstacle != obstacles.end() && !is_in_the_way(obstacle->owner)) ++obstacle;
        if (obstacle == obstacles.end() || obstacle->begin >= bottom + size) return bottom;
        bottom = std::max(bottom, obstacle->end);
        ++obstacle;
      }
    }
    return kNowhere;
  }

  static std::vector<Obstacle>::const_iterator FirstEndingAfter(
      const std::vector<Obstacle>& obstacles, std::int64_t offset) {
    return std::upper_bound(
        obstacles.begin(), obstacles.end(), offset,
        [](std::int64_t value, const Obstacle& obstacle) { return value < obstacle.end; });
  }

  std::map<std::int64_t, std::int64_t> blocks_;  // begin -> end, never adjacent
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_CORE_PLANNER_FREE_SPACE_H_
