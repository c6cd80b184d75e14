// How much of the optimizer's state goes to disk if host memory cannot hold all of it
// (StatePlacement::kAuto with Options::state_disk). Pure.
//
// Whole chunks go to disk, the last of the layout first. The next forward pass needs these last, so
// the most computation hides their updates. They are also not among the chunks that may move to the
// device, which are those that the forward pass needs first.
#ifndef GEMINID_CLIENT_ZERO_STATE_DISK_CHOICE_H_
#define GEMINID_CLIENT_ZERO_STATE_DISK_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/zero/basics/layout.h"
#include "client/zero/state/state_list.h"

namespace geminid::zero {

// The part of the room that stays free for later allocations in host memory: buffers between ranks,
// and activations.
inline constexpr uint64_t kRoomLeft = 16;  // one sixteenth

struct DiskChoice {
  std::vector<bool> on_disk{};   // by chunk
  size_t chunks = 0;             // on disk
  size_t needed_chunks = 0;      // that this rank alone would put on disk
  size_t trained_chunks = 0;     // all of them
  uint64_t room_bytes = 0;       // of host memory
  uint64_t undivided_bytes = 0;  // host memory of the store with nothing on disk
  uint64_t host_bytes = 0;       // host memory of the store with this choice
};

// The last `count` of the chunks that have state for the disk; all of them if there are fewer.
std::vector<bool> LastChunks(const Layout& layout, const StateStoreOptions& options, size_t count);

// Puts as few chunks on disk as possible, so that kRoomLeft of `room_bytes` of host memory stays
// free. Puts all there if even that leaves less.
DiskChoice ChooseOnDisk(const Layout& layout, StateStoreOptions options, uint64_t room_bytes);
// The same with `count` chunks, the number on which the ranks have agreed.
DiskChoice WithOnDisk(const Layout& layout, StateStoreOptions options, DiskChoice own,
                      size_t count);

// For people: "5 of 9 chunks, for ...".
std::string WhyOnDisk(const DiskChoice& choice);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_CHOICE_H_
