#include "daemon/core/planner/place.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/core/planner/free_space.h"
#include "daemon/core/planner/sweep.h"

namespace geminid::planner {
namespace {

// Each round relaxes every stay that failed; real traces end within a few.
constexpr int kMaxRounds = 32;

// The j after which the stay bridges its longest gap.
std::uint32_t LongestGap(const Problem& problem, const Stay& stay) {
  const std::uint32_t bridged = stay.permanent ? stay.num_uses : stay.num_uses - 1;
  const auto length = [&](std::uint32_t j) {
    const Gap& gap = problem.gaps[GapAfter(problem, stay, j)];
    return gap.last - gap.first;
  };
  std::uint32_t longest = 0;
  for (std::uint32_t j = 1; j < bridged; ++j) {
    if (length(j) > length(longest)) longest = j;
  }
  return longest;
}

// Makes the stay easier to place; false if nothing is left to give up.
bool Relax(const Problem& problem, std::size_t index, std::vector<Stay>& stays) {
  Stay& stay = stays[index];
  if (!stay.permanent && stay.begin < stay.first_moment) {
    stay.begin = stay.first_moment;
    stay.limit = StallCause::kSpace;
  } else if (stay.permanent || stay.num_uses > 1) {
    SplitAfter(problem, LongestGap(problem, stay), index, stays);
  } else if (stay.end > stay.last_moment + 1) {
    stay.end = stay.last_moment + 1;
  } else {
    return false;
  }
  return true;
}

struct Setting {
  FreeSpace::Prefer prefer;
  std::int64_t cut;
};

// The setting under which the fewest stays fail, the first of equals.
Setting BestSetting(const Problem& problem, std::vector<Stay> stays) {
  std::vector<Setting> settings = {{FreeSpace::Prefer::kHighest, 0}};
  if (!problem.equal_sizes) settings.push_back({FreeSpace::Prefer::kLowest, 0});
  if (const std::int64_t peak = PeakMoment(problem); peak != 0) {
    settings.push_back({FreeSpace::Prefer::kHighest, peak});
  }
  Setting best = settings[0];
  std::size_t fewest = stays.size() + 1;
  for (const Setting& setting : settings) {
    const std::size_t failed = SweepOnce(problem, setting.prefer, setting.cut, stays).size();
    if (failed >= fewest) continue;
    best = setting;
    fewest = failed;
    if (failed == 0) break;
  }
  return best;
}

}  // namespace

void PlaceStays(const Problem& problem, std::vector<Stay>& stays) {
  const Setting setting = BestSetting(problem, stays);
  for (int round = 0; round < kMaxRounds; ++round) {
    const std::vector<std::uint32_t> failed =
        SweepOnce(problem, setting.prefer, setting.cut, stays);
    if (failed.empty()) return;
    std::vector<std::int64_t> stuck;
    for (const std::uint32_t i : failed) {
      if (!Relax(problem, i, stays)) stuck.push_back(stays[i].first_moment);
    }
    std::sort(stuck.begin(), stuck.end());
    stuck.erase(std::unique(stuck.begin(), stuck.end()), stuck.end());
    for (const std::int64_t moment : stuck) Isolate(problem, moment, stays);
  }
  stays = SingleUses(problem);
  SweepOnce(problem, FreeSpace::Prefer::kHighest, /*cut=*/0, stays);
}

void PlaceApart(const Problem& problem, std::vector<Stay>& stays) {
  std::vector<std::int64_t> offset_of_item;
  std::int64_t top = 0;
  for (const Item& item : problem.items) {
    offset_of_item.push_back(top);
    top += item.extent_bytes;
  }
  for (Stay& stay : stays) stay.offset_bytes = offset_of_item[stay.item];
}

}  // namespace geminid::planner
