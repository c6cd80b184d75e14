#include "tests/kernels/numeric/split_master_reference.h"

#include <bit>

#include "kernels/numeric/split_master/split_master.h"

namespace geminid::kernels::reference {

void SplitMaster(const float* master, size_t count, BFloat16* weight, int16_t* remainder) {
  for (size_t i = 0; i < count; ++i) {
    const SplitFloat split = SplitMasterBits(std::bit_cast<uint32_t>(master[i]));
    weight[i] = split.weight;
    remainder[i] = split.remainder;
  }
}

void JoinMaster(const BFloat16* weight, const int16_t* remainder, size_t count, float* master) {
  for (size_t i = 0; i < count; ++i) {
    master[i] = std::bit_cast<float>(JoinMasterBits({weight[i], remainder[i]}));
  }
}

}  // namespace geminid::kernels::reference
