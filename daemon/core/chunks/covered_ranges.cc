#include "daemon/core/chunks/covered_ranges.h"

#include <algorithm>
#include <iterator>

namespace geminid::core {

void CoveredRanges::Add(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  auto next = ranges_.upper_bound(begin);
  if (next != ranges_.begin() && std::prev(next)->second >= begin) --next;
  bool joined = false;
  while (next != ranges_.end() && next->first <= end) {
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = ranges_.erase(next);
    joined = true;
  }
  if (joined || ranges_.size() < kMaxRanges) ranges_[begin] = end;
}

bool CoveredRanges::Covers(uint64_t begin, uint64_t end) const {
  const auto next = ranges_.upper_bound(begin);
  return begin >= end || (next != ranges_.begin() && std::prev(next)->second >= end);
}

}  // namespace geminid::core
