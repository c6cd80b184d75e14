#include "daemon/planner/sweep.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <tuple>

#include "daemon/planner/lives.h"
#include "daemon/planner/walk.h"

namespace geminid::planner {
namespace {

using Indices = std::vector<std::uint32_t>;

// Of the moments of least capacity the one nearest to the middle.
std::int64_t Valley(const std::vector<std::int64_t>& capacity) {
  const auto n = static_cast<std::int64_t>(capacity.size());
  std::int64_t best = 0;
  const auto key = [&](std::int64_t t) {
    return std::make_tuple(capacity[static_cast<std::size_t>(t)], std::abs(2 * t - n));
  };
  for (std::int64_t t = 1; t < n; ++t) {
    if (key(t) < key(best)) best = t;
  }
  return best;
}

class Sweep {
 public:
  Sweep(const Problem& problem, FreeSpace::Prefer prefer, std::int64_t cut,
        std::vector<Stay>& stays)
      : prefer_(prefer),
        stays_(stays),
        lives_(problem, cut, stays),
        valley_(Valley(lives_.capacity())),
        size_bytes_(*std::max_element(lives_.capacity().begin(), lives_.capacity().end())) {}

  Indices Run();
  std::int64_t work() const { return work_; }

 private:
  void Classify(std::uint32_t i);
  void StackAtValley();
  void PlaceCrossing();
  void RunWalk(Walk::Direction direction);

  const FreeSpace::Prefer prefer_;
  std::vector<Stay>& stays_;
  Lives lives_;
  const std::int64_t valley_;
  const std::int64_t size_bytes_;
  // Always there; alive at the valley; over the boundary; the rest, after and before the valley.
  Indices whole_, at_valley_, crossing_, after_, before_;
  std::vector<FreeSpace::Obstacle> crossing_places_;
  Indices failed_;
  std::int64_t work_ = 0;
};

void Sweep::Classify(std::uint32_t i) {
  const bool alive_at_valley = lives_.IsAliveAt(i, valley_);
  if (stays_[i].permanent || (lives_.Crosses(i) && alive_at_valley)) {
    whole_.push_back(i);
  } else if (lives_.Crosses(i)) {
    crossing_.push_back(i);
  } else if (alive_at_valley) {
    at_valley_.push_back(i);
  } else {
    (lives_[i].begin > valley_ ? after_ : before_).push_back(i);
  }
}

void Sweep::StackAtValley() {
  // Short lives on top, where stays over the boundary come down to.
  const auto lifetime = [&](std::uint32_t i) { return lives_[i].end - lives_[i].begin; };
  std::sort(at_valley_.begin(), at_valley_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(-lifetime(a), a) < std::make_tuple(-lifetime(b), b);
  });
  std::int64_t top = 0;
  for (const Indices* group : {&whole_, &at_valley_}) {
    for (const std::uint32_t i : *group) {
      stays_[i].offset_bytes = top;
      top += lives_.Bytes(i);
    }
  }
}

void Sweep::PlaceCrossing() {
  if (crossing_.empty()) return;
  const auto lifetime = [&](std::uint32_t i) { return lives_[i].end - lives_[i].begin; };
  std::sort(crossing_.begin(), crossing_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(lives_.Ceiling(a), -lifetime(a), a) <
           std::make_tuple(lives_.Ceiling(b), -lifetime(b), b);
  });
  FreeSpace space(size_bytes_);
  for (const std::uint32_t i : whole_) space.Take(stays_[i].offset_bytes, lives_.Bytes(i));
  std::vector<FreeSpace::Obstacle> stacked;
  for (const std::uint32_t i : at_valley_) {
    stacked.push_back({stays_[i].offset_bytes, stays_[i].offset_bytes + lives_.Bytes(i), i});
  }
  for (const std::uint32_t i : crossing_) {
    const std::int64_t early_end = lives_.EarlyEnd(i);
    const std::int64_t late_begin = lives_.LateBegin(i);
    const std::int64_t offset =
        space.Find(lives_.Bytes(i), lives_.Ceiling(i), FreeSpace::Prefer::kHighest, stacked,
                   [&](std::uint32_t other) {
                     return lives_[other].begin < early_end || lives_[other].end > late_begin;
                   });
    if (offset == FreeSpace::kNowhere) {
      if (lives_.Uncross(i)) Classify(static_cast<std::uint32_t>(lives_.size() - 1));
      Classify(i);
      continue;
    }
    space.Take(offset, lives_.Bytes(i));
    stays_[i].offset_bytes = offset;
    crossing_places_.push_back({offset, offset + lives_.Bytes(i), i});
  }
  std::sort(crossing_places_.begin(), crossing_places_.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

void Sweep::RunWalk(Walk::Direction direction) {
  Walk walk(direction, prefer_, valley_, {whole_, crossing_places_}, lives_, stays_);
  for (const std::uint32_t i : at_valley_) {
    if (lives_.IsAliveAt(i, valley_)) walk.AddPlaced(i);
  }
  for (const std::uint32_t i : direction == Walk::Direction::kForwards ? after_ : before_) {
    walk.AddToMeet(i);
  }
  walk.Run(failed_, before_);
  work_ += walk.work();
}

Indices Sweep::Run() {
  for (std::uint32_t i = 0; i < stays_.size(); ++i) Classify(i);
  StackAtValley();
  PlaceCrossing();
  // Forwards first: what it splits off before the valley is met backwards.
  RunWalk(Walk::Direction::kForwards);
  RunWalk(Walk::Direction::kBackwards);
  std::sort(failed_.begin(), failed_.end());
  return failed_;
}

}  // namespace

std::vector<std::uint32_t> SweepOnce(const Problem& problem, FreeSpace::Prefer prefer,
                                     std::int64_t cut, std::vector<Stay>& stays,
                                     std::int64_t& work) {
  Sweep sweep(problem, prefer, cut, stays);
  std::vector<std::uint32_t> failed = sweep.Run();
  work += sweep.work();
  return failed;
}

std::int64_t PeakMoment(const Problem& problem) {
  const std::vector<std::int64_t>& capacity = problem.capacity_bytes;
  return std::max_element(capacity.begin(), capacity.end()) - capacity.begin();
}

}  // namespace geminid::planner
