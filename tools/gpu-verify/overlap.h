// G14: rates of kernels and copies alone and together, and what they say. Pure.
#ifndef GEMINID_TOOLS_GPU_VERIFY_OVERLAP_H_
#define GEMINID_TOOLS_GPU_VERIFY_OVERLAP_H_

#include "tools/gpu-verify/outcome.h"

namespace geminid::gpu_verify {

struct OverlapRates {
  double kernels = 0;  // per second
  double copies = 0;   // per second, both directions together
};

// One kind of kernel: alone, beside copies on other streams of the same process, and beside copies
// of another process.
struct OverlapCase {
  double kernels_alone = 0;
  OverlapRates own;
  OverlapRates other;
};

// Pass if, on own streams, arithmetic and copies each keep most of their rate. What memory-bound
// kernels lose to copies over the same memory, and what another process costs, is told, not judged.
Outcome JudgeOverlap(double copies_alone, const OverlapCase& arithmetic, const OverlapCase& memory);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_OVERLAP_H_
