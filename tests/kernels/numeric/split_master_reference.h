#ifndef GEMINID_TESTS_KERNELS_NUMERIC_SPLIT_MASTER_REFERENCE_H_
#define GEMINID_TESTS_KERNELS_NUMERIC_SPLIT_MASTER_REFERENCE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/runtime/common/bfloat16.h"

// The tests compare kernels/numeric/split_master with these functions. They take one element at a
// time and do not check arguments.
namespace geminid::kernels::reference {

void SplitMaster(const float* master, size_t count, BFloat16* weight, int16_t* remainder);
void JoinMaster(const BFloat16* weight, const int16_t* remainder, size_t count, float* master);

}  // namespace geminid::kernels::reference

#endif  // GEMINID_TESTS_KERNELS_NUMERIC_SPLIT_MASTER_REFERENCE_H_
