#include "training/run/memory_words.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::trainer {

std::string DiskEnduranceWords(int rank, uint64_t written_bytes, uint64_t endurance_bytes) {
  if (endurance_bytes == 0 || written_bytes < endurance_bytes / 10 * 9) return "";
  return absl::StrCat("geminid-train: rank ", rank, " has written ",
                      base::FormatBytes(written_bytes), " of the ",
                      base::FormatBytes(endurance_bytes),
                      " that --state-disk-endurance allows; the run ends before it writes more");
}

void MemoryWords::SayRefused(const HostRegistration& host, Progress* progress) {
  if (host.refused_bytes == 0 || std::exchange(said_refused_, true)) return;
  progress->Warn(
      absl::StrCat("geminid-train: rank ", info_.rank, ": the GPU's driver does not page-lock ",
                   base::FormatBytes(host.refused_bytes), " of ", base::FormatBytes(host.bytes),
                   " of host memory, whose copies take a detour: ", host.refusal));
}

bool MemoryWords::HasStateDiskToSay() const {
  if (options_.zero.state_disk.folders.empty()) return false;
  return !said_how_ || (options_.zero.state_disk.endurance_bytes > 0 && !said_endurance_);
}

void MemoryWords::SayStateDisk(const zero::Statistics& statistics, Progress* progress) {
  if (!HasStateDiskToSay()) return;
  if (!std::exchange(said_how_, true)) SayHow(statistics.state_disk, progress);
  if (statistics.state_disk_bytes == 0) return;  // it writes nothing
  const std::string words = DiskEnduranceWords(info_.rank, statistics.disk_written_bytes,
                                               options_.zero.state_disk.endurance_bytes);
  if (!words.empty() && !std::exchange(said_endurance_, true)) progress->Warn(words);
}

// Of each host, whose disks may be others. It begins with how much of it is there.
void MemoryWords::SayHow(const std::string& how, Progress* progress) const {
  const std::string words = absl::StrCat("optimizer state: ", how);
  if (info_.rank == 0 && how.empty()) {
    progress->Warn(
        "geminid-train: --state-disk does nothing: this optimizer has no state beside the weights");
  } else if (info_.rank == 0) {
    progress->Announce(words);
  } else if (info_.local_rank == 0 && info_.local_world_size > 0) {
    progress->Warn(absl::StrCat("rank ", info_.rank, ": ", words));
  }
}

}  // namespace geminid::trainer
