#include "daemon/core/planner/sweep.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <tuple>

namespace geminid::planner {
namespace {

using Indices = std::vector<std::uint32_t>;

// Least capacity over ranges of moments, in O(1) each: a sparse table.
class LeastCapacity {
 public:
  explicit LeastCapacity(const std::vector<std::int64_t>& bytes) : levels_{bytes} {
    for (std::size_t width = 2; width <= bytes.size(); width *= 2) {
      const std::vector<std::int64_t>& half = levels_.back();
      std::vector<std::int64_t> level(bytes.size() - width + 1);
      for (std::size_t i = 0; i < level.size(); ++i) {
        level[i] = std::min(half[i], half[i + width / 2]);
      }
      levels_.push_back(std::move(level));
    }
  }

  // Over [begin, end), unrolled, not empty.
  std::int64_t Over(std::int64_t begin, std::int64_t end) const {
    const auto n = static_cast<std::int64_t>(levels_[0].size());
    if (end - begin >= n) return Within(0, n);
    if (begin < 0) return Over(begin + n, end + n);
    if (end <= n) return Within(begin, end);
    return begin >= n ? Within(begin - n, end - n) : std::min(Within(begin, n), Within(0, end - n));
  }

 private:
  std::int64_t Within(std::int64_t begin, std::int64_t end) const {
    const auto length = static_cast<std::uint64_t>(end - begin);
    const auto level = static_cast<std::size_t>(std::bit_width(length) - 1);
    const std::int64_t width = std::int64_t{1} << level;
    return std::min(levels_[level][static_cast<std::size_t>(begin)],
                    levels_[level][static_cast<std::size_t>(end - width)]);
  }

  std::vector<std::vector<std::int64_t>> levels_;
};

std::vector<std::int64_t> RotatedCapacity(const Problem& problem, std::int64_t cut) {
  std::vector<std::int64_t> rotated = problem.capacity_bytes;
  std::rotate(rotated.begin(), rotated.begin() + cut, rotated.end());
  return rotated;
}

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

// Counts moments from the cut, so that the boundary of the iteration is where the sweeps meet.
class Sweep {
 public:
  Sweep(const Problem& problem, FreeSpace::Prefer prefer, std::int64_t cut,
        std::vector<Stay>& stays);
  Indices Run();

 private:
  // Moments [begin, end).
  struct Span {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  std::int64_t Bytes(std::uint32_t i) const { return problem_.items[stays_[i].item].extent_bytes; }
  bool Crosses(std::uint32_t i) const { return lives_[i].begin < 0 || lives_[i].end > n_; }
  // A stay over the boundary is alive before its EarlyEnd and again from its LateBegin.
  std::int64_t EarlyEnd(std::uint32_t i) const {
    return lives_[i].begin < 0 ? lives_[i].end : lives_[i].end - n_;
  }
  std::int64_t LateBegin(std::uint32_t i) const {
    return lives_[i].begin < 0 ? lives_[i].begin + n_ : lives_[i].begin;
  }

  void Sort();
  void StackAtValley();
  void PlaceCrossing();
  void SweepForwards();
  void SweepBackwards();
  template <typename InTheWay>
  void Place(std::uint32_t i, FreeSpace& space, FreeSpace::Prefer prefer,
             const std::vector<FreeSpace::Obstacle>& obstacles, const InTheWay& is_in_the_way);
  FreeSpace SpaceAtValley() const;

