#include "client/zero/values/frozen_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels/runtime/common/float16.h"

namespace geminid::zero {
namespace {

template <typename Element, typename Convert>
void ReadAs(std::span<const std::byte> bytes, std::span<float> values, const Convert& convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    Element element;
    std::memcpy(&element, bytes.data() + i * sizeof(Element), sizeof(Element));
    values[i] = convert(element);
  }
}

template <typename Element, typename Convert>
void WriteAs(std::span<const float> values, std::span<std::byte> bytes, const Convert& convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const Element element = convert(values[i]);
    std::memcpy(bytes.data() + i * sizeof(Element), &element, sizeof(Element));
  }
}

template <typename Integer>
bool Fits(float value) {
  return value >= std::numeric_limits<Integer>::min() &&
         value <= std::numeric_limits<Integer>::max() &&
         static_cast<float>(static_cast<Integer>(value)) == value;
}

}  // namespace

void ToFloats(DataType type, std::span<const std::byte> bytes, std::span<float> values) {
  const auto number = [](auto integer) { return static_cast<float>(integer); };
  if (type == DataType::kInt8) return ReadAs<int8_t>(bytes, values, number);
  if (type == DataType::kUint8) return ReadAs<uint8_t>(bytes, values, number);
  ReadAs<kernels::Float16>(bytes, values, [](kernels::Float16 half) { return half.ToFloat(); });
}

void FromFloats(DataType type, std::span<const float> values, std::span<std::byte> bytes) {
  const auto to_int8 = [](float value) { return static_cast<int8_t>(value); };
  const auto to_uint8 = [](float value) { return static_cast<uint8_t>(value); };
  if (type == DataType::kInt8) return WriteAs<int8_t>(values, bytes, to_int8);
  if (type == DataType::kUint8) return WriteAs<uint8_t>(values, bytes, to_uint8);
  WriteAs<kernels::Float16>(values, bytes, &kernels::Float16::FromFloat);
}

std::optional<size_t> FirstUnrepresentable(DataType type, std::span<const float> values) {
  auto found = values.end();
  if (type == DataType::kInt8) found = std::ranges::find_if_not(values, Fits<int8_t>);
  if (type == DataType::kUint8) found = std::ranges::find_if_not(values, Fits<uint8_t>);
  if (found == values.end()) return std::nullopt;
  return static_cast<size_t>(found - values.begin());
}

}  // namespace geminid::zero
