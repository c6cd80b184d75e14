// How the loops over rows of kNormLanes elements are compiled, and how far they read ahead.
// Internal to the norms.
#ifndef GEMINID_KERNELS_NUMERIC_NORM_NORM_ROWS_H_
#define GEMINID_KERNELS_NUMERIC_NORM_NORM_ROWS_H_

#include <cstddef>

// Sums must stay in registers: -O2 alone does not unroll loops over them. Not under the address
// sanitizer, whose checks of the unrolled loops take the compiler many minutes.
#if defined(__SANITIZE_ADDRESS__)
#define GEMINID_UNROLL_ROW
#elif defined(__clang__)
#define GEMINID_UNROLL_ROW _Pragma("clang loop unroll(full)")
#else
#define GEMINID_UNROLL_ROW _Pragma("GCC unroll 16")
#endif

namespace geminid::kernels {

// How far ahead rows are prefetched: hardware prefetchers stop at the ends of pages.
inline constexpr size_t kNormPrefetchElements = 512;

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_NUMERIC_NORM_NORM_ROWS_H_
