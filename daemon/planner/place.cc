#include "daemon/planner/place.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/planner/free_space.h"
#include "daemon/planner/sweep.h"

namespace geminid::planner {
namespace {

// Each round relaxes every stay that failed; real traces end within a few.
constexpr int kMaxRounds = 8;

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

struct Attempt {
  std::vector<Stay> stays;
  std::vector<std::uint32_t> failed;
  std::uint64_t load_bytes = 0;
};

Attempt Place(const Problem& problem, const Setting& setting, std::vector<Stay> stays,
              std::int64_t& work) {
  Attempt attempt;
  attempt.failed = SweepOnce(problem, setting.prefer, setting.cut, stays, work);
  attempt.load_bytes = LoadBytes(problem, stays);
  attempt.stays = std::move(stays);
  return attempt;
}

// Breaks up what an attempt failed to place.
void RelaxFailed(const Problem& problem, Attempt& attempt) {
  std::vector<std::int64_t> stuck;
  for (const std::uint32_t i : attempt.failed) {
    if (!Relax(problem, i, attempt.stays)) stuck.push_back(attempt.stays[i].first_moment);
  }
  std::sort(stuck.begin(), stuck.end());
  stuck.erase(std::unique(stuck.begin(), stuck.end()), stuck.end());
  for (const std::int64_t moment : stuck) Isolate(problem, moment, attempt.stays);
}

}  // namespace

void PlaceStays(const Problem& problem, std::int64_t work_limit, std::vector<Stay>& stays,
                std::int64_t& work) {
  std::vector<Setting> settings = {{FreeSpace::Prefer::kHighest, 0}};
  if (const std::int64_t peak = PeakMoment(problem); peak != 0) {
    settings.push_back({FreeSpace::Prefer::kHighest, peak});
  }
  if (!problem.equal_sizes) settings.push_back({FreeSpace::Prefer::kLowest, 0});
  const std::uint64_t whole_bytes = LoadBytes(problem, stays);
  const auto key = [](const Attempt& a) { return std::make_pair(a.failed.size(), a.load_bytes); };
  Setting setting = settings[0];
  Attempt best = Place(problem, setting, stays, work);
  for (std::size_t i = 1; i < settings.size() && work < work_limit; ++i) {
    if (best.failed.empty() && best.load_bytes == whole_bytes) break;
    Attempt attempt = Place(problem, settings[i], stays, work);
    if (key(attempt) >= key(best)) continue;
    best = std::move(attempt);
    setting = settings[i];
  }
  for (int round = 0; round < kMaxRounds && !best.failed.empty(); ++round) {
    RelaxFailed(problem, best);
    best = Place(problem, setting, std::move(best.stays), work);
  }
  if (!best.failed.empty()) {
    best = Place(problem, {FreeSpace::Prefer::kHighest, 0}, SingleUses(problem), work);
  }
  stays = std::move(best.stays);
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
