// Most vectorised kernels include this before Highway: it names the instruction sets to compile
// for.
//
// AVX2 and AVX-512 carry the load; the baseline (SSE2, NEON) is the fallback. The sets in between
// and the VNNI extensions have nothing that these kernels use. F32x16 stores vectors in arrays, so
// sets whose vectors have no size at compile time (SVE, RISC-V) are left out.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_

#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep

#ifdef HIGHWAY_HWY_DETECT_TARGETS_H_
#error "kernels/runtime/simd/targets.h must come before every Highway header"
#endif

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_
