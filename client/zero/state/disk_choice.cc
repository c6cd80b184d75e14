#include "client/zero/state/disk_choice.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace geminid::zero {
namespace {

// The chunks that have state for the disk, in order.
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

DiskChoice WithOnDisk(const Layout& layout, StateStoreOptions options, DiskChoice own,
                      size_t count) {
  own.on_disk = options.on_disk = LastChunks(layout, options, count);
  own.chunks = static_cast<size_t>(std::ranges::count(own.on_disk, true));
  own.host_bytes = HostBytesOf(layout, options);
  return own;
}

DiskChoice ChooseOnDisk(const Layout& layout, StateStoreOptions options, uint64_t room_bytes) {
  const std::vector<size_t> candidates = Candidates(layout, options);
  const auto bytes_with = [&](size_t count) {
    options.on_disk = LastOf(candidates, layout.chunks.size(), count);
    return HostBytesOf(layout, options);
  };
  DiskChoice choice = {.room_bytes = room_bytes, .undivided_bytes = bytes_with(0)};
  for (const ChunkShape& chunk : layout.chunks) choice.trained_chunks += chunk.trainable ? 1 : 0;
  const uint64_t usable = room_bytes - room_bytes / kRoomLeft;
  if (choice.undivided_bytes > usable && !candidates.empty()) {
    // More chunks on disk take less host memory. Each try lists all state, so bisection saves time.
    size_t least = 1, most = candidates.size();
    while (least < most) {
      const size_t count = least + (most - least) / 2;
      if (bytes_with(count) <= usable) {
        most = count;
      } else {
        least = count + 1;
      }
    }
    choice.needed_chunks = least;
  }
  const size_t needed = choice.needed_chunks;
  return WithOnDisk(layout, std::move(options), std::move(choice), needed);
}

std::string WhyOnDisk(const DiskChoice& choice) {
  const std::string room = absl::StrCat(
      "state would take ", base::FormatBytes(choice.undivided_bytes),
      " of host memory, where there is room for ", base::FormatBytes(choice.room_bytes), ", ",
      base::FormatBytes(choice.room_bytes / kRoomLeft), " of it for buffers");
  if (choice.chunks == 0) return absl::StrCat("none on disk: ", room);
  std::string why = absl::StrCat(choice.chunks, " of ", choice.trained_chunks, " chunks on disk");
  if (choice.needed_chunks < choice.chunks) {
    absl::StrAppend(&why, ", as many as the rank with the least host memory needs there; this one ",
                    "needs ",
                    choice.needed_chunks == 0 ? "none" : absl::StrCat(choice.needed_chunks));
  }
  return absl::StrCat(why, ": ", room, "; so it takes ", base::FormatBytes(choice.host_bytes));
}

}  // namespace geminid::zero
