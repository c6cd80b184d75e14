// Which instruction sets products use: those that the processor has and base::MaxIsa() allows.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_ISA_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_ISA_H_

#include "base/max_isa.h"

namespace geminid::kernels {

// Limits oneDNN to base::MaxIsa(). Call it before oneDNN's first use in this process, or it has no
// effect. Later calls do nothing.
void LimitOneDnn();

// The level of this process: the best that the processor has, within the limit.
base::Isa IsaInUse();

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_ISA_H_
