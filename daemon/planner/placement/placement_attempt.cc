#include "daemon/planner/placement/placement_attempt.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <tuple>

#include "daemon/planner/placement/lifetimes.h"
#include "daemon/planner/placement/one_way_placer.h"

namespace geminid::planner {
namespace {

using Indices = std::vector<std::uint32_t>;

// The moment of least capacity; of several, the one nearest to the middle.
std::int64_t TightestMoment(const std::vector<std::int64_t>& capacity) {
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

class PlacementAttempt {
 public:
  PlacementAttempt(const Problem& problem, FreeSpace::Prefer prefer, std::int64_t cut,
                   std::vector<ResidencyDraft>& drafts)
      : prefer_(prefer),
        drafts_(drafts),
        lifetimes_(problem, cut, drafts),
        tightest_(TightestMoment(lifetimes_.capacity())),
        size_bytes_(*std::max_element(lifetimes_.capacity().begin(), lifetimes_.capacity().end())) {
  }

  Indices Run();
  std::int64_t work() const { return work_; }

 private:
  void Classify(std::uint32_t i);
  void StackAtTightest();
  void PlaceCrossing();
  void RunPlacer(OneWayPlacer::Direction direction);

  const FreeSpace::Prefer prefer_;
  std::vector<ResidencyDraft>& drafts_;
  Lifetimes lifetimes_;
  const std::int64_t tightest_;
  const std::int64_t size_bytes_;
  // Drafts that are permanent or cross the boundary at the tightest moment; drafts alive at the
  // tightest moment; other drafts over the boundary; the rest, after and before the tightest
  // moment.
  Indices whole_, at_tightest_, crossing_, after_, before_;
  std::vector<FreeSpace::Obstacle> crossing_places_;
  Indices failed_;
  std::int64_t work_ = 0;
};

void PlacementAttempt::Classify(std::uint32_t i) {
  const bool alive_at_tightest = lifetimes_.IsAliveAt(i, tightest_);
  if (drafts_[i].permanent || (lifetimes_.Crosses(i) && alive_at_tightest)) {
    whole_.push_back(i);
  } else if (lifetimes_.Crosses(i)) {
    crossing_.push_back(i);
  } else if (alive_at_tightest) {
    at_tightest_.push_back(i);
  } else {
    (lifetimes_[i].begin > tightest_ ? after_ : before_).push_back(i);
  }
}

void PlacementAttempt::StackAtTightest() {
  // Short lifetimes lie on top, because drafts over the boundary are placed downwards to there.
  const auto lifetime = [&](std::uint32_t i) { return lifetimes_[i].end - lifetimes_[i].begin; };
  std::sort(at_tightest_.begin(), at_tightest_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(-lifetime(a), a) < std::make_tuple(-lifetime(b), b);
  });
  std::int64_t top = 0;
  for (const Indices* group : {&whole_, &at_tightest_}) {
    for (const std::uint32_t i : *group) {
      drafts_[i].offset_bytes = top;
      top += lifetimes_.Bytes(i);
    }
  }
}

void PlacementAttempt::PlaceCrossing() {
  if (crossing_.empty()) return;
  const auto lifetime = [&](std::uint32_t i) { return lifetimes_[i].end - lifetimes_[i].begin; };
  std::sort(crossing_.begin(), crossing_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(lifetimes_.Ceiling(a), -lifetime(a), a) <
           std::make_tuple(lifetimes_.Ceiling(b), -lifetime(b), b);
  });
  FreeSpace space(size_bytes_);
  for (const std::uint32_t i : whole_) space.Take(drafts_[i].offset_bytes, lifetimes_.Bytes(i));
  std::vector<FreeSpace::Obstacle> stacked;
  for (const std::uint32_t i : at_tightest_) {
    stacked.push_back({drafts_[i].offset_bytes, drafts_[i].offset_bytes + lifetimes_.Bytes(i), i});
  }
  for (const std::uint32_t i : crossing_) {
    const std::int64_t early_end = lifetimes_.EarlyEnd(i);
    const std::int64_t late_begin = lifetimes_.LateBegin(i);
    const std::int64_t offset = space.Find(
        lifetimes_.Bytes(i), lifetimes_.Ceiling(i), FreeSpace::Prefer::kHighest, stacked,
        [&](std::uint32_t other) {
          return lifetimes_[other].begin < early_end || lifetimes_[other].end > late_begin;
        });
    if (offset == FreeSpace::kNowhere) {
      if (lifetimes_.Uncross(i)) Classify(static_cast<std::uint32_t>(lifetimes_.size() - 1));
      Classify(i);
      continue;
    }
    space.Take(offset, lifetimes_.Bytes(i));
    drafts_[i].offset_bytes = offset;
    crossing_places_.push_back({offset, offset + lifetimes_.Bytes(i), i});
  }
  std::sort(crossing_places_.begin(), crossing_places_.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

void PlacementAttempt::RunPlacer(OneWayPlacer::Direction direction) {
  OneWayPlacer placer(direction, prefer_, tightest_, {whole_, crossing_places_}, lifetimes_,
                      drafts_);
  for (const std::uint32_t i : at_tightest_) {
    if (lifetimes_.IsAliveAt(i, tightest_)) placer.AddPlaced(i);
  }
  for (const std::uint32_t i : direction == OneWayPlacer::Direction::kForwards ? after_ : before_) {
    placer.AddToMeet(i);
  }
  placer.Run(failed_, before_);
  work_ += placer.work();
}

Indices PlacementAttempt::Run() {
  for (std::uint32_t i = 0; i < drafts_.size(); ++i) Classify(i);
  StackAtTightest();
  PlaceCrossing();
  // Forwards first: the other placer meets the parts that splits leave before the tightest moment.
  RunPlacer(OneWayPlacer::Direction::kForwards);
  RunPlacer(OneWayPlacer::Direction::kBackwards);
  std::sort(failed_.begin(), failed_.end());
  return failed_;
}

}  // namespace

std::vector<std::uint32_t> AttemptPlacement(const Problem& problem, FreeSpace::Prefer prefer,
                                            std::int64_t cut, std::vector<ResidencyDraft>& drafts,
                                            std::int64_t& work) {
  PlacementAttempt attempt(problem, prefer, cut, drafts);
  std::vector<std::uint32_t> failed = attempt.Run();
  work += attempt.work();
  return failed;
}

std::int64_t PeakMoment(const Problem& problem) {
  const std::vector<std::int64_t>& capacity = problem.capacity_bytes;
  return std::max_element(capacity.begin(), capacity.end()) - capacity.begin();
}

}  // namespace geminid::planner
