// G14: rates of kernels and copies alone and together, and their verdict. Pure.
#ifndef GEMINID_TOOLS_GPU_VERIFY_OVERLAP_H_
#define GEMINID_TOOLS_GPU_VERIFY_OVERLAP_H_

#include "tools/gpu-verify/outcome.h"

namespace geminid::gpu_verify {

struct OverlapRates {
  double kernels = 0;  // per second
  double copies = 0;   // per second, both directions together
};

// The rates of one kind of kernel: alone, beside copies on other streams of the same process, and
// beside copies of another process.
struct OverlapCase {
  double kernels_alone = 0;
  OverlapRates own;
  OverlapRates other;
};

// Pass if, on own streams, arithmetic and copies each keep most of their rate. The losses of
// memory-bound kernels to copies, and the cost of another process, are only reported.
Outcome JudgeOverlap(double copies_alone, const OverlapCase& arithmetic, const OverlapCase& memory);

}  // namespace geminid::gpu_verify

#endif  // GEMINID_TOOLS_GPU_VERIFY_OVERLAP_H_
