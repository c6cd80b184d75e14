#include "training/ranks/daemon_choice.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/machine_memory.h"
#include "base/process_limits.h"
#include "base/processors.h"
#include "base/status_macros.h"
#include "proto/shm/daemon_socket.h"
#include "training/settings/rank_share.h"

namespace geminid::trainer {
namespace {

using shm::kInstalledSocket;
using shm::kSocketVariable;

// The host device hands out arenas in such pieces, or smaller ones.
constexpr uint64_t kArenaGranularityBytes = uint64_t{2} << 20;

// Of a daemon for a run alone: its own, and those for each rank's session and calls.
constexpr size_t kDaemonDescriptors = 40;
constexpr size_t kDescriptorsPerRank = 24;

}  // namespace

uint64_t DefaultMemoryBytes() { return base::TotalMemoryBytes() / 5 * 4; }

namespace {

// At least what each rank will ask for where nothing is to leave the device. Activations are kept
// only where there is room.
uint64_t UnlimitedBytes(const TrainOptions& options, int ranks, uint64_t budget) {
  const size_t threads = options.threads ? static_cast<size_t>(*options.threads)
                                         : std::max<size_t>(1, base::AllowedProcessors().size());
  const uint64_t bytes = UnlimitedDeviceBytes(options, ranks, threads);
  if (options.activations != Activations::kAuto || bytes <= budget) return bytes;
  TrainOptions smaller = options;
  smaller.activations = Activations::kRecompute;
  return UnlimitedDeviceBytes(smaller, ranks, threads);
}

// Of all ranks on this host together.
absl::StatusOr<uint64_t> NeededDeviceBytes(const TrainOptions& options, int ranks, int ranks_here) {
  const uint64_t budget = DefaultMemoryBytes();  // before anything is host memory
  const uint64_t share = budget / static_cast<uint64_t>(ranks_here);
  uint64_t bytes = options.device_memory_bytes.value_or(
      UnlimitedBytes(options, options.parallel.automatic ? 1 : ranks, share));
  // How the ranks will share the work is not known yet: no way of it needs more than all of it.
  if (options.parallel.automatic && !options.device_memory_bytes) bytes = std::min(bytes, share);
  if (bytes > share) {
    const std::string whose =
        ranks_here == 1 ? "the rank" : absl::StrCat("each of ", ranks_here, " ranks");
    return absl::ResourceExhaustedError(absl::StrCat(
        options.device_memory_bytes
            ? absl::StrCat("--device-memory asks for ", base::FormatBytes(bytes), " for ", whose)
            : absl::StrCat("without --device-memory nothing leaves the device, for which ", whose,
                           " takes ", base::FormatBytes(bytes)),
        ", but ", base::DescribeTotalMemory(), ", of which a run can have ",
        base::FormatBytes(budget),
        "; give --device-memory a smaller size: what does not fit there lives in host memory "
        "(`geminictl plan` says how small it can be)"));
  }
  const uint64_t pieces = bytes / kArenaGranularityBytes + 1;
  return pieces * kArenaGranularityBytes * static_cast<uint64_t>(ranks_here);
}

}  // namespace

uint64_t UsualDeviceBytes(const TrainOptions& options, int ranks) {
  const uint64_t share = DefaultMemoryBytes() / static_cast<uint64_t>(ranks);
  const uint64_t bytes = UnlimitedBytes(options, options.parallel.automatic ? 1 : ranks, share);
  return options.parallel.automatic ? std::min(bytes, share) : bytes;
}

uint64_t RankDeviceBytes(const TrainOptions& options, const RanksArena& now, int ranks) {
  if (options.device_memory_bytes || ranks == now.ranks) return now.arena_bytes;
  const uint64_t usual = UsualDeviceBytes(options, ranks);
  return ranks > now.ranks ? std::min(now.arena_bytes, usual) : std::max(now.arena_bytes, usual);
}

absl::StatusOr<DaemonChoice> ChooseDaemon(const TrainOptions& options, int ranks, int ranks_here) {
  DaemonChoice choice;
  const char* const environment = std::getenv(kSocketVariable);
  const bool named = environment != nullptr && *environment != '\0';
  if (!options.socket.empty()) {
    choice.socket = options.socket;
    return choice;
  }
  if (named && options.host_memory_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host-memory is for a daemon that this run starts, but ", kSocketVariable,
                     " names the daemon at ", environment, "; unset one of the two"));
  }
  struct stat file = {};
  if (named) {
    choice.socket = environment;
    return choice;
  }
  if (!options.host_memory_bytes && stat(kInstalledSocket, &file) == 0) {
    choice.socket = kInstalledSocket;
    return choice;
  }
  PrivateDaemonOptions daemon;
  if (options.wants_gpu) {
    daemon.arguments = {"--device", "cuda"};
  } else {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t device_bytes,
                             NeededDeviceBytes(options, ranks, ranks_here));
    daemon.arguments = {"--device-memory", absl::StrCat(device_bytes, "B")};
  }
  if (options.host_memory_bytes) {
    daemon.arguments.insert(daemon.arguments.end(),
                            {"--host-memory", absl::StrCat(*options.host_memory_bytes, "B")});
  }
  GEMINID_RETURN_IF_ERROR(base::CheckDescriptors(
      kDaemonDescriptors + kDescriptorsPerRank * static_cast<size_t>(ranks_here)));
  GEMINID_ASSIGN_OR_RETURN(choice.own, PrivateDaemon::Start(daemon));
  choice.socket = choice.own->socket();
  return choice;
}

std::string WithoutOtherJobs(const DaemonChoice& choice, const TrainOptions& options) {
  std::vector<std::string> flags;
  if (options.priority != 0) flags.push_back("--priority");
  if (options.queue_timeout != absl::InfiniteDuration()) flags.push_back("--queue-timeout");
  if (choice.own == nullptr || flags.empty()) return "";
  const char* verb = flags.size() == 1 ? " does" : " do";
  return absl::StrCat(absl::StrJoin(flags, " and "), verb,
                      " nothing: this run has started a daemon of its own, without other jobs; "
                      "--socket names one that several jobs use");
}

std::string ComplaintsOf(const DaemonChoice& choice) {
  std::string complaints;
  if (choice.own == nullptr) return complaints;
  const std::string log = choice.own->LogTail();
  for (const absl::string_view line : absl::StrSplit(log, '\n')) {
    if (absl::StrContains(line, " WARNING ") || absl::StrContains(line, " ERROR ")) {
      absl::StrAppend(&complaints, "  ", line, "\n");
    }
  }
  return complaints;
}

}  // namespace geminid::trainer
