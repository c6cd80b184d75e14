#include "tools/kernel-check/step_cases.h"

#include <algorithm>
#include <utility>

#include "kernels/optimizers/adafactor/adafactor_cuda.h"
#include "kernels/optimizers/adafactor/factors_cuda.h"
#include "kernels/optimizers/adagrad/adagrad_cuda.h"
#include "kernels/optimizers/adam/adam.h"
#include "kernels/optimizers/adam/adam_cuda.h"
#include "kernels/optimizers/adamw/adamw.h"
#include "kernels/optimizers/adamw/adamw_cuda.h"
#include "kernels/optimizers/came/came_cuda.h"
#include "kernels/optimizers/lamb/lamb_cuda.h"
#include "kernels/optimizers/lars/lars_cuda.h"
#include "kernels/optimizers/lion/lion_cuda.h"
#include "kernels/optimizers/sgd/sgd_cuda.h"
#include "tools/kernel-check/device.h"

namespace geminid::kernel_check {
namespace {

using kernels::ConstParameterArrays;
using kernels::CudaTensor;
using kernels::GradientArray;
using kernels::ParameterArrays;
using kernels::Status;

constexpr double kGradScale = 0.7;  // no power of two: scaling must round where the host rounds
constexpr uint64_t kStep = 7;

template <class Options, class Host>
StepCase HostCase(std::string name, int states, Options options, Host host) {
  options.step = kStep;
  options.grad_scale = kGradScale;
  StepCase one;
  one.name = std::move(name);
  one.states = states;
  one.host_step = [options, host](const ConstParameterArrays& old_arrays,
                                  const GradientArray& gradient, size_t count,
                                  const ParameterArrays& new_arrays) {
    return host(options, old_arrays, gradient, count, new_arrays);
  };
  return one;
}

// An optimizer with one pass.
template <class Options, class Host, class Cuda>
StepCase OnePass(std::string name, int states, Options options, Host host, Cuda cuda) {
  StepCase one = HostCase(std::move(name), states, options, host);
  options.step = kStep;
  options.grad_scale = kGradScale;
  one.cuda_step = [options, cuda](const CudaTensor& tensor) {
    return cuda(options, tensor, nullptr);
  };
  return one;
}

// An optimizer that needs the norms of a tensor first.
template <class Norms, class Options, class Host, class Add, class Apply>
StepCase TwoPasses(std::string name, int states, Options options, Host host, Add add, Apply apply,
                   size_t (*workspace_bytes)(size_t)) {
  StepCase one = HostCase(std::move(name), states, options, host);
  options.step = kStep;
  options.grad_scale = kGradScale;
  one.gradient_reads = 2;
  one.state_reads = 2;
  one.cuda_step = [=](const CudaTensor& tensor) {
    const size_t bytes = workspace_bytes(tensor.count);
    CudaBuffer workspace(bytes);
    CudaBuffer norms_buffer(sizeof(Norms));
    Norms norms = {};
    if (!workspace || !norms_buffer.CopyFrom(&norms, sizeof(norms))) return Status::kUnsupported;
    Status status = add(options, tensor.old_arrays, tensor.gradient, tensor.count,
                        workspace.as<double>(), bytes, norms_buffer.as<Norms>(), nullptr);
    if (status != Status::kOk) return status;
    if (!norms_buffer.CopyTo(&norms, sizeof(norms))) return Status::kUnsupported;
    return apply(options, norms, tensor, nullptr);
  };
  return one;
}

using kernels::FactorShape;

// A matrix of the compared size, or a square one for the timing.
FactorShape ShapeOf(size_t count) {
  constexpr size_t kTimedColumns = 8192;
  const size_t columns =
      count == kComparedRows * kComparedColumns ? kComparedColumns : kTimedColumns;
  return {count / columns, columns};
}
// The same elements in many rows, so that each column has several chunks.
FactorShape TallOf(size_t count) {
  constexpr size_t kTallColumns = 222;
  constexpr size_t kTimedTallColumns = 512;
  static_assert(kComparedRows * kComparedColumns % kTallColumns == 0);
  const size_t columns =
      count == kComparedRows * kComparedColumns ? kTallColumns : kTimedTallColumns;
  return {count / columns, columns};
}
FactorShape VectorOf(size_t count) { return {1, count}; }

// Sums and scales of one tensor, on the host and the device.
struct FactorMemory {
  explicit FactorMemory(const FactorShape& tensor_shape, uint64_t factor_count)
      : shape(tensor_shape),
        sums(shape.Count() + shape.ColumnSpace()),
        factors(factor_count),
        scales(factor_count),
        sums_device(sums.size() * sizeof(double)),
        factors_device(factors.size() * sizeof(float)),
        scales_device(scales.size() * sizeof(float)),
        row_mean(sizeof(double)),
        workspace(kernels::FactorWorkspaceBytes(shape, 0, shape.Elements())) {}

