#include "kernels/runtime/simd/highway_limit.h"

#include "base/max_isa.h"
#include "hwy/targets.h"

namespace geminid::kernels {

// A lower bit is a better instruction set. SSSE3 and SSE4 count as AVX2: kernels leave them out,
// some other loops do not.
int64_t HighwayTargetsAbove(base::Isa isa) {
  switch (isa) {
    case base::Isa::kSse2:
      return (int64_t{HWY_SSSE3} << 1) - 1;
    case base::Isa::kAvx2:
      return int64_t{HWY_AVX2} - 1;
    case base::Isa::kAvx512:
      return int64_t{HWY_AVX3} - 1;
    case base::Isa::kAvx512Bf16:
    case base::Isa::kAmx:
      break;
  }
  return 0;
}

bool LimitHighway() noexcept {
  const int64_t above = HighwayTargetsAbove(base::MaxIsa().value_or(base::Isa::kAmx));
  if (above != 0) hwy::DisableTargets(above);
  return true;
}

}  // namespace geminid::kernels
