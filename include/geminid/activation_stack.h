// Offloads activations between the forward and the backward pass if they do not all fit the arena.
#ifndef GEMINID_ACTIVATION_STACK_H_
#define GEMINID_ACTIVATION_STACK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "geminid/export.h"
#include "geminid/stream.h"

namespace geminid::zero {

struct ActivationShape {
  // The size of each item that a micro-batch's forward pass pushes, in order; none is 0.
  std::vector<uint64_t> item_bytes{};
  // Places in the arena, each as large as the largest item; at least 2. One per item: no eviction.
  uint32_t places = 3;
  // The stream that the trainer's work on items is queued on; none: it is complete at each call.
  std::optional<StreamHandle> stream = std::nullopt;
};

// Items of bytes, which the forward pass pushes and the backward pass pops. In both passes item i
// has place i % places, so addresses stay valid. If another item needs the place, the bytes wait
// in host memory. They are copied there while the forward pass continues, and back while the
// backward pass works on later items. The daemon grants all copies. All memory is charged to the
// session.
//
// Used by one thread. Once a copy has failed, every call returns its error.
class GEMINID_EXPORT ActivationStack {
 public:
  virtual ~ActivationStack() = default;

  // Begins a micro-batch: the stack is empty, whatever the last one left in it. Waits for copies in
  // progress.
  virtual absl::Status Begin() = 0;
  // The next item's place, uninitialised, at an arena address aligned to 4096. Waits until the
  // earlier item in that place is evicted. FAILED_PRECONDITION if Written was not called for that
  // earlier item, or there is no further item.
  virtual absl::StatusOr<std::byte*> Push() = 0;
  // The work queued on the stream so far completes the item. It may be evicted from now on: nothing
  // may touch it until Top returns it.
  virtual absl::Status Written(uint32_t item) = 0;
  // The place, with its bytes, of the newest item that is not popped. Waits for the bytes.
  virtual absl::StatusOr<std::byte*> Top() = 0;
  // The work queued on the stream so far is the last that needs the top item. Then the prefetch of
  // an item that waits for its place begins.
  virtual absl::Status Pop() = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_ACTIVATION_STACK_H_
