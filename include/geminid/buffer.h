// Element types, reductions and buffers of the collectives.
#ifndef GEMINID_BUFFER_H_
#define GEMINID_BUFFER_H_

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "geminid/export.h"

namespace geminid::collectives {

enum class DType : uint8_t {
  kFloat32 = 0,
  kBFloat16,
  kFloat16,
  kFloat64,
  kInt32,
  kInt64,
  kUint8,
};
inline constexpr int kDTypeCount = 7;

enum class ReduceOp : uint8_t { kSum = 0, kMin, kMax };

// Storage of the 16-bit formats. The collectives compute with them in fp32.
struct BFloat16 {
  uint16_t bits = 0;
  friend bool operator==(BFloat16, BFloat16) = default;
};
struct Float16 {
  uint16_t bits = 0;
  friend bool operator==(Float16, Float16) = default;
};

// Bytes of one element; 0 for a value outside the enum.
constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kBFloat16:
    case DType::kFloat16:
      return 2;
    case DType::kFloat64:
    case DType::kInt64:
      return 8;
    case DType::kUint8:
      return 1;
  }
  return 0;
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kBFloat16 || dtype == DType::kFloat16 ||
         dtype == DType::kFloat64;
}

// "bfloat16" and so on, for messages.
GEMINID_EXPORT const char* Name(DType dtype);
GEMINID_EXPORT const char* Name(ReduceOp op);

template <class T>
struct DTypeOfElement;
template <>
struct DTypeOfElement<float> : std::integral_constant<DType, DType::kFloat32> {};
template <>
struct DTypeOfElement<BFloat16> : std::integral_constant<DType, DType::kBFloat16> {};
template <>
struct DTypeOfElement<Float16> : std::integral_constant<DType, DType::kFloat16> {};
template <>
struct DTypeOfElement<double> : std::integral_constant<DType, DType::kFloat64> {};
template <>
struct DTypeOfElement<int32_t> : std::integral_constant<DType, DType::kInt32> {};
template <>
struct DTypeOfElement<int64_t> : std::integral_constant<DType, DType::kInt64> {};
template <>
struct DTypeOfElement<uint8_t> : std::integral_constant<DType, DType::kUint8> {};

// Contiguous elements that outlive the expression: an lvalue vector or array, or any span.
template <class Range>
concept ElementRange = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::ranges::borrowed_range<Range> && requires {
  DTypeOfElement<std::remove_cv_t<std::ranges::range_value_t<Range>>>::value;
};

// Borrowed, read-only elements. `count` is in elements. No alignment is required; 64 bytes give the
// fastest paths.
struct ConstBuffer {
  const std::byte* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kUint8;

  ConstBuffer() = default;
  ConstBuffer(const void* elements, size_t element_count, DType type)
      : data(static_cast<const std::byte*>(elements)), count(element_count), dtype(type) {}
  template <ElementRange Range>
  ConstBuffer(Range&& range)  // NOLINT: implicit, so that vectors and spans can be passed
      : ConstBuffer(std::ranges::data(range), std::ranges::size(range),
                    DTypeOfElement<std::remove_cv_t<std::ranges::range_value_t<Range>>>::value) {}

  size_t bytes() const { return count * SizeOf(dtype); }
};

// Borrowed, writable elements.
struct Buffer {
  std::byte* data = nullptr;
  size_t count = 0;
  DType dtype = DType::kUint8;

  Buffer() = default;
  Buffer(void* elements, size_t element_count, DType type)
      : data(static_cast<std::byte*>(elements)), count(element_count), dtype(type) {}
  template <ElementRange Range>
  requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>)
      Buffer(Range&& range)  // NOLINT: implicit, as above
      : Buffer(std::ranges::data(range), std::ranges::size(range),
               DTypeOfElement<std::remove_cv_t<std::ranges::range_value_t<Range>>>::value) {}

  size_t bytes() const { return count * SizeOf(dtype); }
  operator ConstBuffer() const { return ConstBuffer(data, count, dtype); }  // NOLINT: implicit
};

}  // namespace geminid::collectives

#endif  // GEMINID_BUFFER_H_
