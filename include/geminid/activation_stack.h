// What the forward pass leaves for the backward pass, where the arena has no room for all of it.
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
  // Of each item that the forward pass of a micro-batch pushes, in order; none is 0.
  std::vector<uint64_t> item_bytes{};
  // In the arena, each for the largest item: at least 2. As many as there are items: none leaves.
  uint32_t places = 3;
  // Where the trainer's work on items is queued. None: it is complete when the trainer calls.
  std::optional<StreamHandle> stream = std::nullopt;
};

// Items of bytes, pushed by the forward pass and popped by the backward pass. Item i has place
// i % places for both, so addresses stay valid. When another item needs its place, the item's bytes
// wait in host memory: they leave while the forward pass goes on, and come back while the backward
// pass works on the items after it. All copies are granted by the daemon, and all memory is charged
// to the session.
//
// One thread. An error of a copy is returned by each call from then on.
class GEMINID_EXPORT ActivationStack {
 public:
  virtual ~ActivationStack() = default;

  // A micro-batch begins: the stack is empty, whatever the last one left in it. Waits for copies
  // that are on their way.
  virtual absl::Status Begin() = 0;
  // The place of the next item, uninitialised, aligned to 4096: an address of the arena. Waits
  // until what lay there has left; FAILED_PRECONDITION where Written was not called for that, or no
  // item is left.
  virtual absl::StatusOr<std::byte*> Push() = 0;
  // The item is complete, by what is queued on the stream so far. It may leave now: until Top
  // returns it nobody touches it.
  virtual absl::Status Written(uint32_t item) = 0;
  // The place of the last item that was pushed and not popped, with its bytes. Waits for them.
  virtual absl::StatusOr<std::byte*> Top() = 0;
  // Nobody needs that item any more, after what is queued on the stream so far. An item that waits
  // for its place begins to come.
  virtual absl::Status Pop() = 0;
};

}  // namespace geminid::zero

#endif  // GEMINID_ACTIVATION_STACK_H_
