#include "daemon/planner/placement/cheapest_window.h"

#include <algorithm>
#include <cstddef>

namespace geminid::planner {
namespace {

// Sums over the extents before an extent.
struct Prefix {
  std::int64_t fixed = 0;
  ClearCost cost;
};

std::vector<Prefix> Sums(const std::vector<OccupiedExtent>& taken) {
  std::vector<Prefix> sums(taken.size() + 1);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    sums[i + 1].fixed = sums[i].fixed + (taken[i].fixed ? 1 : 0);
    sums[i + 1].cost.reload_bytes = sums[i].cost.reload_bytes + taken[i].cost.reload_bytes;
    sums[i + 1].cost.delayed_bytes = sums[i].cost.delayed_bytes + taken[i].cost.delayed_bytes;
  }
  return sums;
}

// The offsets at which a window may begin, ascending. A window begins at the floor or at the end of
// an extent, or it ends at the ceiling or at the begin of an extent. Both kinds ascend.
std::vector<std::int64_t> Offsets(const std::vector<OccupiedExtent>& taken, std::int64_t size_bytes,
                                  std::int64_t floor_bytes, std::int64_t ceiling_bytes) {
  std::vector<std::int64_t> after = {floor_bytes};
  std::vector<std::int64_t> before;
  for (const OccupiedExtent& extent : taken) {
    after.push_back(extent.end);
    before.push_back(extent.begin - size_bytes);
  }
  before.push_back(ceiling_bytes - size_bytes);
  std::vector<std::int64_t> offsets(after.size() + before.size());
  std::merge(after.begin(), after.end(), before.begin(), before.end(), offsets.begin());
  return offsets;
}

}  // namespace

WindowChoice CheapestWindow(const std::vector<OccupiedExtent>& taken, std::int64_t size_bytes,
                            std::int64_t floor_bytes, std::int64_t ceiling_bytes) {
  const std::vector<Prefix> sums = Sums(taken);
  WindowChoice best;
  ClearCost least;
  std::size_t first = 0;
  std::size_t last = 0;
  for (const std::int64_t offset : Offsets(taken, size_bytes, floor_bytes, ceiling_bytes)) {
    if (offset < floor_bytes || offset + size_bytes > ceiling_bytes) continue;
    while (first < taken.size() && taken[first].end <= offset) ++first;
    while (last < taken.size() && taken[last].begin < offset + size_bytes) ++last;
    if (sums[last].fixed > sums[first].fixed) continue;
    const ClearCost cost = {sums[last].cost.reload_bytes - sums[first].cost.reload_bytes,
                            sums[last].cost.delayed_bytes - sums[first].cost.delayed_bytes};
    if (best.offset_bytes >= 0 && cost >= least) continue;
    least = cost;
    best = {offset, first, last};
  }
  return best;
}

}  // namespace geminid::planner