  const Problem& problem_;
  const FreeSpace::Prefer prefer_;
  std::vector<Stay>& stays_;
  const std::int64_t n_;
  const std::int64_t cut_;
  const std::vector<std::int64_t> capacity_;
  const std::int64_t valley_;
  const LeastCapacity least_;
  const std::int64_t size_bytes_;
  // Per stay: -N < begin, 0 < end, and at most N between them.
  std::vector<Span> lives_;
  std::vector<std::int64_t> ceilings_;
  // Always there; alive at the valley; over the boundary; the rest, after and before the valley.
  Indices whole_, at_valley_, crossing_, after_, before_;
  std::vector<FreeSpace::Obstacle> crossing_places_;
  Indices failed_;
};

Sweep::Sweep(const Problem& problem, FreeSpace::Prefer prefer, std::int64_t cut,
             std::vector<Stay>& stays)
    : problem_(problem),
      prefer_(prefer),
      stays_(stays),
      n_(problem.num_moments),
      cut_(cut),
      capacity_(RotatedCapacity(problem, cut)),
      valley_(Valley(capacity_)),
      least_(capacity_),
      size_bytes_(*std::max_element(capacity_.begin(), capacity_.end())) {}

void Sweep::Sort() {
  for (std::uint32_t i = 0; i < stays_.size(); ++i) {
    const std::int64_t shift = stays_[i].end > cut_ ? cut_ : cut_ - n_;
    const Span life = {stays_[i].begin - shift, stays_[i].end - shift};
    lives_.push_back(life);
    ceilings_.push_back(least_.Over(life.begin, life.end));
    bool alive_at_valley = false;
    for (const std::int64_t at : {valley_ - n_, valley_, valley_ + n_}) {
      alive_at_valley = alive_at_valley || (life.begin <= at && at < life.end);
    }
    if (stays_[i].permanent || (Crosses(i) && alive_at_valley)) {
      whole_.push_back(i);
    } else if (Crosses(i)) {
      crossing_.push_back(i);
    } else if (alive_at_valley) {
      at_valley_.push_back(i);
    } else {
      (life.begin > valley_ ? after_ : before_).push_back(i);
    }
  }
  const auto lifetime = [&](std::uint32_t i) { return lives_[i].end - lives_[i].begin; };
  // Short lives on top, where stays over the boundary come down to.
  std::sort(at_valley_.begin(), at_valley_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(-lifetime(a), a) < std::make_tuple(-lifetime(b), b);
  });
  std::sort(crossing_.begin(), crossing_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(ceilings_[a], -lifetime(a), a) <
           std::make_tuple(ceilings_[b], -lifetime(b), b);
  });
  // In the order the sweeps meet them; the tighter ceiling, then the larger, first.
  std::sort(after_.begin(), after_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(lives_[a].begin, ceilings_[a], -Bytes(a), a) <
           std::make_tuple(lives_[b].begin, ceilings_[b], -Bytes(b), b);
  });
  std::sort(before_.begin(), before_.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::make_tuple(-lives_[a].end, ceilings_[a], -Bytes(a), a) <
           std::make_tuple(-lives_[b].end, ceilings_[b], -Bytes(b), b);
  });
}

void Sweep::StackAtValley() {
  std::int64_t top = 0;
  for (const Indices* group : {&whole_, &at_valley_}) {
    for (const std::uint32_t i : *group) {
      stays_[i].offset_bytes = top;
      top += Bytes(i);
    }
  }
}

template <typename InTheWay>
void Sweep::Place(std::uint32_t i, FreeSpace& space, FreeSpace::Prefer prefer,
                  const std::vector<FreeSpace::Obstacle>& obstacles,
                  const InTheWay& is_in_the_way) {
  Stay& stay = stays_[i];
  stay.offset_bytes = space.Find(Bytes(i), ceilings_[i], prefer, obstacles, is_in_the_way);
  if (stay.offset_bytes == FreeSpace::kNowhere) {
    failed_.push_back(i);
  } else {
    space.Take(stay.offset_bytes, Bytes(i));
  }
}

