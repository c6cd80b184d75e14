#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_FREE_SPACE_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_FREE_SPACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace geminid::planner {

// The free byte ranges of the arena at one moment of an attempt. Ranges lie in buckets. Each bucket
// knows its longest range, so a search looks into few: O(sqrt) in the number of ranges.
class FreeSpace {
 public:
  static constexpr std::int64_t kNowhere = -1;
  enum class Prefer { kHighest, kLowest };

  // A range that is taken at moments other than the present: [begin, end) in bytes.
  struct Obstacle {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    std::uint32_t owner = 0;
  };

  explicit FreeSpace(std::int64_t size_bytes) {
    if (size_bytes > 0) buckets_.push_back({std::vector<Block>{{0, size_bytes}}, size_bytes});
  }

  // The highest or lowest offset at which `size_bytes` are free below `ceiling_bytes` and touch no
  // obstacle for which is_in_the_way(owner). kNowhere if there is none. `obstacles` are disjoint
  // and sorted. Takes no range.
  template <typename InTheWay>
  std::int64_t Find(std::int64_t size_bytes, std::int64_t ceiling_bytes, Prefer prefer,
                    const std::vector<Obstacle>& obstacles, const InTheWay& is_in_the_way) const {
    return prefer == Prefer::kHighest
               ? FindHighest(size_bytes, ceiling_bytes, obstacles, is_in_the_way)
               : FindLowest(size_bytes, ceiling_bytes, obstacles, is_in_the_way);
  }

  // The range must be free.
  void Take(std::int64_t offset_bytes, std::int64_t size_bytes) {
    const std::size_t b = BucketOf(offset_bytes);
    std::vector<Block>& blocks = buckets_[b].blocks;
    const auto block = std::prev(FirstAfter(blocks, offset_bytes));
    const Block rest = {offset_bytes + size_bytes, block->end};
    const bool keeps_rest = rest.begin < rest.end;
    if (block->begin < offset_bytes) {
      block->end = offset_bytes;
      if (keeps_rest) blocks.insert(std::next(block), rest);
    } else if (keeps_rest) {
      *block = rest;
    } else {
      blocks.erase(block);
    }
    Tidy(b);
  }

  // The range must be taken.
  void Give(std::int64_t offset_bytes, std::int64_t size_bytes) {
    Block given = {offset_bytes, offset_bytes + size_bytes};
    if (buckets_.empty()) {
      buckets_.push_back({std::vector<Block>{given}, size_bytes});
      return;
    }
    const std::size_t b = BucketOf(offset_bytes);
    std::vector<Block>& blocks = buckets_[b].blocks;
    auto after = FirstAfter(blocks, offset_bytes);
    // The range that follows may be the first of the next bucket.
    if (after != blocks.end()) {
      if (after->begin == given.end) {
        given.end = after->end;
        after = blocks.erase(after);
      }
    } else if (b + 1 < buckets_.size() && buckets_[b + 1].blocks.front().begin == given.end) {
      std::vector<Block>& next = buckets_[b + 1].blocks;
      given.end = next.front().end;
      next.erase(next.begin());
      Tidy(b + 1);
    }
    if (after != blocks.begin() && std::prev(after)->end == given.begin) {
      std::prev(after)->end = given.end;
    } else {
      blocks.insert(after, given);
    }
    Tidy(b);
  }

 private:
  static constexpr std::size_t kMaxBlocks = 64;

  struct Block {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  struct Bucket {
    std::vector<Block> blocks;  // sorted, never adjacent, not empty
    std::int64_t longest = 0;
  };

  static std::vector<Block>::iterator FirstAfter(std::vector<Block>& blocks, std::int64_t offset) {
    return std::upper_bound(
        blocks.begin(), blocks.end(), offset,
        [](std::int64_t value, const Block& block) { return value < block.begin; });
  }

  // The last bucket that begins at or before the offset, or the first.
  std::size_t BucketOf(std::int64_t offset) const {
    const auto after = std::upper_bound(buckets_.begin(), buckets_.end(), offset,
                                        [](std::int64_t value, const Bucket& bucket) {
                                          return value < bucket.blocks.front().begin;
                                        });
    return after == buckets_.begin() ? 0 : static_cast<std::size_t>(after - buckets_.begin()) - 1;
  }

  void Tidy(std::size_t b) {
    const auto at = buckets_.begin() + static_cast<std::ptrdiff_t>(b);
    if (at->blocks.empty()) {
      buckets_.erase(at);
      return;
    }
    if (at->blocks.size() > kMaxBlocks) {
      const auto middle = at->blocks.begin() + kMaxBlocks / 2;
      Bucket upper = {std::vector<Block>(middle, at->blocks.end()), 0};
      at->blocks.erase(middle, at->blocks.end());
      Measure(upper);
      Measure(*at);
      buckets_.insert(std::next(at), std::move(upper));
      return;
    }
    Measure(*at);
  }

  static void Measure(Bucket& bucket) {
    bucket.longest = 0;
    for (const Block& block : bucket.blocks) {
      bucket.longest = std::max(bucket.longest, block.end - block.begin);
    }
  }

  template <typename InTheWay>
  std::int64_t FindHighest(std::int64_t size, std::int64_t ceiling,
                           const std::vector<Obstacle>& obstacles,
                           const InTheWay& is_in_the_way) const {
    for (std::size_t b = buckets_.size(); b-- > 0;) {
      if (buckets_[b].longest < size) continue;
      for (auto block = buckets_[b].blocks.rbegin(); block != buckets_[b].blocks.rend(); ++block) {
        std::int64_t top = std::min(block->end, ceiling);
        if (top - size < block->begin) continue;
        auto obstacle = FirstEndingAfter(obstacles, top);
        while (obstacle != obstacles.end() && obstacle->begin < top) ++obstacle;
        while (top - size >= block->begin) {
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
    }
    return kNowhere;
  }

  template <typename InTheWay>
  std::int64_t FindLowest(std::int64_t size, std::int64_t ceiling,
                          const std::vector<Obstacle>& obstacles,
                          const InTheWay& is_in_the_way) const {
    for (const Bucket& bucket : buckets_) {
      if (bucket.longest < size) continue;
      for (const auto& [begin, end] : bucket.blocks) {
        if (begin + size > ceiling) return kNowhere;
        const std::int64_t top = std::min(end, ceiling);
        std::int64_t bottom = begin;
        if (bottom + size > top) continue;
        auto obstacle = FirstEndingAfter(obstacles, bottom);
        while (bottom + size <= top) {
          while (obstacle != obstacles.end() && !is_in_the_way(obstacle->owner)) ++obstacle;
          if (obstacle == obstacles.end() || obstacle->begin >= bottom + size) return bottom;
          bottom = std::max(bottom, obstacle->end);
          ++obstacle;
        }
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

  std::vector<Bucket> buckets_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_FREE_SPACE_H_
