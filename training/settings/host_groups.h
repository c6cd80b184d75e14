// Tells which ranks share a host, and warns if ranks that share layers or experts do not. Pure.
#ifndef GEMINID_TRAINING_SETTINGS_HOST_GROUPS_H_
#define GEMINID_TRAINING_SETTINGS_HOST_GROUPS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "training/settings/parallel.h"

namespace geminid::trainer {

// What a launcher says of a rank.
struct LocalPlace {
  int local_rank = 0;
  int local_world_size = 0;  // 0: it did not say
};

// The host of each rank, counted from 0 in the order of their first ranks. A host's ranks have
// their local numbers in the order of their numbers, as launchers give them. None where some
// launcher did not say, or says what cannot be.
std::optional<std::vector<int>> HostsOf(std::span<const LocalPlace> by_rank);

// Of ranks that share weights, those on the host of `rank`, itself among them, in order; empty
// where all are on one. INVALID_ARGUMENT where other hosts have more or fewer of them. A host is
// any number.
absl::StatusOr<std::vector<int>> RanksOnHostOf(int rank, std::span<const int64_t> host_by_rank);

// A warning where the groups of tensor or of experts lie on several hosts, though with another
// numbering of the ranks or a smaller size they would not: with that. Else empty. `fits`: whether
// the run could have such a size instead.
std::string WarnOfGroups(const Parallel& parallel, std::span<const int> host_by_rank,
                         absl::FunctionRef<bool(int)> fits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_HOST_GROUPS_H_
