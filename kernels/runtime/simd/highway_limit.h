// Holds Highway's dispatch to base::MaxIsa(). Every source with vector loops includes this.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_

#include <cstdint>

namespace geminid::base {
enum class Isa : uint8_t;  // base/max_isa.h, which is long and not needed for vector loops
}

namespace geminid::kernels {

// Highway's instruction sets above `isa`, as a mask of HWY_ bits.
int64_t HighwayTargetsAbove(base::Isa isa);

// Takes those above base::MaxIsa() from Highway's dispatch, in this whole process. True.
bool LimitHighway() noexcept;

// Before main, in every program that has a vector loop of ours.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): it must come before main, and reads no
// other
inline const bool kHighwayIsLimited = LimitHighway();

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_
