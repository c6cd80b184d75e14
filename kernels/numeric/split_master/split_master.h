#ifndef GEMINID_KERNELS_NUMERIC_SPLIT_MASTER_SPLIT_MASTER_H_
#define GEMINID_KERNELS_NUMERIC_SPLIT_MASTER_SPLIT_MASTER_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/status.h"

// An fp32 master weight, stored as the bf16 weight that training uses and a 16-bit remainder: 4
// bytes instead of 6, and no second copy to update.
//
//   weight    = the upper 16 bits of (bits(master) + 0x8000), modulo 2^32
//   remainder = the lower 16 bits of  bits(master), read as a signed number
//   bits(master) = (weight.bits << 16) + remainder, modulo 2^32
//
// The third line determines the other two: the remainder modulo 2^16, and then the weight modulo
// 2^16. It holds for all 2^32 patterns; nothing is canonicalised.
//
// The sign-magnitude order of binary32 makes adding 0x8000 to the bits a rounding of the magnitude
// to nearest, ties away from zero, in every binade and across them. What that means at the ends:
//   - |master| >= 0x7F7F8000 (3.3961775e38), finite: the weight is infinite, the value IEEE-754
//     rounding gives as well. The master stays finite and exact.
//   - infinities: weight is the same infinity, remainder 0.
//   - NaN: the weight is NaN too, except at the two ends of the payload range. Lower bits only
//     (0x7F800001..0x7F807FFF) round to infinity. All upper bits set and the half bit
//     (0x7FFF8000..0x7FFFFFFF) carry into the sign and give the zero of the other sign. No exact
//     split avoids this: there are 2^16 - 1 NaN of each sign more than (NaN weight, remainder)
//     pairs. A producer of masters should therefore write its NaN as 0x7FC00000, as
//     kernels/optimizers/adamw does.
namespace geminid::kernels {

// One element, inline: for loops that do more than split.
struct SplitFloat {
  BFloat16 weight;
  int16_t remainder;
};

constexpr SplitFloat SplitMasterBits(uint32_t master_bits) {
  return {{static_cast<uint16_t>((master_bits + 0x8000u) >> 16)},
          static_cast<int16_t>(static_cast<uint16_t>(master_bits))};
}

constexpr uint32_t JoinMasterBits(SplitFloat split) {
  return (static_cast<uint32_t>(split.weight.bits) << 16) +
         static_cast<uint32_t>(static_cast<int32_t>(split.remainder));
}

// Splits `count` masters. Both functions: outputs disjoint from inputs and from each other,
// element alignment suffices, any thread, no allocation, never blocks. Bits do not depend on the
// instruction set or on how the array is cut into calls. 8 bytes of traffic per element.
Status SplitMaster(const float* master, size_t count, BFloat16* weight, int16_t* remainder);

// The inverse, bit for bit.
Status JoinMaster(const BFloat16* weight, const int16_t* remainder, size_t count, float* master);

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_SPLIT_MASTER_SPLIT_MASTER_H_
