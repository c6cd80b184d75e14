// The types that the elements of parameters have.
#ifndef GEMINID_DATA_TYPE_H_
#define GEMINID_DATA_TYPE_H_

#include <cstddef>

namespace geminid::zero {

// Of a parameter's elements on the device, and of gradients.
enum class DataType {
  kBFloat16,
  kFloat32,
  // Of frozen parameters alone, as the base of low-rank adapters: the bytes are kept as they are.
  // Values are read and written as fp32 like those of other parameters: fp16 rounds to nearest, and
  // an integer takes whole numbers of its range. What the bytes mean, as two weights of 4 bits in
  // each, is the trainer's.
  kFloat16,
  kInt8,
  kUint8,
};
// In bytes.
constexpr size_t SizeOf(DataType type) {
  if (type == DataType::kFloat32) return 4;
  return type == DataType::kInt8 || type == DataType::kUint8 ? 1 : 2;
}
// Whether parameters of this type can be trained, and gradients can have it.
constexpr bool IsTrained(DataType type) {
  return type == DataType::kBFloat16 || type == DataType::kFloat32;
}

}  // namespace geminid::zero

#endif  // GEMINID_DATA_TYPE_H_
