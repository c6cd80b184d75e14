// The order of the sums over a row, on hosts and GPUs alike. A row of up to kNarrowColumns columns
// has kNarrowLanes lanes, a wider one kWideLanes:
//
//   lane l adds the columns l, l + lanes, l + 2 lanes, ... to zero, in this order;
//   then lane l adds lane l + lanes/2, then, in the lower half, lane l + lanes/4, and so on.
//
// Internal to the normalisations.
#ifndef GEMINID_KERNELS_MODEL_NORMALISATION_ROW_ORDER_H_
#define GEMINID_KERNELS_MODEL_NORMALISATION_ROW_ORDER_H_

#include <cstddef>

namespace geminid::kernels {

inline constexpr size_t kNarrowColumns = 1024;
inline constexpr size_t kNarrowLanes = 256;  // 8 per thread of a warp
inline constexpr size_t kWideLanes = 2048;   // 8 per thread of a block of 256

constexpr bool IsNarrowRow(size_t cols) { return cols <= kNarrowColumns; }
constexpr size_t LanesOfRow(size_t cols) { return IsNarrowRow(cols) ? kNarrowLanes : kWideLanes; }

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_MODEL_NORMALISATION_ROW_ORDER_H_
