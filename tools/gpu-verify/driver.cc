#include "tools/gpu-verify/driver.h"

#include <dlfcn.h>

namespace geminid::gpu_verify {
namespace {

// The interface whose function variants the table declares (major x 1000 + minor x 10).
constexpr int kInterfaceVersion = 12000;

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

template <typename Function>
bool Find(GetProcAddress get, const char* name, Function* function, std::string* error) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = get(name, &address, kInterfaceVersion, 0, &status);
  if (result != CUDA_SUCCESS) {
    *error = "libcuda.so.1 answers error " + std::to_string(static_cast<unsigned>(result)) +
             " when asked for " + name + "; is it a driver, or the toolkit's stub?";
    return false;
  }
  if (status != CU_GET_PROC_ADDRESS_SUCCESS || address == nullptr) {
    *error = std::string("the CUDA driver lacks ") + name + "; install driver R525 or newer";
    return false;
  }
  *function = reinterpret_cast<Function>(address);
  return true;
}

}  // namespace

bool LoadDriver(Driver* driver, std::string* error) {
  // Kept open for the life of the process: the driver does not survive being unloaded.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = std::string("no CUDA driver: ") + dlerror();
    return false;
  }
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    *error = "the CUDA driver is older than R525 (no cuGetProcAddress_v2); install a newer one";
    return false;
  }
#define GEMINID_FIND(member, name, parameters) \
  if (!Find(get, name, &driver->member, error)) return false;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
  return true;
}

}  // namespace geminid::gpu_verify
