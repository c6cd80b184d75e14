#include "gpu/nccl_api.h"

#include <dlfcn.h>

#include "gpu/library_search.h"

namespace geminid::gpu {
namespace {

template <typename Function>
bool Find(const OpenLibrary& library, const char* name, Function* function, std::string* error) {
  *function = reinterpret_cast<Function>(dlsym(library.handle, name));
  if (*function != nullptr) return true;
  *error = library.path + " lacks " + name + "; install NCCL 2.14 or newer";
  return false;
}

struct Loaded {
  NcclApi api;
  bool works = false;
  std::string error;
};

Loaded LoadOnce() {
  Loaded loaded;
  loaded.works = LoadNcclApi(&loaded.api, &loaded.error);
  return loaded;
}

}  // namespace

bool LoadNcclApi(NcclApi* api, std::string* error) {
  const OpenLibrary library =
      FindLibrary({.variable = kNcclPathVariable, .sonames = {"libnccl.so.2"}}, error);
  if (library.handle == nullptr) return false;
  api->path = library.path;
#define GEMINID_FIND(member, name, parameters) \
  if (!Find(library, name, &api->member, error)) return false;
  GEMINID_NCCL_FUNCTIONS(GEMINID_FIND)
#undef GEMINID_FIND
#define GEMINID_FIND_NEWER(member, name, parameters) \
  api->member = reinterpret_cast<decltype(api->member)>(dlsym(library.handle, name));
  GEMINID_NEWER_NCCL_FUNCTIONS(GEMINID_FIND_NEWER)
#undef GEMINID_FIND_NEWER
  if (api->comm_deregister == nullptr) api->comm_register = nullptr;
  return Find(library, "ncclGetErrorString", &api->error_string, error) &&
         Find(library, "ncclGetLastError", &api->last_error, error);
}

const NcclApi* ProcessNccl(std::string* error) {
  static const Loaded loaded = LoadOnce();
  if (loaded.works) return &loaded.api;
  *error = loaded.error;
  return nullptr;
}

}  // namespace geminid::gpu
