// Limits Highway's dispatch to base::MaxIsa(). Every source with vector loops includes this.
#ifndef GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_
#define GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_

#include <cstdint>

namespace geminid::base {
enum class Isa : uint8_t;  // base/max_isa.h, which is long and not needed for vector loops
}

namespace geminid::kernels {

// Highway's instruction sets above `isa`, as a mask of HWY_ bits.
int64_t HighwayTargetsAbove(base::Isa isa);

// Removes the sets above base::MaxIsa() from Highway's dispatch in this process. Returns true.
bool LimitHighway() noexcept;

// Runs before main, in every program that has one of our vector loops.
// NOLINTNEXTLINE(bugprone-dynamic-static-initializers): it must come before main, and reads no
// other
inline const bool kHighwayIsLimited = LimitHighway();

}  // namespace geminid::kernels

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_
