#include "daemon/planner/lives.h"

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

Lives::Lives(const Problem& problem, std::int64_t cut, std::vector<Stay>& stays)
    : problem_(problem),
      stays_(stays),
      n_(problem.num_moments),
      cut_(cut),
      capacity_(RotatedCapacity(problem, cut)),
      least_(capacity_),
      lives_(stays.size()),
      ceilings_(stays.size()) {
  for (std::uint32_t i = 0; i < stays.size(); ++i) Measure(i);
}

void Lives::Measure(std::uint32_t i) {
  const std::int64_t shift = Shift(i);
  const Stay& stay = stays_[i];
  lives_[i] = {stay.begin - shift, stay.first_moment - shift, stay.last_moment - shift,
               stay.end - shift};
  ceilings_[i] = least_.Over(lives_[i].begin, lives_[i].end);
}

bool Lives::IsAliveAt(std::uint32_t i, std::int64_t moment) const {
  for (const std::int64_t at : {moment - n_, moment, moment + n_}) {
    if (lives_[i].begin <= at && at < lives_[i].end) return true;
  }
  return false;
}

std::uint32_t Lives::UsesBefore(std::uint32_t i, std::int64_t moment) const {
  const std::int64_t at = moment + Shift(i);
  std::uint32_t low = 0;
  std::uint32_t high = stays_[i].num_uses;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (UseMoment(problem_, stays_[i], middle) < at) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

bool Lives::IsIdleAt(std::uint32_t i, std::int64_t moment) const {
  if (moment <= lives_[i].first_use || moment >= lives_[i].last_use) return false;
  return UseMoment(problem_, stays_[i], UsesBefore(i, moment)) != moment + Shift(i);
}

void Lives::BeginAt(std::uint32_t i, std::int64_t moment) {
  stays_[i].begin = moment + Shift(i);
  stays_[i].limit = StallCause::kSpace;
  Measure(i);
}

std::uint32_t Lives::SplitAt(std::uint32_t i, std::int64_t moment, Keep keep) {
  const std::int64_t ahead = lives_[i].first_use - lives_[i].begin;
  SplitAfter(problem_, UsesBefore(i, moment) - 1, i, stays_);
  const std::uint32_t added = Append();
  if (keep == Keep::kTail) {
    std::swap(stays_[i], stays_[added]);
    std::swap(stays_[i].offset_bytes, stays_[added].offset_bytes);
  }
  Measure(i);
  Measure(added);
  const std::uint32_t tail = keep == Keep::kTail ? i : added;
  std::int64_t begin = std::max(moment + 1, lives_[tail].first_use - ahead);
  if (ItemOf(tail).changes) begin = std::max(begin, -Shift(tail));  // not before the iteration
  BeginAt(tail, begin);
  return added;
}

bool Lives::Uncross(std::uint32_t i) {
  const std::int64_t boundary = lives_[i].begin < 0 ? 0 : n_;
  if (boundary <= lives_[i].first_use) {
    BeginAt(i, boundary);
    return false;
  }
  if (boundary > lives_[i].last_use) {
    stays_[i].end = boundary + Shift(i);
    Measure(i);
    return false;
  }
  SplitAfter(problem_, UsesBefore(i, boundary) - 1, i, stays_);
  Measure(i);
  Measure(Append());
  return true;
}

std::uint32_t Lives::Append() {
  lives_.emplace_back();
  ceilings_.emplace_back();
  return static_cast<std::uint32_t>(lives_.size() - 1);
}

}  // namespace geminid::planner
