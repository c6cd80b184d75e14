#include "client/device/host/add_elements.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/runtime/common/bfloat16.h"

namespace geminid::device {
namespace {

using collectives::DType;
using kernels::BFloat16;

template <typename T>
float ToFloat(T value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return value.ToFloat();
  }
}

template <typename T>
T FromFloat(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return BFloat16::FromFloat(value);
  }
}

template <typename To, typename From>
void Add(const Elements& elements, bool accumulates, std::byte* storage) {
  To* const to = reinterpret_cast<To*>(storage);
  for (uint64_t i = 0; i < elements.count; ++i) {
    From from;
    std::memcpy(&from, &elements.data[i * sizeof(From)], sizeof(From));
    if constexpr (std::is_same_v<To, From>) {
      to[i] = accumulates ? FromFloat<To>(ToFloat(to[i]) + ToFloat(from)) : from;
    } else {
      to[i] = FromFloat<To>(accumulates ? ToFloat(to[i]) + ToFloat(from) : ToFloat(from));
    }
  }
}

}  // namespace

void AddElements(const Elements& from, bool accumulates, std::byte* to, DType type) {
  const bool from_float = from.type == DType::kFloat32;
  if (type == DType::kFloat32) {
    from_float ? Add<float, float>(from, accumulates, to)
               : Add<float, BFloat16>(from, accumulates, to);
  } else {
    from_float ? Add<BFloat16, float>(from, accumulates, to)
               : Add<BFloat16, BFloat16>(from, accumulates, to);
  }
}

}  // namespace geminid::device
