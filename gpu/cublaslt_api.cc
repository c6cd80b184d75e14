#include "gpu/cublaslt_api.h"

#include <dlfcn.h>

#include "gpu/library_search.h"

namespace geminid::gpu {
namespace {

// The library's major versions, which are those of its CUDA toolkit.
constexpr int kMajorVersions[] = {13, 12};
constexpr int kDriverMajorUnit = 1000;
constexpr int kDriverMinorUnit = 10;

template <typename Function>
bool Find(const OpenLibrary& library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library.handle, name));
  if (*function != nullptr) return true;
  *error = library.path + " lacks " + name;
  return false;
}

}  // namespace

bool LoadCublasLtApi(int driver_version, CublasLtApi* api, std::string* error) {
  LibraryNames names = {.variable = kCublasLtPathVariable, .sonames = {}};
  for (const int major : kMajorVersions) {
    if (major * kDriverMajorUnit > driver_version) continue;
    names.sonames.push_back("libcublasLt.so." + std::to_string(major));
  }
  if (names.sonames.empty()) {
    *error = "the driver supports CUDA " + std::to_string(driver_version / kDriverMajorUnit) + "." +
             std::to_string(driver_version % kDriverMajorUnit / kDriverMinorUnit) +
             "; no cuBLASLt of that version is known. Install a newer driver";
    return false;
  }
  const OpenLibrary library = FindLibrary(names, error);
  if (library.handle == nullptr) return false;
  api->path = library.path;
#define GEMINID_FIND(member, name, parameters) \
  if (!Find(library, name, &api->member, error)) return false;
  GEMINID_CUBLASLT_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
  return Find(library, "cublasLtGetVersion", &api->version, error) &&
         Find(library, "cublasLtGetStatusString", &api->status_string, error);
}

std::string CublasLtVersion(const CublasLtApi& api) {
  const size_t version = api.version();
  constexpr size_t kMajor = 10000;
  constexpr size_t kMinor = 100;
  return std::to_string(version / kMajor) + "." + std::to_string(version / kMinor % kMinor) + "." +
         std::to_string(version % kMinor);
}

}  // namespace geminid::gpu
