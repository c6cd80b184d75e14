// Finds the ranks that share a host, and warns if ranks that share layers or experts do not. Pure.
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

// The place of a rank on its host, as its launcher says.
struct LocalPlace {
  int local_rank = 0;
  int local_world_size = 0;  // 0: unknown
};

// The host of each rank. Hosts are counted from 0 in the order of their first ranks. The ranks of a
// host have local numbers in the order of their ranks, as launchers give them. Nothing if a place
// is unknown or the places contradict each other.
std::optional<std::vector<int>> HostsOf(std::span<const LocalPlace> by_rank);

// The ranks that share weights with `rank` on its host, in order, `rank` among them; empty if all
// are on one host. INVALID_ARGUMENT if hosts have different numbers of them. Hosts may have any
// numbers.
absl::StatusOr<std::vector<int>> RanksOnHostOf(int rank, std::span<const int64_t> host_by_rank);

// A warning if groups of tensor or of experts cross hosts although another numbering of the ranks
// or a smaller size would avoid it; the warning says which. Else empty. `fits`: whether the run
// could have such a size.
std::string WarnOfGroups(const Parallel& parallel, std::span<const int> host_by_rank,
                         absl::FunctionRef<bool(int)> fits);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_HOST_GROUPS_H_
