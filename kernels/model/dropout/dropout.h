// The choice of the elements that dropout keeps, and their factor. Both depend only on a stream of
// random numbers and the element's index, and are the same on host and GPU.
#ifndef GEMINID_KERNELS_MODEL_DROPOUT_DROPOUT_H_
#define GEMINID_KERNELS_MODEL_DROPOUT_DROPOUT_H_

#include <cstdint>

#include "base/counter_random.h"
#include "kernels/runtime/common/host_device.h"

namespace geminid::kernels {

struct DropoutPattern {
  static constexpr uint64_t kBits = 16;  // random bits of an element
  static constexpr uint64_t kElementsPerDraw = 64 / kBits;

  uint64_t stream = 0;
  uint64_t below = 0;  // of 2^kBits: an element whose bits are below this becomes 0
  float kept = 1;      // the factor of the other elements

  GEMINID_HOST_DEVICE uint64_t Draw(uint64_t element) const {
    return base::RandomBits(stream, element / kElementsPerDraw);
  }
  // The factor of `element`, whose draw is `draw`.
  GEMINID_HOST_DEVICE float Factor(uint64_t draw, uint64_t element) const {
    const uint64_t bits = draw >> kBits * (element % kElementsPerDraw);
    return (bits & ((uint64_t{1} << kBits) - 1)) < below ? 0.0F : kept;
  }
};

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_DROPOUT_DROPOUT_H_
