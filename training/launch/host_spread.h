// How the ranks of a run lie on the hosts of its list: host by host, as many on each as it has
// slots.
#ifndef GEMINID_TRAINING_LAUNCH_HOST_SPREAD_H_
#define GEMINID_TRAINING_LAUNCH_HOST_SPREAD_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "geminid/rank_info.h"

namespace geminid::trainer {

// Tells a rank the slots of all hosts of the list, with commas.
inline constexpr char kHostSlotsVariable[] = "GEMINID_HOST_SLOTS";

class HostSpread {
 public:
  HostSpread() = default;  // without a list: all ranks are on one host, however many
  explicit HostSpread(std::vector<int> slots) : slots_(std::move(slots)) {}
  // INVALID_ARGUMENT if the variable has something else.
  static absl::StatusOr<HostSpread> From(const collectives::Environment& environment);
  std::string Text() const;  // for the variable

  bool has_list() const { return !slots_.empty(); }
  // How many of `ranks` ranks are on each host, for those that have some. INVALID_ARGUMENT: there
  // are fewer slots.
  absl::StatusOr<std::vector<int>> Of(int ranks) const;

 private:
  std::vector<int> slots_;
};

// The host of each rank, of ranks that are spread so.
std::vector<size_t> HostByRank(const std::vector<int>& ranks_by_host);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_LAUNCH_HOST_SPREAD_H_
