// Tensors that a forward pass saves for its backward pass; in host memory until they are needed.
#ifndef GEMINID_ACTIVATION_STORE_H_
#define GEMINID_ACTIVATION_STORE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/export.h"
#include "geminid/stream.h"

namespace geminid::zero {

class Engine;

struct ActivationStoreOptions {
  // Places in the arena, through which copies between the trainer's memory and the link pass.
  uint64_t place_bytes = 4 << 20;  // of each; larger items are split
  uint32_t places = 4;             // at least 2
};

// Items are bytes in the trainer's own memory, such as a framework's tensors. Save copies an item
// to places in the arena, in stream order. From there it is copied to host memory, as the daemon
// grants it; the session is charged for that memory. Items can be loaded in any order, any number
// of times. A load prefetches the items that were saved before the loaded one.
//
// Host memory is allocated when first needed, and reused until the engine ends.
//
// Thread-safe. Once a copy has failed, every Save and Load returns its error.
class GEMINID_EXPORT ActivationStore {
 public:
  virtual ~ActivationStore() = default;

  // Copies `bytes` bytes from the device (on the host device: from this process's memory), in the
  // order of `stream`. Returns the item's number, which the store never reuses. `from` may be
  // overwritten or freed in the order of the stream. Waits for a free place. RESOURCE_EXHAUSTED: no
  // host memory for the item; the store is unchanged.
  virtual absl::StatusOr<uint64_t> Save(const std::byte* from, uint64_t bytes,
                                        StreamHandle stream) = 0;
  // Copies the item's `bytes` bytes to the device, in the order of `stream`. Waits until they are
  // in the arena. INVALID_ARGUMENT: there is no such item, or it has another size.
  virtual absl::Status Load(uint64_t item, std::byte* to, uint64_t bytes, StreamHandle stream) = 0;
  // The item is no longer needed. Never waits: its memory is reused after its copies have ended.
  virtual absl::Status Drop(uint64_t item) = 0;

  // Bytes of host memory that the store has allocated, and the number of items not yet dropped.
  virtual uint64_t host_bytes() const = 0;
  virtual uint64_t items() const = 0;
};

// For an engine without an ActivationStack. On all ranks, before the first micro-batch, at most
// once. The engine owns the store and its places. INVALID_ARGUMENT names the option.
// RESOURCE_EXHAUSTED has the numbers, if a rank's arena has no room for the places. After an error
// nothing has changed on any rank.
GEMINID_EXPORT absl::StatusOr<ActivationStore*> MakeActivationStore(
    Engine* engine, const ActivationStoreOptions& options);

}  // namespace geminid::zero

#endif  // GEMINID_ACTIVATION_STORE_H_
