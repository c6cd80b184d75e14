#include "daemon/planner/placement/lifetimes.h"

#include <algorithm>
#include <utility>

namespace geminid::planner {
namespace {

std::vector<std::int64_t> RotatedCapacity(const Problem& problem, std::int64_t cut) {
  std::vector<std::int64_t> rotated = problem.capacity_bytes;
  std::rotate(rotated.begin(), rotated.begin() + cut, rotated.end());
  return rotated;
}

}  // namespace

Lifetimes::Lifetimes(const Problem& problem, std::int64_t cut, std::vector<ResidencyDraft>& drafts)
    : problem_(problem),
      drafts_(drafts),
      n_(problem.num_moments),
      cut_(cut),
      capacity_(RotatedCapacity(problem, cut)),
      least_(capacity_),
      lifetimes_(drafts.size()),
      ceilings_(drafts.size()) {
  for (std::uint32_t i = 0; i < drafts.size(); ++i) Measure(i);
}

void Lifetimes::Measure(std::uint32_t i) {
  const std::int64_t shift = Shift(i);
  const ResidencyDraft& draft = drafts_[i];
  lifetimes_[i] = {draft.begin - shift, draft.first_moment - shift, draft.last_moment - shift,
                   draft.end - shift};
  ceilings_[i] = least_.Over(lifetimes_[i].begin, lifetimes_[i].end);
}

bool Lifetimes::IsAliveAt(std::uint32_t i, std::int64_t moment) const {
  for (const std::int64_t at : {moment - n_, moment, moment + n_}) {
    if (lifetimes_[i].begin <= at && at < lifetimes_[i].end) return true;
  }
  return false;
}

std::uint32_t Lifetimes::UsesBefore(std::uint32_t i, std::int64_t moment) const {
  const std::int64_t at = moment + Shift(i);
  std::uint32_t low = 0;
  std::uint32_t high = drafts_[i].num_uses;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (UseMoment(problem_, drafts_[i], middle) < at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool Lifetimes::IsIdleAt(std::uint32_t i, std::int64_t moment) const {
  if (moment <= lifetimes_[i].first_use || moment >= lifetimes_[i].last_use) return false;
  return UseMoment(problem_, drafts_[i], UsesBefore(i, moment)) != moment + Shift(i);
}

void Lifetimes::BeginAt(std::uint32_t i, std::int64_t moment) {
  drafts_[i].begin = moment + Shift(i);
  drafts_[i].limit = StallCause::kSpace;
  Measure(i);
}

std::uint32_t Lifetimes::SplitAt(std::uint32_t i, std::int64_t moment, KeptPart keep) {
  const std::int64_t ahead = lifetimes_[i].first_use - lifetimes_[i].begin;
  SplitAfter(problem_, UsesBefore(i, moment) - 1, i, drafts_);
  const std::uint32_t added = Append();
  if (keep == KeptPart::kTail) {
    std::swap(drafts_[i], drafts_[added]);
    std::swap(drafts_[i].offset_bytes, drafts_[added].offset_bytes);
  }
  Measure(i);
  Measure(added);
  const std::uint32_t tail = keep == KeptPart::kTail ? i : added;
  std::int64_t begin = std::max(moment + 1, lifetimes_[tail].first_use - ahead);
  if (ItemOf(tail).changes) begin = std::max(begin, -Shift(tail));  // not before the iteration
  BeginAt(tail, begin);
  return added;
}

bool Lifetimes::Uncross(std::uint32_t i) {
  const std::int64_t boundary = lifetimes_[i].begin < 0 ? 0 : n_;
  if (boundary <= lifetimes_[i].first_use) {
    BeginAt(i, boundary);
    return false;
  }
  if (boundary > lifetimes_[i].last_use) {
    drafts_[i].end = boundary + Shift(i);
    Measure(i);
    return false;
  }
  SplitAfter(problem_, UsesBefore(i, boundary) - 1, i, drafts_);
  Measure(i);
  Measure(Append());
  return true;
}

std::uint32_t Lifetimes::Append() {
  lifetimes_.emplace_back();
  ceilings_.emplace_back();
  return static_cast<std::uint32_t>(lifetimes_.size() - 1);
}

}  // namespace geminid::planner
