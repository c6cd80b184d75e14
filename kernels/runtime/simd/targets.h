// Every vectorised kernel includes this before Highway: it names the instruction sets to compile
// for, and defines how the instances of a function template are called.
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

// Calls Loop, an instance of a function template whose name has no comma, as it was compiled for
// the best instruction set of this machine that base::MaxIsa() allows. HWY_DYNAMIC_DISPATCH does
// the same for functions that are no templates. The first place of a table is for what is not yet
// chosen.
#define GEMINID_KERNEL_CALL(Loop, ...)                                     \
  do {                                                                     \
    static constexpr decltype(&HWY_STATIC_DISPATCH(Loop)) kLoops[] = {     \
        nullptr, HWY_CHOOSE_TARGET_LIST(Loop), HWY_CHOOSE_FALLBACK(Loop)}; \
    hwy::ChosenTarget& chosen = hwy::GetChosenTarget();                    \
    if (chosen.GetIndex() == 0) chosen.Update(hwy::SupportedTargets());    \
    kLoops[chosen.GetIndex()](__VA_ARGS__);                                \
  } while (false)

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_
