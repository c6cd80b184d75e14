// The arrays of an optimizer's step as a list, for devices that copy them before they run a kernel.
// Also the inverse.
#ifndef GEMINID_CLIENT_DEVICE_SEGMENT_ARRAYS_H_
#define GEMINID_CLIENT_DEVICE_SEGMENT_ARRAYS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/optimizers/sharded_step.h"
#include "kernels/optimizers/step/parameter_arrays.h"

namespace geminid::device {

struct ArrayOf {
  const std::byte* data = nullptr;
  uint64_t element_bytes = 0;
};

// The arrays that a step of this form reads or writes, always in the same order for one form:
// weights, state and, for a segment, the gradient. Null for state that the optimizer lacks.
std::vector<ArrayOf> ArraysOf(const kernels::Segment& segment);
std::vector<ArrayOf> ArraysOf(const kernels::ParameterArrays& arrays);

// The same segment or arrays, located at `places`, which have the order of ArraysOf.
kernels::Segment WithArrays(const kernels::Segment& segment, std::span<std::byte* const> places);
kernels::ParameterArrays WithArrays(const kernels::ParameterArrays& arrays,
                                    std::span<std::byte* const> places);

// Elements [begin, begin + count) of a segment.
kernels::Segment PartOf(const kernels::Segment& segment, uint64_t begin, size_t count);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_SEGMENT_ARRAYS_H_
