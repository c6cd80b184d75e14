#include "gpu/cudnn_api.h"

#include <dlfcn.h>

#include "gpu/library_search.h"

namespace geminid::gpu {
namespace {

template <typename Function>
bool Find(const OpenLibrary& library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library.handle, name));
  if (*function != nullptr) return true;
  *error = library.path + " lacks " + name;
  return false;
}

}  // namespace

bool LoadCudnnApi(CudnnApi* api, std::string* error) {
  const OpenLibrary library =
      FindLibrary({.variable = kCudnnPathVariable, .sonames = {"libcudnn.so.9"}}, error);
  if (library.handle == nullptr) return false;
  api->path = library.path;
#define GEMINID_FIND(member, name, parameters) \
  if (!Find(library, name, &api->member, error)) return false;
  GEMINID_CUDNN_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
  if (!Find(library, "cudnnGetVersion", &api->version, error) ||
      !Find(library, "cudnnGetErrorString", &api->status_string, error)) {
    return false;
  }
  if (api->version() >= kOldestCudnn) return true;
  *error = library.path + " is cuDNN " + CudnnVersion(api->version()) + ", and " +
           CudnnVersion(kOldestCudnn) + " or newer is needed";
  return false;
}

std::string CudnnVersion(size_t version) {
  constexpr size_t kMajor = 10000;
  constexpr size_t kMinor = 100;
  return std::to_string(version / kMajor) + "." + std::to_string(version / kMinor % kMinor) + "." +
         std::to_string(version % kMinor);
}

}  // namespace geminid::gpu
