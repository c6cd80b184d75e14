// The addresses of one granule's state.
#ifndef GEMINID_CLIENT_ZERO_STATE_STATE_VIEW_H_
#define GEMINID_CLIENT_ZERO_STATE_STATE_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "geminid/data_type.h"

namespace geminid::zero {

inline constexpr size_t kMaxStateArrays = 2;

// Frozen granules have only a weight, and fp32 weights have no remainder.
struct StateView {
  DataType type = DataType::kBFloat16;  // of the weight
  std::byte* weight = nullptr;
  int16_t* remainder = nullptr;
  DataType state_type = DataType::kFloat32;  // of the arrays
  std::array<std::byte*, kMaxStateArrays> arrays = {};
};

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_STATE_VIEW_H_
