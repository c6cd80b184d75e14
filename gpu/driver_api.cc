#include "gpu/driver_api.h"

#include <dlfcn.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): secure_getenv

namespace geminid::gpu {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";
// The interfaces whose function variants the table declares (major x 1000 + minor x 10).
constexpr int kInterfaceVersion = 12000;
constexpr int kNewerInterfaceVersion = 12080;

using GetProcAddress = CUresult (*)(const char*, void**, int, cuuint64_t,
                                    CUdriverProcAddressQueryResult*);

struct Driver {
  std::string path;
  GetProcAddress get = nullptr;
};

template <typename Function>
bool Find(const Driver& driver, const char* name, Function* function, std::string* error) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = driver.get(name, &address, kInterfaceVersion, 0, &status);
  if (result != CUDA_SUCCESS) {
    *error = driver.path + " returns error " + std::to_string(static_cast<unsigned>(result)) +
             " for " + name + "; if it is the toolkit's stub, install the driver's libcuda";
    return false;
  }
  if (status != CU_GET_PROC_ADDRESS_SUCCESS || address == nullptr) {
    *error = std::string("the CUDA driver lacks ") + name + "; install driver R525 or newer";
    return false;
  }
  *function = reinterpret_cast<Function>(address);
  return true;
}

template <typename Function>
void FindNewer(const Driver& driver, const char* name, Function* function) {
  void* address = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  const CUresult result = driver.get(name, &address, kNewerInterfaceVersion, 0, &status);
  const bool found = result == CUDA_SUCCESS && status == CU_GET_PROC_ADDRESS_SUCCESS;
  *function = found ? reinterpret_cast<Function>(address) : nullptr;
}

struct Loaded {
  DriverApi api;
  bool works = false;
  std::string error;
};

Loaded LoadOnce() {
  Loaded loaded;
  if (!LoadDriverApi(&loaded.api, &loaded.error)) return loaded;
  const CUresult result = loaded.api.init(0);
  loaded.works = result == CUDA_SUCCESS;
  if (!loaded.works) {
    loaded.error = "cuInit: " + DescribeError(loaded.api, result) +
                   "; see nvidia-smi -L, CUDA_VISIBLE_DEVICES and the permissions of /dev/nvidia*";
  }
  return loaded;
}

}  // namespace

std::string DescribeError(const DriverApi& api, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "an error";
  if (api.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown";
  return std::string(name) + " (" + std::to_string(static_cast<unsigned>(result)) + ", " + text +
         ")";
}

const DriverApi* ProcessDriver(std::string* error) {
  static const Loaded loaded = LoadOnce();
  if (loaded.works) return &loaded.api;
  *error = loaded.error;
  return nullptr;
}

bool LoadDriverApi(DriverApi* api, std::string* error) {
  const char* const path = secure_getenv(kDriverPathVariable);
  Driver driver;
  driver.path = path != nullptr && *path != '\0' ? path : kLibrary;
  void* library = dlopen(driver.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    *error = std::string("no CUDA driver: ") + dlerror();
    return false;
  }
  driver.get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (driver.get == nullptr) {
    *error = "the CUDA driver is older than R525 (no cuGetProcAddress_v2); install a newer one";
    return false;
  }
#define GEMINID_FIND(member, name, parameters) \
  if (!Find(driver, name, &api->member, error)) return false;
  GEMINID_DRIVER_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
#define GEMINID_FIND_NEWER(member, name, parameters) FindNewer(driver, name, &api->member);
  GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_FIND_NEWER)
#undef GEMINID_FIND_NEWER
  return true;
}

}  // namespace geminid::gpu
