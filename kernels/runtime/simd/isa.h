// Which instruction sets products use: those that the processor has and base::MaxIsa() allows.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_ISA_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_ISA_H_

#include "base/max_isa.h"

namespace geminid::kernels {

// Holds oneDNN to base::MaxIsa(). Before its first use in this process, or it stays as it is; later
// calls do nothing.
void LimitOneDnn();

// The level of this process: the best that the processor has, within the limit.
base::Isa IsaInUse();

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_ISA_H_
