#include <cstddef>
#include <vector>

#include "kernels/model/activation/relu.h"
#include "kernels/model/activation/relu_cuda.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;

struct Elements {
  size_t count;
  size_t shift;  // elements before a word
};
// One element, tails of packs, off words, several blocks.
constexpr Elements kCompared[] = {{1, 0}, {15, 1}, {4096, 0}, {20500, 1}};
constexpr Elements kTimed = {size_t{8192} * 4096, 0};

template <typename T>
void CheckForward(Trial& trial, const Elements& e) {
  const auto x = trial.In(RandomArray<T>(e.count, 7, 12.0F), e.shift);
  const auto y = trial.Out("y", std::vector<T>(e.count), e.shift);
  trial.Run([&] { return kernels::ReluForward(x.host, e.count, y.host); },
            [&] { return kernels::ReluForwardCuda(x.device, e.count, y.device, nullptr); });
}

template <typename T>
void CheckBackward(Trial& trial, const Elements& e) {
  const auto x = trial.In(RandomArray<T>(e.count, 7, 12.0F), e.shift);
  const auto dx = trial.Out("dx", RandomArray<T>(e.count, 8), e.shift, 0, 2);  // it is dy, too
  trial.Run(
      [&] { return kernels::ReluBackward(dx.host, x.host, e.count, dx.host); },
      [&] { return kernels::ReluBackwardCuda(dx.device, x.device, e.count, dx.device, nullptr); });
}

KernelCase Over(const char* name, void (*check)(Trial&, const Elements&)) {
  KernelCase one;
  one.name = name;
  for (const Elements& elements : kCompared) {
    one.compared.emplace_back([check, elements](Trial& trial) { check(trial, elements); });
  }
  one.timed = [check](Trial& trial) { check(trial, kTimed); };
  return one;
}

}  // namespace

std::vector<KernelCase> ReluCases() {
  return {Over("relu, fp32", CheckForward<float>), Over("relu, bf16", CheckForward<BFloat16>),
          Over("relu backward, fp32", CheckBackward<float>),
          Over("relu backward, bf16", CheckBackward<BFloat16>)};
}

}  // namespace geminid::kernel_check
