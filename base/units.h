#ifndef GEMINID_BASE_UNITS_H_
#define GEMINID_BASE_UNITS_H_

#include <cstdint>

namespace geminid::base {

inline constexpr uint64_t kKiB = uint64_t{1} << 10;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr uint64_t kGiB = uint64_t{1} << 30;

}  // namespace geminid::base

#endif  // GEMINID_BASE_UNITS_H_