void Sweep::PlaceCrossing() {
  if (crossing_.empty()) return;
  FreeSpace space(size_bytes_);
  for (const std::uint32_t i : whole_) space.Take(stays_[i].offset_bytes, Bytes(i));
  std::vector<FreeSpace::Obstacle> stacked;
  for (const std::uint32_t i : at_valley_) {
    stacked.push_back({stays_[i].offset_bytes, stays_[i].offset_bytes + Bytes(i), i});
  }
  for (const std::uint32_t i : crossing_) {
    const std::int64_t early_end = EarlyEnd(i);
    const std::int64_t late_begin = LateBegin(i);
    Place(i, space, FreeSpace::Prefer::kHighest, stacked, [&](std::uint32_t other) {
      return lives_[other].begin < early_end || lives_[other].end > late_begin;
    });
    if (stays_[i].offset_bytes == FreeSpace::kNowhere) continue;
    crossing_places_.push_back({stays_[i].offset_bytes, stays_[i].offset_bytes + Bytes(i), i});
  }
  std::sort(crossing_places_.begin(), crossing_places_.end(),
            [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

FreeSpace Sweep::SpaceAtValley() const {
  FreeSpace space(size_bytes_);
  for (const Indices* group : {&whole_, &at_valley_}) {
    for (const std::uint32_t i : *group) space.Take(stays_[i].offset_bytes, Bytes(i));
  }
  return space;
}

void Sweep::SweepForwards() {
  FreeSpace space = SpaceAtValley();
  std::vector<Indices> ending(static_cast<std::size_t>(n_) + 1);
  for (const std::uint32_t i : at_valley_) {
    ending[static_cast<std::size_t>(lives_[i].end)].push_back(i);
  }
  std::vector<Indices> returning(static_cast<std::size_t>(n_));
  for (const auto& place : crossing_places_) {
    returning[static_cast<std::size_t>(LateBegin(place.owner))].push_back(place.owner);
  }
  std::size_t next = 0;
  for (std::int64_t t = valley_ + 1; t < n_; ++t) {
    for (const std::uint32_t i : ending[static_cast<std::size_t>(t)]) {
      space.Give(stays_[i].offset_bytes, Bytes(i));
    }
    for (const std::uint32_t i : returning[static_cast<std::size_t>(t)]) {
      space.Take(stays_[i].offset_bytes, Bytes(i));
    }
    for (; next < after_.size() && lives_[after_[next]].begin == t; ++next) {
      const std::uint32_t i = after_[next];
      Place(i, space, prefer_, crossing_places_,
            [&](std::uint32_t other) { return LateBegin(other) < lives_[i].end; });
      if (stays_[i].offset_bytes == FreeSpace::kNowhere) continue;
      ending[static_cast<std::size_t>(lives_[i].end)].push_back(i);
    }
  }
}

void Sweep::SweepBackwards() {
  FreeSpace space = SpaceAtValley();
  // By the first moment of the life, after which (going backwards) the space is free.
  std::vector<Indices> beginning(static_cast<std::size_t>(n_));
  for (const std::uint32_t i : at_valley_) {
    beginning[static_cast<std::size_t>(lives_[i].begin)].push_back(i);
  }
  std::vector<Indices> leaving(static_cast<std::size_t>(n_) + 1);
  for (const auto& place : crossing_places_) {
    leaving[static_cast<std::size_t>(EarlyEnd(place.owner))].push_back(place.owner);
  }
  std::size_t next = 0;
  for (std::int64_t t = valley_ - 1; t >= 0; --t) {
    for (const std::uint32_t i : beginning[static_cast<std::size_t>(t + 1)]) {
      space.Give(stays_[i].offset_bytes, Bytes(i));
    }
    for (const std::uint32_t i : leaving[static_cast<std::size_t>(t + 1)]) {
      space.Take(stays_[i].offset_bytes, Bytes(i));
    }
    for (; next < before_.size() && lives_[before_[next]].end == t + 1; ++next) {
      const std::uint32_t i = before_[next];
      Place(i, space, prefer_, crossing_places_,
            [&](std::uint32_t other) { return EarlyEnd(other) > lives_[i].begin; });
      if (stays_[i].offset_bytes == FreeSpace::kNowhere) continue;
      beginning[static_cast<std::size_t>(lives_[i].begin)].push_back(i);
    }
  }
}

Indices Sweep::Run() {
  Sort();
  StackAtValley();
  PlaceCrossing();
  SweepForwards();
  SweepBackwards();
  std::sort(failed_.begin(), failed_.end());
  return failed_;
}

}  // namespace

std::vector<std::uint32_t> SweepOnce(const Problem& problem, FreeSpace::Prefer prefer,
                                     std::int64_t cut, std::vector<Stay>& stays) {
  return Sweep(problem, prefer, cut, stays).Run();
}

std::int64_t PeakMoment(const Problem& problem) {
  const std::vector<std::int64_t>& capacity = problem.capacity_bytes;
  return std::max_element(capacity.begin(), capacity.end()) - capacity.begin();
}

}  // namespace geminid::planner
