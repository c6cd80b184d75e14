// Values of the types that no parameter is trained in (IsTrained), as fp32 and back.
#ifndef GEMINID_CLIENT_ZERO_VALUES_FROZEN_VALUES_H_
#define GEMINID_CLIENT_ZERO_VALUES_FROZEN_VALUES_H_

#include <cstddef>
#include <optional>
#include <span>

#include "geminid/data_type.h"

namespace geminid::zero {

// `bytes` are as many elements of the type as there are values.
void ToFloats(DataType type, std::span<const std::byte> bytes, std::span<float> values);
// Rounds to the nearest value that fp16 has; integers must pass FirstUnfit.
void FromFloats(DataType type, std::span<const float> values, std::span<std::byte> bytes);

// The first value that an integer type does not have: a fraction, or one out of its range. Always
// nothing for the other types.
std::optional<size_t> FirstUnfit(DataType type, std::span<const float> values);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_VALUES_FROZEN_VALUES_H_
