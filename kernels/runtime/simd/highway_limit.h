// Limits Highway's dispatch to base::MaxIsa(), and defines how loops are called. Every source with
// vector loops includes this.
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

// The function `Loop`, or an instance of a function template whose name has no comma, as it was
// compiled for the best instruction set of this machine that base::MaxIsa() allows. The first place
// of the table is for an instruction set that is not yet chosen.
#define GEMINID_KERNEL_LOOP(Loop)                                          \
  [] {                                                                     \
    static constexpr decltype(&HWY_STATIC_DISPATCH(Loop)) kLoops[] = {     \
        nullptr, HWY_CHOOSE_TARGET_LIST(Loop), HWY_CHOOSE_FALLBACK(Loop)}; \
    hwy::ChosenTarget& chosen = hwy::GetChosenTarget();                    \
    if (chosen.GetIndex() == 0) chosen.Update(hwy::SupportedTargets());    \
    return kLoops[chosen.GetIndex()];                                      \
  }()

#endif  // GEMINID_KERNELS_RUNTIME_SIMD_HIGHWAY_LIMIT_H_
