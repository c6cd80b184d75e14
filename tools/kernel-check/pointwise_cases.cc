#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kernels/model/activation/gelu_erf.h"
#include "kernels/model/activation/gelu_erf_cuda.h"
#include "kernels/model/activation/relu.h"
#include "kernels/model/activation/relu_cuda.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::CudaStream;
using kernels::Status;

struct Elements {
  size_t count;
  size_t shift;  // elements before a word
};
// One element, tails of packs, unaligned arrays, several blocks.
constexpr Elements kCompared[] = {{1, 0}, {15, 1}, {4096, 0}, {20500, 1}};
constexpr Elements kTimed = {size_t{8192} * 4096, 0};

// A function of one element, and its gradient, on host and device.
template <typename T>
struct Function {
  Status (*forward)(const T*, size_t, T*);
  Status (*forward_cuda)(const T*, size_t, T*, CudaStream);
  Status (*backward)(const T*, const T*, size_t, T*);
  Status (*backward_cuda)(const T*, const T*, size_t, T*, CudaStream);
};

template <typename T>
void CheckForward(Trial& trial, const Function<T>& function, const Elements& e) {
  const auto x = trial.In(RandomArray<T>(e.count, 7, 12.0F), e.shift);
  const auto y = trial.Out("y", std::vector<T>(e.count), e.shift);
  trial.Run([&] { return function.forward(x.host, e.count, y.host); },
            [&] { return function.forward_cuda(x.device, e.count, y.device, nullptr); });
}

template <typename T>
void CheckBackward(Trial& trial, const Function<T>& function, const Elements& e) {
  const auto x = trial.In(RandomArray<T>(e.count, 7, 12.0F), e.shift);
  const auto dx = trial.Out("dx", RandomArray<T>(e.count, 8), e.shift, 0, 2);  // it is dy, too
  trial.Run(
      [&] { return function.backward(dx.host, x.host, e.count, dx.host); },
      [&] { return function.backward_cuda(dx.device, x.device, e.count, dx.device, nullptr); });
}

template <typename T>
KernelCase Over(std::string name, Function<T> function,
                void (*check)(Trial&, const Function<T>&, const Elements&)) {
  KernelCase one;
  one.name = std::move(name);
  for (const Elements& elements : kCompared) {
    one.compared.emplace_back(
        [check, function, elements](Trial& trial) { check(trial, function, elements); });
  }
  one.timed = [check, function](Trial& trial) { check(trial, function, kTimed); };
  return one;
}

template <typename T>
void AddBoth(const std::string& name, const char* type, const Function<T>& function,
             std::vector<KernelCase>* cases) {
  cases->push_back(Over<T>(name + ", " + type, function, CheckForward<T>));
  cases->push_back(Over<T>(name + " backward, " + type, function, CheckBackward<T>));
}

template <typename T>
void AddAll(const char* type, std::vector<KernelCase>* cases) {
  AddBoth<T>("relu", type,
             {kernels::ReluForward<T>, kernels::ReluForwardCuda<T>, kernels::ReluBackward<T>,
              kernels::ReluBackwardCuda<T>},
             cases);
  AddBoth<T>("exact gelu", type,
             {kernels::GeluErfForward<T>, kernels::GeluErfForwardCuda<T>,
              kernels::GeluErfBackward<T>, kernels::GeluErfBackwardCuda<T>},
             cases);
}

}  // namespace

std::vector<KernelCase> PointwiseCases() {
  std::vector<KernelCase> cases;
  AddAll<float>("fp32", &cases);
  AddAll<BFloat16>("bf16", &cases);
  return cases;
}

}  // namespace geminid::kernel_check
