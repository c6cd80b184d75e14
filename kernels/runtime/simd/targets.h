// Every vectorised kernel includes this before Highway: it names the instruction sets to compile
// for, and defines how a template calls its two compiled instances.
//
// AVX2 and AVX-512 carry the load; the baseline (SSE2, NEON) is the fallback. The sets in between
// and the VNNI extensions have nothing that these kernels use. F32x16 stores vectors in arrays, so
// sets whose vectors have no size at compile time (SVE, RISC-V) are left out.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_

#include <type_traits>

#include "kernels/runtime/simd/highway_limit.h"  // IWYU pragma: keep

#ifdef HIGHWAY_HWY_DETECT_TARGETS_H_
#error "kernels/runtime/simd/targets.h must come before every Highway header"
#endif

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

// Makes the dispatch tables of NameFloat and NameBFloat16.
#define GEMINID_KERNEL_EXPORT(Name) \
  HWY_EXPORT(Name##Float);          \
  HWY_EXPORT(Name##BFloat16)

// Calls the instance for element type T, on the best instruction set of this machine that
// base::MaxIsa() allows.
#define GEMINID_KERNEL_CALL(T, Name, ...)                \
  do {                                                   \
    if constexpr (std::is_same_v<T, float>) {            \
      HWY_DYNAMIC_DISPATCH(Name##Float)(__VA_ARGS__);    \
    } else {                                             \
      HWY_DYNAMIC_DISPATCH(Name##BFloat16)(__VA_ARGS__); \
    }                                                    \
  } while (false)

// The same for kernels whose parameters may be float where their elements are BFloat16: NameMixed.
#define GEMINID_KERNEL_EXPORT_MIXED(Name) \
  GEMINID_KERNEL_EXPORT(Name);            \
  HWY_EXPORT(Name##Mixed)
#define GEMINID_KERNEL_CALL_MIXED(T, P, Name, ...)    \
  do {                                                \
    if constexpr (std::is_same_v<T, P>) {             \
      GEMINID_KERNEL_CALL(T, Name, __VA_ARGS__);      \
    } else {                                          \
      HWY_DYNAMIC_DISPATCH(Name##Mixed)(__VA_ARGS__); \
    }                                                 \
  } while (false)

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_TARGETS_H_
