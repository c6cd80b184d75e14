#include "tests/gpu/double/hooks.h"

#include <dlfcn.h>

#include <cstdlib>

namespace geminid::gpu_double {

const Hooks* FindHooks() {
  const char* const path = std::getenv(gpu::kDriverPathVariable);
  void* const driver = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  return driver == nullptr ? nullptr : static_cast<const Hooks*>(dlsym(driver, kHooksSymbol));
}

}  // namespace geminid::gpu_double
