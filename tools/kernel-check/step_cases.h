// Every optimizer as a pair: the step on the host, which tests have compared with float64, and its
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

// The shape of the compared arrays for Adafactor and CAME; other optimizers ignore it.
inline constexpr size_t kComparedRows = 20;
inline constexpr size_t kComparedColumns = 2109;

struct StepCase {
  std::string name;
  int states = 0;
  kernels::StateForm state_form = kernels::StateForm::kFloat;
  int gradient_reads = 1;  // passes that read the gradient
  int state_reads = 1;     // passes that read weights and states
  bool timed = true;       // its speed measures the kernel, not the check

  using HostStep = std::function<kernels::Status(
      const kernels::ConstParameterArrays& old_arrays, const kernels::GradientArray& gradient,
      size_t count, const kernels::ParameterArrays& new_arrays)>;
  // Waits if it must.
  using CudaStep = std::function<kernels::Status(const kernels::CudaTensor& tensor)>;
  HostStep host_step;
  CudaStep cuda_step;
};

std::vector<StepCase> AllStepCases();

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_STEP_CASES_H_
