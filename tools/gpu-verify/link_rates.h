// R3: rates of the link's directions alone and at once, and their verdict. Pure.
#ifndef GEMINID_TOOLS_GPU_VERIFY_LINK_RATES_H_
#define GEMINID_TOOLS_GPU_VERIFY_LINK_RATES_H_

#include "tools/gpu-verify/outcome.h"

namespace geminid::gpu_verify {

struct LinkRates {  // bytes per second
  double up = 0;
  double down = 0;
  double both = 0;  // together, at once
};

// Pass if both directions at once reach most of the sum of the single rates.
Outcome JudgeLink(const LinkRates& rates);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_LINK_RATES_H_
