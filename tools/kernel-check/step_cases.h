// Every optimizer as a pair: the step on the host, which tests have held against float64, and its
// twin on the GPU.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_STEP_CASES_H_
#define GEMINID_TOOLS_KERNEL_CHECK_STEP_CASES_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "kernels/optimizers/step/cuda_tensor.h"
#include "kernels/optimizers/step/parameter_arrays.h"
#include "kernels/runtime/common/status.h"

namespace geminid::kernel_check {

// What Adafactor and CAME take the compared arrays to be; others see their elements alone.
inline constexpr size_t kComparedRows = 20;
inline constexpr size_t kComparedColumns = 2109;

struct StepCase {
  std::string name;
  int states = 0;
  kernels::StateForm state_form = kernels::StateForm::kFloat;
  int gradient_reads = 1;  // passes that read the gradient
  int state_reads = 1;     // passes that read weights and states
  bool timed = true;       // its speed says something of the kernel, not of the check

  using HostStep = std::function<kernels::Status(
      const kernels::ConstParameterArrays& old_arrays, const kernels::GradientArray& gradient,
      size_t count, const kernels::ParameterArrays& new_arrays)>;
  // Waits where it must.
  using CudaStep = std::function<kernels::Status(const kernels::CudaTensor& tensor)>;
  HostStep host_step;
  CudaStep cuda_step;
};

std::vector<StepCase> AllStepCases();

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_STEP_CASES_H_
