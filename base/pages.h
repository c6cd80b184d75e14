// Rounding to whole pages and other multiples.
#ifndef GEMINID_BASE_PAGES_H_
#define GEMINID_BASE_PAGES_H_

#include <cstdint>

namespace geminid::base {

// The unit of memory and mappings: pools, slabs, arenas and segments are multiples of it.
inline constexpr uint64_t kPageBytes = 4096;

// The least multiple that is not below `value`; their sum must not overflow.
constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

constexpr uint64_t RoundUpToPage(uint64_t bytes) { return RoundUp(bytes, kPageBytes); }

}  // namespace geminid::base

#endif  // GEMINID_BASE_PAGES_H_
