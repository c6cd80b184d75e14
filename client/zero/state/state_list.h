// What a StateStore allocates: one list of chunks, so that a successor finds the same one; and what
// lies on disk beside it. Whoever forecasts what a run takes asks the same list. Pure.
#ifndef GEMINID_CLIENT_ZERO_STATE_STATE_LIST_H_
#define GEMINID_CLIENT_ZERO_STATE_STATE_LIST_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/zero/basics/layout.h"
#include "client/zero/state/disk_shape.h"
#include "client/zero/state/state_view.h"
#include "geminid/session.h"
#include "geminid/zero.h"

namespace geminid::zero {

class DiskCount;

inline constexpr size_t kTrainedTypes = 2;  // the first of DataType

struct StateStoreOptions {
  bool accumulate = false;  // gradients are summed over micro-batches, in fp32
  // Of one granule each: where gradients land that are used up as they come. 0: every granule's
  // gradient has a place of its own.
  uint32_t landing_places = 0;
  bool on_device = false;      // no host homes: everything lives in the arena
  bool gradient_sums = false;  // of whole chunks, over micro-batches, before ranks add them up
  // Full-size arrays that the optimizer keeps per parameter, at most kMaxStateArrays, and of those
  // that are never cut.
  size_t state_arrays = 2;
  size_t whole_state_arrays = 2;
  DataType state_type = DataType::kFloat32;  // of their elements, or kBFloat16
  uint64_t tensor_state_bytes = 0;           // numbers per tensor, which every rank keeps whole
  uint64_t device_scale_bytes = 0;           // for kernels, beside state on the device
  uint64_t workspace_bytes = 0;              // of the optimizer, in host memory
  // By granule: state on the host that the device updates (client/zero/update/streamed_updates.h).
  // Empty: none is.
  std::vector<bool> streamed{};
  std::optional<DiskStateOptions> disk{};     // where state on disk is
  std::shared_ptr<DiskCount> disk_count{};    // of an earlier store of this process
  std::vector<bool> on_disk{};                // by chunk: all its state but weights; empty: none is
  bool resume = false;                        // from what a predecessor left, if it left this
  std::optional<size_t> noted_tensors{};      // steps are noted for a successor; none: they are not
  absl::Duration timeout = absl::Minutes(5);  // for each answer of the daemon

  bool has_homes() const { return !on_device; }
  // A successor must learn what is on disk, and how much was written there.
  bool NotesDisk() const { return disk.has_value() && noted_tensors.has_value(); }
};

// Extents of one form take each other's place.
struct StateForm {
  DataType type = DataType::kBFloat16;
  bool whole = false;    // ChunkShape::whole
  bool on_disk = false;  // but for the weight
  friend bool operator==(const StateForm&, const StateForm&) = default;
};

// Sessions allocate by lists: an extent's places in one.
struct ExtentSlots {
  size_t weight = 0;
  size_t remainder = 0;
  std::array<size_t, kMaxStateArrays> arrays = {};
  StateForm form{};
  bool trainable = false;
  DiskShape disk{};  // what of it is on disk
};

// In order: the extents, the gradients, numbers per tensor, spares, what the disk needs, and where
// gradients land.
struct StateList {
  std::vector<ChunkSpec> specs{};
  std::vector<ExtentSlots> extents{};
  std::vector<ExtentSlots> spares{};
  std::vector<size_t> gradients{};  // by granule
  size_t first_tensor_state = 0;
  size_t first_spare = 0;
  size_t first_of_disk = 0;
  size_t first_staging = 0;

  // Of extents in the order of their numbers: granules, then spares.
  std::vector<DiskShape> DiskShapes() const;
  // Payload of granules on disk, which no chunk has.
  uint64_t disk_bytes() const;
  // Weights, remainders, the optimizer's arrays and numbers per tensor; spares not included.
  uint64_t state_bytes() const;
};

StateForm FormOf(const ChunkShape& chunk, bool on_disk);
size_t ArraysOf(const StateForm& form, const StateStoreOptions& options);

StateList ListState(const Layout& layout, const StateStoreOptions& options);

// One for each form that anything is trained of. Without homes: of what the device updates, which
// is nothing on disk.
std::vector<ExtentSlots> AddSpares(const Layout& layout, const StateStoreOptions& options,
                                   bool has_home, const std::string& name,
                                   std::vector<ChunkSpec>* specs);

// What a session is charged in host memory for the list, by the daemon's rules, with the
// optimizer's workspace, the note of what is on disk and the count of what was written there.
uint64_t HostBytesOf(const Layout& layout, const StateStoreOptions& options);
// What pools for these chunks take.
uint64_t PoolBytes(const std::vector<ChunkSpec>& specs);

// What is on disk, as a successor reads it: a byte for each chunk.
ChunkSpec NoteOfDiskSpec(const Layout& layout);
// A word (client/zero/state/disk_count.h).
ChunkSpec DiskCountSpec();

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_LIST_H_
