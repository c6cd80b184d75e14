#include "daemon/planner/placement/assign_offsets.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "daemon/planner/placement/free_space.h"
#include "daemon/planner/placement/placement_attempt.h"

namespace geminid::planner {
namespace {

// Each round relaxes every draft that failed. Real traces need only a few rounds.
constexpr int kMaxRounds = 8;

// The index j of the use after which the draft bridges its longest gap.
std::uint32_t LongestGap(const Problem& problem, const ResidencyDraft& draft) {
  const std::uint32_t bridged = draft.permanent ? draft.num_uses : draft.num_uses - 1;
  const auto length = [&](std::uint32_t j) {
    const Gap& gap = problem.gaps[GapAfter(problem, draft, j)];
    return gap.last - gap.first;
  };
  std::uint32_t longest = 0;
  for (std::uint32_t j = 1; j < bridged; ++j) {
    if (length(j) > length(longest)) longest = j;
  }
  return longest;
}

// Makes the draft easier to place. False if the draft cannot be relaxed further.
bool Relax(const Problem& problem, std::size_t index, std::vector<ResidencyDraft>& drafts) {
  ResidencyDraft& draft = drafts[index];
  if (!draft.permanent && draft.begin < draft.first_moment) {
    draft.begin = draft.first_moment;
    draft.limit = StallCause::kSpace;
  } else if (draft.permanent || draft.num_uses > 1) {
    SplitAfter(problem, LongestGap(problem, draft), index, drafts);
  } else if (draft.end > draft.last_moment + 1) {
    draft.end = draft.last_moment + 1;
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
  std::vector<ResidencyDraft> drafts;
  std::vector<std::uint32_t> failed;
  std::uint64_t load_bytes = 0;
};

Attempt Place(const Problem& problem, const Setting& setting, std::vector<ResidencyDraft> drafts,
              std::int64_t& work) {
  Attempt attempt;
  attempt.failed = AttemptPlacement(problem, setting.prefer, setting.cut, drafts, work);
  attempt.load_bytes = LoadBytes(problem, drafts);
  attempt.drafts = std::move(drafts);
  return attempt;
}

// Relaxes the drafts that an attempt failed to place.
void RelaxFailed(const Problem& problem, Attempt& attempt) {
  std::vector<std::int64_t> stuck;
  for (const std::uint32_t i : attempt.failed) {
    if (!Relax(problem, i, attempt.drafts)) stuck.push_back(attempt.drafts[i].first_moment);
  }
  std::sort(stuck.begin(), stuck.end());
  stuck.erase(std::unique(stuck.begin(), stuck.end()), stuck.end());
  for (const std::int64_t moment : stuck) Isolate(problem, moment, attempt.drafts);
}

}  // namespace

void AssignOffsets(const Problem& problem, std::int64_t work_limit,
                   std::vector<ResidencyDraft>& drafts, std::int64_t& work) {
  std::vector<Setting> settings = {{FreeSpace::Prefer::kHighest, 0}};
  if (const std::int64_t peak = PeakMoment(problem);
      peak != 0 && !problem.without.Has(Stage::kBeginAtPeak)) {
    settings.push_back({FreeSpace::Prefer::kHighest, peak});
  }
  if (!problem.equal_sizes && !problem.without.Has(Stage::kLowOffsets))
    settings.push_back({FreeSpace::Prefer::kLowest, 0});
  const std::uint64_t whole_bytes = LoadBytes(problem, drafts);
  const auto key = [](const Attempt& a) { return std::make_pair(a.failed.size(), a.load_bytes); };
  Setting setting = settings[0];
  Attempt best = Place(problem, setting, drafts, work);
  for (std::size_t i = 1; i < settings.size() && work < work_limit; ++i) {
    if (best.failed.empty() && best.load_bytes == whole_bytes) break;
    Attempt attempt = Place(problem, settings[i], drafts, work);
    if (key(attempt) >= key(best)) continue;
    best = std::move(attempt);
    setting = settings[i];
  }
  for (int round = 0; round < kMaxRounds && !best.failed.empty(); ++round) {
    RelaxFailed(problem, best);
    best = Place(problem, setting, std::move(best.drafts), work);
  }
  if (!best.failed.empty()) {
    best = Place(problem, {FreeSpace::Prefer::kHighest, 0}, SingleUses(problem), work);
  }
  drafts = std::move(best.drafts);
}

void AssignSeparateOffsets(const Problem& problem, std::vector<ResidencyDraft>& drafts) {
  std::vector<std::int64_t> offset_of_item;
  std::int64_t top = 0;
  for (const Item& item : problem.items) {
    offset_of_item.push_back(top);
    top += item.extent_bytes;
  }
  for (ResidencyDraft& draft : drafts) draft.offset_bytes = offset_of_item[draft.item];
}

}  // namespace geminid::planner
