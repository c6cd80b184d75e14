#include "training/scaling/handover_timeout.h"

#include <algorithm>
#include <vector>

#include "absl/status/statusor.h"
#include "base/units.h"

namespace geminid::trainer {
namespace {

constexpr absl::Duration kLongest = absl::Hours(1);

// The slowest speeds at which a machine counts as working: pages that the kernel must first free,
// and a disk or a network that several ranks share.
constexpr double kMemoryBytesPerSecond = 64.0 * base::kMiB;
constexpr double kSlowBytesPerSecond = 8.0 * base::kMiB;

}  // namespace

HandoverWork WorkOf(const TrainOptions& options, const RankContext& context, int ranks_after,
                    uint64_t state_bytes) {
  const auto has_other_hosts = [&](int ranks) {
    const absl::StatusOr<std::vector<int>> hosts = context.spread.Of(ranks);
    return hosts.ok() && hosts->size() > 1;
  };
  return {.bytes = state_bytes,
          .uses_disk = !options.zero.state_disk.folders.empty(),
          .is_over_hosts = has_other_hosts(context.info.world_size) || has_other_hosts(ranks_after),
          .link_bytes_per_second = options.copy_bytes_per_second};
}

absl::Duration HandoverTimeout(const HandoverWork& work, absl::Duration usual) {
  const auto bytes = static_cast<double>(work.bytes);
  double seconds = bytes / kMemoryBytesPerSecond;
  if (work.uses_disk) seconds += bytes / kSlowBytesPerSecond;
  if (work.is_over_hosts) seconds += bytes / kSlowBytesPerSecond;
  if (work.link_bytes_per_second > 0) {
    seconds += 2 * bytes / static_cast<double>(work.link_bytes_per_second);
  }
  return std::max(usual, std::min(kLongest, usual + absl::Seconds(seconds)));
}

}  // namespace geminid::trainer
