#include "tools/trainer/flags/memory_flags.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/flag_values.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kDevicesMax = 64;
constexpr char kAnyGpu[] = "cuda";

constexpr FlagSpec kMemoryFlags[] = {
    {"--placement", &Flags::placement, "WHERE", "Where weights live: device, cpu or auto"},
    {"--device", &Flags::device, "N|cuda",
     "Device of every rank, or cuda for the GPUs in turn; otherwise $GEMINID_DEVICE, or the node's "
     "devices in turn"},
    {"--device-memory", &Flags::device_memory, "SIZE",
     "Device memory of each rank, such as 24MiB, or unlimited"},
    {"--host-memory", &Flags::host_memory, "SIZE",
     "Host memory that the run's own daemon hands out, or unlimited"},
    {"--copy-bandwidth", &Flags::copy_bandwidth, "SIZE/s",
     "Speed of the simulated link, such as 10GB/s, or unlimited"},
};
constexpr FlagSpec kStateDiskFlags[] = {
    {"--state-disk", &Flags::state_disk, "FOLDERS",
     "Folders, one on each disk, for the optimizer's state that does not fit host memory, or for "
     "all of it with --optimizer-state disk, as in /nvme0/run,/nvme1/run. Each rank has a file in "
     "each folder while the run lasts"},
    {"--state-disk-limit", &Flags::state_disk_limit, "SIZE",
     "Most bytes of the files of a rank, as in 500GB; otherwise the disks' free space"},
    {"--state-disk-endurance", &Flags::state_disk_endurance, "SIZE",
     "Bytes that a rank may write to the disks, as in 100TB, in all processes of this start: the "
     "run warns before they are used up, and ends before it writes more; otherwise unlimited. A "
     "start with --resume counts from 0"},
};

absl::StatusOr<std::optional<uint64_t>> ParseSize(const char* flag, const std::string& text) {
  if (text == kUnlimited) return std::nullopt;
  GEMINID_ASSIGN_OR_RETURN(const uint64_t bytes, base::ParseMemory(flag, text));
  if (bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        base::WithValue(flag, text), "give a size such as 24MiB, or '", kUnlimited, "'"));
  }
  return std::optional<uint64_t>(bytes);
}

absl::Status ParseStatePlacement(const Flags& flags, zero::Options* options) {
  using zero::StatePlacement;
  const std::string& text = flags.optimizer_state;
  constexpr std::array kWords = {
      std::pair{"auto", StatePlacement::kAuto}, std::pair{"host", StatePlacement::kHost},
      std::pair{"device", StatePlacement::kDevice},
      std::pair{"streamed", StatePlacement::kStreamed}, std::pair{"disk", StatePlacement::kDisk}};
  const auto word =
      std::ranges::find_if(kWords, [&](const auto& known) { return text == known.first; });
  if (word != kWords.end()) {
    options->state_placement = word->second;
  } else {
    const absl::StatusOr<double> share = base::ParseReal("--optimizer-state", text, 0, 1);
    if (!share.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(base::WithValue("--optimizer-state", text),
                       "it must be auto, host, device, streamed, disk, or a number from 0 to 1"));
    }
    options->state_placement = StatePlacement::kShare;
    options->state_share = *share;
  }
  const bool goes_with_cpu = text == "streamed" && options->placement == zero::Placement::kCpu;
  if (text != "auto" && text != "device" && text != "disk" && !goes_with_cpu &&
      options->placement != zero::Placement::kAuto) {
    return absl::InvalidArgumentError(
        absl::StrCat("--optimizer-state ", text, " needs --placement auto; leave it out"));
  }
  return absl::OkStatus();
}

