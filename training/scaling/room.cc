#include "training/scaling/room.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/counted.h"

namespace geminid::trainer {

absl::Status CheckRoom(const RanksOfArenas& after, const RanksOfArenas& before,
                       std::vector<JobScaling::Device> devices) {
  for (int rank = 0; rank < before.ranks && !devices.empty(); ++rank) {
    devices[static_cast<size_t>(rank) % devices.size()].free_bytes += before.arena_bytes;
  }
  const auto ranks = static_cast<uint64_t>(after.ranks);
  uint64_t fit = 0, free = 0, capacity = 0;
  for (const JobScaling::Device& device : devices) {
    fit += after.arena_bytes == 0 ? ranks : device.free_bytes / after.arena_bytes;
    free += device.free_bytes;
    capacity += device.capacity_bytes;
  }
  if (ranks <= fit) return absl::OkStatus();
  const std::string spread =
      ranks * after.arena_bytes <= free ? absl::StrCat(", in which ", fit, " of these fit") : "";
  return absl::ResourceExhaustedError(absl::StrCat(
      base::Counted(ranks, "rank"), ranks == 1 ? " needs " : " need ",
      base::FormatBytes(ranks * after.arena_bytes), " of device memory, ",
      base::FormatBytes(after.arena_bytes), " each, and ", base::FormatBytes(free), " of ",
      base::FormatBytes(capacity), " are free",
      before.ranks == 0 ? ""
                        : absl::StrCat(" once the ", base::Counted(before.ranks, "rank"),
                                       " before ", before.ranks == 1 ? "has gone" : "have gone"),
      spread,
      "; end other jobs, start the run with a smaller --device-memory, or, where the "
      "daemon is the run's own, with --max-ranks ",
      ranks));
}

// Those of --device are all on it.
std::vector<JobScaling::Device> DevicesOf(const TrainOptions& options,
                                          std::vector<JobScaling::Device> devices) {
  if (options.device.has_value()) {
    std::erase_if(devices, [&](const JobScaling::Device& device) {
      return device.number != static_cast<uint32_t>(*options.device);
    });
  }
  return devices;
}

}  // namespace geminid::trainer
