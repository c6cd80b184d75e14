#include "gpu/nvml_api.h"

#include <dlfcn.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): secure_getenv

namespace geminid::gpu {
namespace {

constexpr char kLibrary[] = "libnvidia-ml.so.1";

template <typename Function>
bool Find(void* library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function != nullptr) return true;
  *error = std::string("the driver's NVML lacks ") + name + "; install driver R525 or newer";
  return false;
}

}  // namespace

bool LoadNvmlApi(NvmlApi* api, std::string* error) {
  const char* const path = secure_getenv(kNvmlPathVariable);
  void* library = dlopen(path != nullptr && *path != '\0' ? path : kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = std::string("no NVML, so no NVIDIA driver: ") + dlerror();
    return false;
  }
#define GEMINID_FIND(member, name, parameters) \
  if (!Find(library, name, &api->member, error)) return false;
  GEMINID_NVML_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
#define GEMINID_FIND(member, name, parameters) \
  api->member = reinterpret_cast<decltype(api->member)>(dlsym(library, name));
  GEMINID_NVML_HEALTH_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
  return Find(library, "nvmlErrorString", &api->error_string, error);
}

}  // namespace geminid::gpu