  bool UploadSums() { return sums_device.CopyFrom(sums.data(), sums.size() * sizeof(double)); }
  bool UploadFactors() {
    return factors_device.CopyFrom(factors.data(), factors.size() * sizeof(float));
  }
  // Makes the factors from index `at` on: CAME's second factors follow the first.
  Status MakeFactors(double kept, double epsilon, uint64_t at) {
    float* const of_it = factors_device.as<float>() + at;
    return kernels::AverageFactorsCuda(shape, kept, epsilon, sums_device.as<double>(), of_it, of_it,
                                       scales_device.as<float>() + at, row_mean.as<double>(),
                                       nullptr);
  }

  FactorShape shape;
  std::vector<double> sums;
  std::vector<float> factors;
  std::vector<float> scales;
  CudaBuffer sums_device;
  CudaBuffer factors_device;
  CudaBuffer scales_device;
  CudaBuffer row_mean;
  CudaBuffer workspace;
};

// The factors of an earlier step, which are not all equal.
void FillFactors(std::vector<float>* factors) {
  for (size_t i = 0; i < factors->size(); ++i) {
    (*factors)[i] = 1e-6F * static_cast<float>(1 + i % 17);
  }
}

Status RunAdafactor(const kernels::AdafactorOptions& options, const FactorShape& shape,
                    const CudaTensor& t) {
  FactorMemory memory(shape, shape.Count());
  FillFactors(&memory.factors);
  kernels::AdafactorNorms norms;
  CudaBuffer norms_device(sizeof(norms));
  auto* const on_device = norms_device.as<kernels::AdafactorNorms>();
  auto* const workspace = memory.workspace.as<double>();
  if (!memory.UploadSums() || !memory.UploadFactors() ||
      !norms_device.CopyFrom(&norms, sizeof(norms))) {
    return Status::kUnsupported;
  }
  Status status = kernels::AdafactorAddSquaresCuda(
      options, shape, 0, t.old_arrays, t.gradient, t.count, workspace, memory.workspace.bytes(),
      memory.sums_device.as<double>(), on_device, nullptr);
  if (status == Status::kOk) {
    status = memory.MakeFactors(kernels::AdafactorKept(options), options.epsilon1, 0);
  }
  if (status == Status::kOk) {
    status = kernels::AdafactorAddUpdateSquaresCuda(
        options, shape, 0, memory.scales_device.as<float>(), t.gradient, t.count, workspace,
        memory.workspace.bytes(), on_device, nullptr);
  }
  if (status == Status::kOk && !norms_device.CopyTo(&norms, sizeof(norms))) {
    status = Status::kUnsupported;
  }
  if (status != Status::kOk) return status;
  status = kernels::AdafactorApplyCuda(options, shape, 0, memory.scales_device.as<float>(), norms,
                                       t, nullptr);
  std::string unused;  // the scales must outlive the step
  return CudaWait(&unused) ? status : Status::kUnsupported;
}

Status RunCame(const kernels::CameOptions& options, const FactorShape& shape, const CudaTensor& t) {
  FactorMemory memory(shape, kernels::CameFactorCount(shape));
  FillFactors(&memory.factors);
  double squares = 0;
  CudaBuffer squares_device(sizeof(squares));
  auto* const workspace = memory.workspace.as<double>();
  auto* const sums = memory.sums_device.as<double>();
  const auto* const scales = memory.scales_device.as<float>();
  const size_t workspace_bytes = memory.workspace.bytes();
  if (!memory.UploadSums() || !memory.UploadFactors() ||
      !squares_device.CopyFrom(&squares, sizeof(squares))) {
    return Status::kUnsupported;
  }
  Status status = kernels::CameAddSquaresCuda(options, shape, 0, t.gradient, t.count, workspace,
                                              workspace_bytes, sums, nullptr);
  if (status == Status::kOk) status = memory.MakeFactors(options.beta2, options.epsilon1, 0);
  if (status == Status::kOk) {
    status =
        kernels::CameAddUpdateSquaresCuda(options, shape, 0, scales, t.gradient, t.count, workspace,
                                          workspace_bytes, squares_device.as<double>(), nullptr);
  }
  if (status == Status::kOk && !squares_device.CopyTo(&squares, sizeof(squares))) {
    status = Status::kUnsupported;
  }
  if (status == Status::kOk && shape.Factored()) {
    std::fill(memory.sums.begin(), memory.sums.end(), 0.0);
    if (!memory.UploadSums()) return Status::kUnsupported;
    status = kernels::CameAddResidualSquaresCuda(options, shape, 0, scales, squares, t.old_arrays,
                                                 t.gradient, t.count, workspace, workspace_bytes,
                                                 sums, nullptr);
    if (status == Status::kOk) {
      status = memory.MakeFactors(options.beta3, options.epsilon2, shape.Count());
    }
  }
  if (status != Status::kOk) return status;
  status = kernels::CameApplyCuda(options, shape, 0, scales, squares, t, nullptr);
  std::string unused;  // the scales must outlive the step
  return CudaWait(&unused) ? status : Status::kUnsupported;
}

// Adafactor or CAME over tensors of the shape that `shape_of` gives.
template <class Options, class Host, class Cuda>
StepCase Factored(std::string name, int states, int gradient_reads, int state_reads,
                  Options options, FactorShape (*shape_of)(size_t),
                  uint64_t (*factor_count)(const FactorShape&), Host host, Cuda cuda) {
  options.step = kStep;
  options.grad_scale = kGradScale;
  StepCase one;
  one.name = std::move(name);
  one.states = states;
  one.gradient_reads = gradient_reads;
  one.state_reads = state_reads;
  one.timed = shape_of != VectorOf;  // a vector's factors are as large as itself
  one.host_step = [=](const ConstParameterArrays& old_arrays, const GradientArray& gradient,
                      size_t count, const ParameterArrays& new_arrays) {
    const FactorShape shape = shape_of(count);
    FactorMemory memory(shape, factor_count(shape));
    FillFactors(&memory.factors);
    return host(options, shape, old_arrays, memory.factors.data(), gradient, new_arrays,
                memory.factors.data(), memory.sums.data(), memory.scales.data());
  };
  one.cuda_step = [=](const CudaTensor& tensor) {
    return cuda(options, shape_of(tensor.count), tensor);
  };
  return one;
}

uint64_t AdafactorFactorCount(const FactorShape& shape) { return shape.Count(); }

std::vector<StepCase> CasesOfFloatState() {
  using namespace kernels;  // NOLINT(google-build-using-namespace): every line below is of it
  const AdamWOptions adam = {.learning_rate = 3e-4, .beta2 = 0.95, .weight_decay = 0.1};
  return {
      OnePass("adamw", 2, adam, AdamWStep, AdamWStepCuda),
      OnePass("adam", 2, adam, AdamStep, AdamStepCuda),
      OnePass("sgd", 0, SgdOptions{.weight_decay = 0.01}, SgdStep, SgdStepCuda),
      OnePass("sgd with Nesterov's momentum", 1, SgdOptions{.momentum = 0.9, .nesterov = true},
              SgdStep, SgdStepCuda),
      OnePass("adagrad", 1, AdagradOptions{.weight_decay = 0.01}, AdagradStep, AdagradStepCuda),
      OnePass("lion", 1, LionOptions{.weight_decay = 0.1}, LionStep, LionStepCuda),
      TwoPasses<LambNorms>("lamb", 2, LambOptions{.gradient_norm = 3.0}, LambStep, LambAddNormsCuda,
                           LambApplyCuda, LambWorkspaceBytes),
      TwoPasses<LarsNorms>("lars", 1, LarsOptions{.weight_decay = 0.01}, LarsStep, LarsAddNormsCuda,
                           LarsApplyCuda, LarsWorkspaceBytes),
      Factored("adafactor", 0, 3, 2, AdafactorOptions{.weight_decay = 0.01}, ShapeOf,
               AdafactorFactorCount, AdafactorStep, RunAdafactor),
      Factored("adafactor with momentum", 1, 3, 2, AdafactorOptions{.beta1 = 0.9}, ShapeOf,
               AdafactorFactorCount, AdafactorStep, RunAdafactor),
      Factored("adafactor of a tall matrix", 0, 3, 2, AdafactorOptions{}, TallOf,
               AdafactorFactorCount, AdafactorStep, RunAdafactor),
      Factored("adafactor of a vector", 0, 3, 2, AdafactorOptions{}, VectorOf, AdafactorFactorCount,
               AdafactorStep, RunAdafactor),
      Factored("came", 1, 4, 2, CameOptions{.weight_decay = 0.01}, ShapeOf, CameFactorCount,
               CameStep, RunCame),
      Factored("came of a tall matrix", 1, 4, 2, CameOptions{}, TallOf, CameFactorCount, CameStep,
               RunCame),
      Factored("came of a vector", 1, 3, 1, CameOptions{}, VectorOf, CameFactorCount, CameStep,
               RunCame),
  };
}

}  // namespace

// Every optimizer that has state, also with state in bf16.
std::vector<StepCase> AllStepCases() {
  std::vector<StepCase> all = CasesOfFloatState();
  const size_t of_float = all.size();
  for (size_t i = 0; i < of_float; ++i) {
    if (all[i].states == 0) continue;
    StepCase small = all[i];
    small.name += " with bf16 state";
    small.state_form = kernels::StateForm::kBFloat16;
    all.push_back(std::move(small));
  }
  return all;
}

}  // namespace geminid::kernel_check
