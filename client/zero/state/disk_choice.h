// How much of the optimizer's state goes to disk where host memory does not hold it all
// (StatePlacement::kAuto with Options::state_disk). Pure.
//
// Whole chunks go there, the last of the layout first. The next forward pass needs these last, so
// that the most computation hides their updates; and they are not among those that may move to the
// device, which are the first that it needs.
#ifndef GEMINID_CLIENT_ZERO_STATE_DISK_CHOICE_H_
#define GEMINID_CLIENT_ZERO_STATE_DISK_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "client/zero/basics/layout.h"
#include "client/zero/state/state_list.h"

namespace geminid::zero {

// Of the room, what is left for whatever takes host memory later: buffers between ranks,
// activations.
inline constexpr uint64_t kRoomLeft = 16;  // one part

struct DiskChoice {
  std::vector<bool> on_disk{};   // by chunk
  size_t chunks = 0;             // of these
  size_t needed_chunks = 0;      // that this rank alone would have there
  size_t trained_chunks = 0;     // in all
  uint64_t room_bytes = 0;       // of host memory
  uint64_t undivided_bytes = 0;  // that the store would take with nothing on disk
  uint64_t host_bytes = 0;       // that it takes
};

// The last `count` of the chunks that have something for the disk; all, if there are fewer.
std::vector<bool> LastChunks(const Layout& layout, const StateStoreOptions& options, size_t count);

// As few as leave kRoomLeft of `room_bytes` of host memory, none if that does. All where even these
// do not leave that much.
DiskChoice ChooseOnDisk(const Layout& layout, StateStoreOptions options, uint64_t room_bytes);
// The same with so many: what the ranks have agreed on.
DiskChoice WithOnDisk(const Layout& layout, StateStoreOptions options, DiskChoice own,
                      size_t count);

// For people: "5 of 9 chunks, for ...".
std::string WhyOnDisk(const DiskChoice& choice);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_DISK_CHOICE_H_
