#ifndef GEMINID_DAEMON_PLANNER_RETENTION_RESIDENCY_DRAFT_H_
#define GEMINID_DAEMON_PLANNER_RETENTION_RESIDENCY_DRAFT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "daemon/planner/contract/plan.h"
#include "daemon/planner/problem/problem.h"
#include "daemon/planner/retention/retention.h"

namespace geminid::planner {

// A residency in the making: consecutive uses of one item, bridged by retained gaps. Moments are
// unrolled as in Residency. A permanent draft bridges all gaps of its item, including the gap over
// the boundary.
struct ResidencyDraft {
  std::uint32_t item = 0;
  std::uint32_t first_use = 0;  // index into the item's uses; the others follow, wrapping around
  std::uint32_t num_uses = 0;
  bool permanent = false;
  std::int64_t begin = 0;
  std::int64_t first_moment = 0;
  std::int64_t last_moment = 0;
  std::int64_t end = 0;
  std::int64_t offset_bytes = 0;
  // Why the load is not issued earlier; kLink if nothing stopped it.
  StallCause limit = StallCause::kLink;
};

// One draft per maximal run of retained gaps. Each begins at its first use (no prefetch).
std::vector<ResidencyDraft> BuildDrafts(const Problem& problem, const Retention& retained);

// The moment of the draft's j-th use, unrolled.
std::int64_t UseMoment(const Problem& problem, const ResidencyDraft& draft, std::uint32_t j);

// The gap after the j-th use of the draft, as an index into problem.gaps.
std::size_t GapAfter(const Problem& problem, const ResidencyDraft& draft, std::uint32_t j);

// Splits the draft drafts[index] after its j-th use (j + 1 < num_uses, or any j if permanent). The
// uses after j become a new draft at the end of `drafts`, or stay in the draft if it was permanent.
void SplitAfter(const Problem& problem, std::uint32_t j, std::size_t index,
                std::vector<ResidencyDraft>& drafts);

// Changes the drafts so that none is alive both at `moment` and at another moment. Every use at
// that moment becomes a draft of its own, and no other draft is alive there.
void Isolate(const Problem& problem, std::int64_t moment, std::vector<ResidencyDraft>& drafts);

// Drafts of one use each, without prefetch or drain: they can always be placed.
std::vector<ResidencyDraft> SingleUses(const Problem& problem);

// Bytes loaded per iteration.
std::uint64_t LoadBytes(const Problem& problem, const std::vector<ResidencyDraft>& drafts);

}  // namespace geminid::planner

#endif  // GEMINID_DAEMON_PLANNER_RETENTION_RESIDENCY_DRAFT_H_
