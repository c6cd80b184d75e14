#include "client/zero/state/disk_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::zero {
namespace {

// That have something for the disk, in order.
std::vector<size_t> Candidates(const Layout& layout, StateStoreOptions options) {
  options.on_disk.assign(layout.chunks.size(), true);
  const StateList list = ListState(layout, options);
  std::vector<size_t> candidates;
  for (size_t c = 0; c < layout.chunks.size(); ++c) {
    if (list.extents[layout.chunks[c].first_granule].form.on_disk) candidates.push_back(c);
  }
  return candidates;
}

std::vector<bool> LastOf(const std::vector<size_t>& candidates, size_t chunks, size_t count) {
  std::vector<bool> on_disk(chunks, false);
  for (size_t i = candidates.size() - count; i < candidates.size(); ++i) {
    on_disk[candidates[i]] = true;
  }
  return on_disk;
}

}  // namespace

std::vector<bool> LastChunks(const Layout& layout, const StateStoreOptions& options, size_t count) {
  const std::vector<size_t> candidates = Candidates(layout, options);
  return LastOf(candidates, layout.chunks.size(), std::min(count, candidates.size()));
}

DiskChoice WithOnDisk(const Layout& layout, StateStoreOptions options, uint64_t room_bytes,
                      size_t count) {
  DiskChoice choice = {.room_bytes = room_bytes};
  for (const ChunkShape& chunk : layout.chunks) choice.trained_chunks += chunk.trainable ? 1 : 0;
  options.on_disk.clear();
  choice.undivided_bytes = HostBytesOf(layout, options);
  choice.on_disk = options.on_disk = LastChunks(layout, options, count);
  for (const bool on_disk : choice.on_disk) choice.chunks += on_disk ? 1 : 0;
  choice.host_bytes = HostBytesOf(layout, options);
  return choice;
}

DiskChoice ChooseOnDisk(const Layout& layout, StateStoreOptions options, uint64_t room_bytes) {
  const std::vector<size_t> candidates = Candidates(layout, options);
  const auto fits = [&](size_t count, uint64_t bytes) {
    options.on_disk = LastOf(candidates, layout.chunks.size(), count);
    return HostBytesOf(layout, options) <= bytes;
  };
  if (candidates.empty() || fits(0, room_bytes)) return WithOnDisk(layout, options, room_bytes, 0);
  // Each chunk more takes less host memory, and each look lists all state: few looks.
  const uint64_t left = room_bytes - room_bytes / kRoomLeft;
  size_t least = 1, most = candidates.size();
  while (least < most) {
    const size_t count = least + (most - least) / 2;
    if (fits(count, left)) {
      most = count;
    } else {
      least = count + 1;
    }
  }
  return WithOnDisk(layout, std::move(options), room_bytes, least);
}

std::string WhyOnDisk(const DiskChoice& choice) {
  const std::string room = absl::StrCat(
      "state would take ", base::FormatBytes(choice.undivided_bytes),
      " of host memory, where there is room for ", base::FormatBytes(choice.room_bytes));
  if (choice.chunks == 0) return absl::StrCat("none on disk: ", room);
  return absl::StrCat(choice.chunks, " of ", choice.trained_chunks, " chunks on disk: ", room,
                      "; so it takes ", base::FormatBytes(choice.host_bytes));
}

}  // namespace geminid::zero
