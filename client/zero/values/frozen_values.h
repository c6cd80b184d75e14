// Converts between fp32 and the types that only frozen parameters may have (see IsTrained).
#ifndef GEMINID_CLIENT_ZERO_VALUES_FROZEN_VALUES_H_
#define GEMINID_CLIENT_ZERO_VALUES_FROZEN_VALUES_H_

#include <cstddef>
#include <optional>
#include <span>

#include "geminid/data_type.h"

namespace geminid::zero {

// `bytes` has as many elements of the type as `values` has values.
void ToFloats(DataType type, std::span<const std::byte> bytes, std::span<float> values);
// Rounds to the nearest fp16 value. Values for integer types must first pass FirstUnrepresentable.
void FromFloats(DataType type, std::span<const float> values, std::span<std::byte> bytes);

// The index of the first value that the integer type cannot represent: a fraction, or a value out
// of range. Always nullopt for other types.
std::optional<size_t> FirstUnrepresentable(DataType type, std::span<const float> values);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_VALUES_FROZEN_VALUES_H_
