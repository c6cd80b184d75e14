// The types of parameters' elements.
#ifndef GEMINID_DATA_TYPE_H_
#define GEMINID_DATA_TYPE_H_

#include <cstddef>

namespace geminid::zero {

// The type of a parameter's elements on the device, and of gradients.
enum class DataType {
  kBFloat16,
  kFloat32,
  // Only for frozen parameters, such as the base of low-rank adapters: their bytes never change.
  // Values are read and written as fp32, like those of other parameters: fp16 rounds to nearest,
  // and integers accept whole numbers of their range. The meaning of the bytes, such as two 4-bit
  // weights in each, is up to the trainer.
  kFloat16,
  kInt8,
  kUint8,
};
// In bytes.
constexpr size_t SizeOf(DataType type) {
  if (type == DataType::kFloat32) return 4;
  return type == DataType::kInt8 || type == DataType::kUint8 ? 1 : 2;
}
// Whether parameters of this type can be trained, and gradients can have this type.
constexpr bool IsTrained(DataType type) {
  return type == DataType::kBFloat16 || type == DataType::kFloat32;
}

}  // namespace geminid::zero

#endif  // GEMINID_DATA_TYPE_H_