// With auto the engine chooses how much of the state goes there.
absl::Status ParseStateDisk(const Flags& flags, zero::Options* options) {
  if (flags.state_disk.empty()) {
    if (options->state_placement != zero::StatePlacement::kDisk) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--optimizer-state disk needs folders; name them with --state-disk, as in "
        "--state-disk /nvme0/run,/nvme1/run");
  }
  if (flags.optimizer_state != "disk" && flags.optimizer_state != "auto") {
    return absl::InvalidArgumentError(
        absl::StrCat("--state-disk is for --optimizer-state auto and disk, not ",
                     flags.optimizer_state, "; leave one of the two out"));
  }
  if (options->placement == zero::Placement::kDevice) {
    return absl::InvalidArgumentError(
        "--state-disk needs --placement auto or cpu; with device all state is on the device");
  }
  for (const absl::string_view folder : absl::StrSplit(flags.state_disk, ',')) {
    if (folder.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          base::WithValue("--state-disk", flags.state_disk), "there is a comma without a folder"));
    }
    options->state_disk.folders.emplace_back(folder);
  }
  if (!flags.state_disk_limit.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const std::optional<uint64_t> limit,
                             ParseSize("--state-disk-limit", flags.state_disk_limit));
    options->state_disk.limit_bytes = limit.value_or(0);
  }
  if (flags.state_disk_endurance.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const std::optional<uint64_t> endurance,
                           ParseSize("--state-disk-endurance", flags.state_disk_endurance));
  options->state_disk.endurance_bytes = endurance.value_or(0);
  return absl::OkStatus();
}

}  // namespace

std::span<const FlagSpec> MemoryFlags() { return kMemoryFlags; }
std::span<const FlagSpec> StateDiskFlags() { return kStateDiskFlags; }

absl::Status ParseMemory(const Flags& flags, TrainOptions* options) {
  using zero::Placement;
  GEMINID_ASSIGN_OR_RETURN(
      options->zero.placement,
      base::ParseWord("--placement", flags.placement,
                      std::array{std::pair{Name(Placement::kDevice), Placement::kDevice},
                                 std::pair{Name(Placement::kCpu), Placement::kCpu},
                                 std::pair{Name(Placement::kAuto), Placement::kAuto}}));
  GEMINID_RETURN_IF_ERROR(ParseStatePlacement(flags, &options->zero));
  GEMINID_RETURN_IF_ERROR(ParseStateDisk(flags, &options->zero));
  GEMINID_ASSIGN_OR_RETURN(
      options->activations,
      base::ParseWord(
          "--activations", flags.activations,
          std::array{std::pair{Name(Activations::kAuto), Activations::kAuto},
                     std::pair{Name(Activations::kKeep), Activations::kKeep},
                     std::pair{Name(Activations::kOffload), Activations::kOffload},
                     std::pair{Name(Activations::kRecompute), Activations::kRecompute}}));
  options->wants_gpu = flags.device == kAnyGpu;
  if (!flags.device.empty() && !options->wants_gpu) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t device,
                             base::ParseCount("--device", flags.device, 0, kDevicesMax - 1));
    options->device = DeviceIndex{static_cast<uint32_t>(device)};
  }
  GEMINID_ASSIGN_OR_RETURN(options->device_memory_bytes,
                           ParseSize("--device-memory", flags.device_memory));
  if (!flags.host_memory.empty()) {
    GEMINID_ASSIGN_OR_RETURN(options->host_memory_bytes,
                             ParseSize("--host-memory", flags.host_memory));
    if (!flags.socket.empty()) {
      return absl::InvalidArgumentError(
          "--host-memory is for a daemon that this run starts; the daemon of --socket has its own "
          "limit. Leave one of the two out");
    }
  }
  if (flags.copy_bandwidth == kUnlimited) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(const uint64_t speed,
                           base::ParseBandwidth("--copy-bandwidth", flags.copy_bandwidth));
  if (speed == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        base::WithValue("--copy-bandwidth", flags.copy_bandwidth),
        "nothing would move; give a size per second, as in 10GB/s, or '", kUnlimited, "'"));
  }
  options->copy_bytes_per_second = speed;
  return absl::OkStatus();
}

}  // namespace geminid::trainer
