// Attention by cuDNN beside our own kernel: whether training uses cuDNN, and the time of both. On
// device 0, after FindCudaDevice.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_ATTENTION_TIMING_H_
#define GEMINID_TOOLS_KERNEL_CHECK_ATTENTION_TIMING_H_

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/model/attention/attention.h"
#include "kernels/model/attention/attention_library_cuda.h"

namespace geminid::kernel_check {

struct TimedAttention {
  std::string name = {};
  kernels::AttentionShape shape = {};
};

// Shapes of models; if `most_tokens` is not 0, one sequence of that length with few heads.
std::vector<TimedAttention> TimedAttentions(size_t most_tokens);

struct AttentionTiming {
  TimedAttention attention;
  bool taken = false;  // used by training; else `detail` says why not
  std::string detail;
  size_t workspace_bytes = 0;
  kernels::AttentionDistances distances;
  // The time of a forward and a backward pass; 0: not timed.
  double library_seconds = 0;
  double own_seconds = 0;
  bool passed = false;  // the device did not fail; a refusal by the library is no failure
};

struct AttentionTimings {
  std::string library;  // its name, or why there is no library
  std::vector<AttentionTiming> timings;
};

AttentionTimings TimeAttention(const std::vector<TimedAttention>& attentions);

std::string AttentionLine(const AttentionTiming& timing);
// A JSON object without a newline.
std::string AttentionJson(const AttentionTiming& timing);

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_ATTENTION_TIMING_H_
