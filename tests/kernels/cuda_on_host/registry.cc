#include "tests/kernels/cuda_on_host/registry.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "kernels/runtime/cuda/words.h"

namespace geminid::cuda_on_host {
namespace {

// Filled before main.
std::map<std::string_view, HostKernel>& Kernels() {
  static std::map<std::string_view, HostKernel> kernels;
  return kernels;
}

}  // namespace

Registration::Registration(const char* name, size_t argument_bytes, unsigned threads,
                           Thread thread) {
  if (Kernels().try_emplace(name, HostKernel{name, argument_bytes, threads, thread}).second) return;
  std::fprintf(stderr, "two kernels are called %s\n", name);
  std::abort();
}

const HostKernel* FindHostKernel(std::string_view name) {
  const auto found = Kernels().find(name);
  return found == Kernels().end() ? nullptr : &found->second;
}

std::vector<HostKernel> AllHostKernels() {
  std::vector<HostKernel> all;
  for (const auto& [name, kernel] : Kernels()) all.push_back(kernel);
  return all;
}

}  // namespace geminid::cuda_on_host
