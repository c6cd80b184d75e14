// The arrays of an optimizer's step as a list, for devices that move them before a kernel sees
// them.
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

// What a step of the arrays' form reads or writes, in an order that is the same for the same form:
// weights, state, and of a segment the gradient. State that the optimizer lacks is null.
std::vector<ArrayOf> ArraysOf(const kernels::Segment& segment);
std::vector<ArrayOf> ArraysOf(const kernels::ParameterArrays& arrays);

// The same with the arrays at `places`, in the order of ArraysOf.
kernels::Segment WithArrays(const kernels::Segment& segment, std::span<std::byte* const> places);
kernels::ParameterArrays WithArrays(const kernels::ParameterArrays& arrays,
                                    std::span<std::byte* const> places);

// Elements [begin, begin + count) of a segment.
kernels::Segment PartOf(const kernels::Segment& segment, uint64_t begin, size_t count);

}  // namespace geminid::device

#endif  // GEMINID_CLIENT_DEVICE_SEGMENT_ARRAYS_H_
