// Tensors that a forward pass saves for its backward pass, in host memory until they are needed.
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
  // Of the arena: copies between the trainer's memory and the link pass through these places.
  uint64_t place_bytes = 4 << 20;  // of each; larger items are split
  uint32_t places = 4;             // at least 2
};

// Items of bytes in memory of the trainer's own, such as a framework's tensors. Saving an item
// copies it to a place of the arena in the order of a stream. The daemon then grants its copy to
// host memory, which the session is charged for. Items are loaded in any order and any number of
// times. Those that were saved before the one that is loaded are prefetched.
//
// Host memory is allocated when it is first needed, and reused until the engine ends.
//
// Thread-safe. An error of a copy is returned by each Save and Load from then on.
class GEMINID_EXPORT ActivationStore {
 public:
  virtual ~ActivationStore() = default;

  // Copies `bytes` bytes from the device (on the host device: from this process's memory), in the
  // order of `stream`. Returns the item's number, which no other item of this store ever has.
  // `from` may be written or freed in the order of the stream. Waits for a free place.
  // RESOURCE_EXHAUSTED: there is no host memory for the item, and the store is as before.
  virtual absl::StatusOr<uint64_t> Save(const std::byte* from, uint64_t bytes,
                                        StreamHandle stream) = 0;
  // Copies the item's `bytes` bytes to the device, in the order of `stream`. Waits until they are
  // in the arena. INVALID_ARGUMENT: there is no such item, or it has another size.
  virtual absl::Status Load(uint64_t item, std::byte* to, uint64_t bytes, StreamHandle stream) = 0;
  // The item is not needed any more. Never waits: its memory is reused once its copies are done.
  virtual absl::Status Drop(uint64_t item) = 0;

  // Host memory that the store has allocated, and items that were saved and not dropped.
  virtual uint64_t host_bytes() const = 0;
  virtual uint64_t items() const = 0;
};

// For an engine without an ActivationStack, on all ranks, before the first micro-batch and at most
// once. The store and its places are the engine's and end with it. INVALID_ARGUMENT names the
// option; RESOURCE_EXHAUSTED has the numbers where the arena of a rank has no room for the places:
// nothing has changed on any.
GEMINID_EXPORT absl::StatusOr<ActivationStore*> MakeActivationStore(
    Engine* engine, const ActivationStoreOptions& options);

}  // namespace geminid::zero

#endif  // GEMINID_ACTIVATION_STORE_H_
