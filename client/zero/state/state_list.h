// The chunks that a StateStore allocates, and its state on disk. The list is the same in each
// process of the run, so that a replacement finds the same chunks. Forecasts of a run's memory also
// use it. Pure.
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
#include "kernels/optimizers/optimizer.h"

namespace geminid::zero {

class DiskCount;

inline constexpr size_t kTrainedTypes = 2;  // the first of DataType

struct StateStoreOptions {
  bool accumulate = false;  // gradients are summed over micro-batches, in fp32
  // The number of places, one granule each, for gradients that are used as they arrive. 0: every
  // granule's gradient has a place of its own.
  uint32_t landing_places = 0;
  bool on_device = false;      // no host homes: everything lives in the arena
  bool gradient_sums = false;  // of whole chunks, over micro-batches, before the reduction
  // The optimizer's full-size arrays per parameter, at most kMaxStateArrays. The second number is
  // for parameters in granules that hold whole tensors.
  size_t state_arrays = 2;
  size_t whole_state_arrays = 2;
  DataType state_type = DataType::kFloat32;  // of the arrays' elements, or kBFloat16
  std::optional<kernels::OptimizerKind>
      optimizer{};                  // a replacement must have the same; unset: any
  uint64_t tensor_state_bytes = 0;  // numbers per tensor; every rank has all of them
  uint64_t device_scale_bytes = 0;  // for kernels that update state on the device
  uint64_t workspace_bytes = 0;     // the optimizer's, in host memory
  // By granule: whether the device updates state that lies on the host
  // (client/zero/update/streamed_updates.h). Empty: it updates none.
  std::vector<bool> streamed{};
  std::optional<DiskStateOptions> disk{};     // the place of state on disk
  std::shared_ptr<DiskCount> disk_count{};    // of an earlier store of this process
  std::vector<bool> on_disk{};                // by chunk: all its state except weights; empty: none
  bool resume = false;                    // takes over a previous process's state, if there is any
  std::optional<size_t> noted_tensors{};  // in the notes for a replacement; none: no notes
  absl::Duration timeout = absl::Minutes(5);  // for each answer of the daemon

  bool has_homes() const { return !on_device; }
  // A replacement process must learn which state is on disk, and how much was written there.
  bool NotesDisk() const { return disk.has_value() && noted_tensors.has_value(); }
};

// Extents of one form can replace each other.
struct StateForm {
  DataType type = DataType::kBFloat16;
  bool whole = false;    // ChunkShape::whole
  bool on_disk = false;  // except the weight
  friend bool operator==(const StateForm&, const StateForm&) = default;
};

// The positions of an extent's chunks in the list that a session allocates.
struct ExtentSlots {
  size_t weight = 0;
  size_t remainder = 0;
  std::array<size_t, kMaxStateArrays> arrays = {};
  StateForm form{};
  bool trainable = false;
  DiskShape disk{};  // the part of it on disk
};

// In this order: the extents, the gradients, numbers per tensor, spares, memory for the disk, and
// the places where gradients land.
struct StateList {
  std::vector<ChunkSpec> specs{};
  std::vector<ExtentSlots> extents{};
  std::vector<ExtentSlots> spares{};
  std::vector<size_t> gradients{};  // by granule
  size_t first_tensor_state = 0;
  size_t first_spare = 0;
  size_t first_of_disk = 0;
  size_t first_staging = 0;

  // By the number of the extent: granules first, then spares.
  std::vector<DiskShape> DiskShapes() const;
  // The chunks that charge a session for the files, one for each call of Session::Allocate.
  std::vector<ChunkSpec> DiskSpecs(size_t folders) const;
  // The payload of granules on disk. It is in no chunk.
  uint64_t disk_bytes() const;
  // Weights, remainders, the optimizer's arrays and numbers per tensor; spares not included.
  uint64_t state_bytes() const;
};

StateForm FormOf(const ChunkShape& chunk, bool on_disk);
size_t ArraysOf(const StateForm& form, const StateStoreOptions& options);

StateList ListState(const Layout& layout, const StateStoreOptions& options);

// Adds one spare for each form with trained extents. Without homes: only for forms that the device
// updates, so not for state on disk.
std::vector<ExtentSlots> AddSpares(const Layout& layout, const StateStoreOptions& options,
                                   bool has_home, const std::string& name,
                                   std::vector<ChunkSpec>* specs);

// The host memory that the daemon charges a session for the list, by the daemon's rules. It
// includes the optimizer's workspace, the note of chunks on disk and the count of bytes written
// there.
uint64_t HostBytesOf(const Layout& layout, const StateStoreOptions& options);
// The bytes of the pools for these chunks.
uint64_t PoolBytes(const std::vector<ChunkSpec>& specs);

// The note of chunks on disk, for a replacement process: one byte for each chunk.
ChunkSpec NoteOfDiskSpec(const Layout& layout);
// One word (client/zero/state/disk_count.h).
ChunkSpec DiskCountSpec();

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_LIST_H_
