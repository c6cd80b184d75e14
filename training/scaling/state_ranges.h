// Ranges of a model's parameters, and sets of them. Pure.
#ifndef GEMINID_TRAINING_SCALING_STATE_RANGES_H_
#define GEMINID_TRAINING_SCALING_STATE_RANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace geminid::trainer {

// Elements of one parameter, and of the optimizer's state that belongs to them.
struct StateRange {
  uint64_t parameter = 0;
  uint64_t first = 0;
  uint64_t elements = 0;
  friend bool operator==(const StateRange&, const StateRange&) = default;
};

class RangeSet {
 public:
  RangeSet() = default;
  explicit RangeSet(const std::vector<StateRange>& ranges);

  void Add(const StateRange& range);
  // Disjoint, in order of parameters and elements.
  std::vector<StateRange> ranges() const;
  // What of `ranges` is in the set, and what is not.
  std::vector<StateRange> Common(const std::vector<StateRange>& ranges) const;
  std::vector<StateRange> Without(const std::vector<StateRange>& ranges) const;

 private:
  // By parameter and first element: the end.
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> ends_;
};

// From rank to rank.
struct StateTransfer {
  int from = 0;
  int to = 0;
  StateRange range;
  friend bool operator==(const StateTransfer&, const StateTransfer&) = default;
};

using RangesByRank = std::vector<std::vector<StateRange>>;

// How state is left on the hosts before the first `hosts_after` alone. `shards` are those of the
// ranks, whose hosts `host_by_rank` has.
struct LeavingPlan {
  RangesByRank by_host;                  // what each of those hosts has then
  std::vector<StateTransfer> transfers;  // of what no rank of those hosts has, to a rank of theirs
};
LeavingPlan PlanToLeave(const RangesByRank& shards, const std::vector<size_t>& host_by_rank,
                        size_t hosts_after);

// From where each rank gets what its host does not have. INTERNAL: no host has a range.
absl::StatusOr<std::vector<StateTransfer>> PlanToTake(const RangesByRank& shards,
                                                      const std::vector<size_t>& host_by_rank,
                                                      const RangesByRank& by_host);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SCALING_STATE_RANGES_H_
