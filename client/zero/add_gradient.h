// Gradients that are copied in: each sum is formed in fp32 and rounded once to the storage's type.
#ifndef GEMINID_CLIENT_ZERO_ADD_GRADIENT_H_
#define GEMINID_CLIENT_ZERO_ADD_GRADIENT_H_

#include <cstddef>
#include <span>

#include "geminid/zero.h"

namespace geminid::zero {

// storage += gradient, or storage = gradient unless it `accumulates`. Both hold whole elements, as
// many of either; the gradient need not be aligned.
void AddGradientTo(std::byte* storage, DataType storage_type, bool accumulates,
                   std::span<const std::byte> gradient, DataType gradient_type);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_ADD_GRADIENT_H_
