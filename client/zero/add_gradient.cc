#include "client/zero/add_gradient.h"

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/runtime/common/bfloat16.h"

namespace geminid::zero {
namespace {

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
void Add(std::byte* storage, bool accumulates, std::span<const std::byte> gradient) {
  To* const to = reinterpret_cast<To*>(storage);
  for (uint64_t i = 0; i < gradient.size() / sizeof(From); ++i) {
    From from;
    std::memcpy(&from, &gradient[i * sizeof(From)], sizeof(From));
    if constexpr (std::is_same_v<To, From>) {
      to[i] = accumulates ? FromFloat<To>(ToFloat(to[i]) + ToFloat(from)) : from;
    } else {
      to[i] = FromFloat<To>(accumulates ? ToFloat(to[i]) + ToFloat(from) : ToFloat(from));
    }
  }
}

}  // namespace

void AddGradientTo(std::byte* storage, DataType storage_type, bool accumulates,
                   std::span<const std::byte> gradient, DataType gradient_type) {
  const bool from_float = gradient_type == DataType::kFloat32;
  if (storage_type == DataType::kFloat32) {
    from_float ? Add<float, float>(storage, accumulates, gradient)
               : Add<float, BFloat16>(storage, accumulates, gradient);
  } else {
    from_float ? Add<BFloat16, float>(storage, accumulates, gradient)
               : Add<BFloat16, BFloat16>(storage, accumulates, gradient);
  }
}

}  // namespace geminid::zero
