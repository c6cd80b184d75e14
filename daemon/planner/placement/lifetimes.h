#ifndef GEMINID_DAEMON_PLANNER_PLACEMENT_LIFETIMES_H_
#define GEMINID_DAEMON_PLANNER_PLACEMENT_LIFETIMES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/planner/problem/least_capacity.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/residency_draft.h"

namespace geminid::planner {

// The lifetimes of the drafts. Moments count from `cut`, so that the boundary of the iteration lies
// where the caller wants it. A lifetime is [begin, end) with -N < begin, 0 < end, and at most N
// moments. Changes of a lifetime are written to the draft as well.
class Lifetimes {
 public:
  struct Lifetime {
    std::int64_t begin = 0;
    std::int64_t first_use = 0;
    std::int64_t last_use = 0;
    std::int64_t end = 0;
  };

  Lifetimes(const Problem& problem, std::int64_t cut, std::vector<ResidencyDraft>& drafts);

  std::size_t size() const { return lifetimes_.size(); }
  const Lifetime& operator[](std::uint32_t i) const { return lifetimes_[i]; }
  const std::vector<std::int64_t>& capacity() const { return capacity_; }
  std::int64_t Bytes(std::uint32_t i) const { return ItemOf(i).extent_bytes; }
  // The bytes that the draft saves by bridging a gap.
  std::int64_t ReloadBytes(std::uint32_t i) const {
    return static_cast<std::int64_t>(ItemOf(i).transfer_bytes);
  }
  // The least capacity over the lifetime.
  std::int64_t Ceiling(std::uint32_t i) const { return ceilings_[i]; }

  const Problem& problem() const { return problem_; }
  bool IsAliveAt(std::uint32_t i, std::int64_t moment) const;
  bool Crosses(std::uint32_t i) const { return lifetimes_[i].begin < 0 || lifetimes_[i].end > n_; }
  // A draft over the boundary is alive before its EarlyEnd and again from its LateBegin.
  std::int64_t EarlyEnd(std::uint32_t i) const {
    return lifetimes_[i].begin < 0 ? lifetimes_[i].end : lifetimes_[i].end - n_;
  }
  std::int64_t LateBegin(std::uint32_t i) const {
    return lifetimes_[i].begin < 0 ? lifetimes_[i].begin + n_ : lifetimes_[i].begin;
  }

  // Whether the draft only bridges a gap at the moment, between two of its uses.
  bool IsIdleAt(std::uint32_t i, std::int64_t moment) const;

  // Loads the draft no earlier than at the moment, which is at most its first use.
  void BeginAt(std::uint32_t i, std::int64_t moment);

  enum class KeptPart { kHead, kTail };
  // Splits a draft that is idle at the moment. `keep` names the part that keeps the number and the
  // place. Returns the number of the other part. The tail is loaded as far ahead of its first use
  // as the draft was, but after the moment.
  std::uint32_t SplitAt(std::uint32_t i, std::int64_t moment, KeptPart keep);

  // Changes a draft over the boundary so that no part of it crosses the boundary. Gives up the
  // prefetch or drain on the other side, or splits the draft. Returns whether the draft was split;
  // the tail then has the highest number.
  bool Uncross(std::uint32_t i);

 private:
  const Item& ItemOf(std::uint32_t i) const { return problem_.items[drafts_[i].item]; }
  // The difference between the moments of the draft and those of the lifetime.
  std::int64_t Shift(std::uint32_t i) const { return drafts_[i].end > cut_ ? cut_ : cut_ - n_; }
  // How many uses come before the moment.
  std::uint32_t UsesBefore(std::uint32_t i, std::int64_t moment) const;
  void Measure(std::uint32_t i);
  // Adds entries for a draft that a split added, and returns its number.
  std::uint32_t Append();

  const Problem& problem_;
  std::vector<ResidencyDraft>& drafts_;
  const std::int64_t n_;
  const std::int64_t cut_;
  const std::vector<std::int64_t> capacity_;
  const LeastCapacity least_;
  std::vector<Lifetime> lifetimes_;
  std::vector<std::int64_t> ceilings_;
};

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_PLACEMENT_LIFETIMES_H_
