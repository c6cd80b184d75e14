#include "gpu/library_search.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): secure_getenv

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <system_error>

namespace geminid::gpu {
namespace {

namespace fs = std::filesystem;

std::string Variable(const char* name) {
  const char* const value = secure_getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<fs::path> Split(const std::string& list) {
  std::vector<fs::path> paths;
  std::istringstream items(list);
  for (std::string item; std::getline(items, item, ':');) {
    if (!item.empty()) paths.emplace_back(item);
  }
  return paths;
}

// The folders in `folder`, in the order of their names; none where there is no such folder.
std::vector<fs::path> FoldersIn(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_directory(ignored)) folders.push_back(entry->path());
  }
  std::sort(folders.begin(), folders.end());
  return folders;
}

// Where a Python installation keeps packages: PREFIX/lib/python3.*/{site,dist}-packages.
void AddPackagesOf(const fs::path& prefix, std::vector<fs::path>* packages) {
  for (const fs::path& folder : FoldersIn(prefix / "lib")) {
    if (!folder.filename().string().starts_with("python3")) continue;
    packages->push_back(folder / "site-packages");
    packages->push_back(folder / "dist-packages");
  }
}

// The installation of the python3 that a shell would start.
void AddPackagesOfPython(std::vector<fs::path>* packages) {
  for (const fs::path& folder : Split(Variable("PATH"))) {
    std::error_code error;
    const fs::path program = fs::canonical(folder / "python3", error);
    if (error) continue;
    AddPackagesOf(program.parent_path().parent_path(), packages);
    AddPackagesOf(folder.parent_path(), packages);  // a virtual environment links the program
    return;
  }
}

std::vector<fs::path> PackageFolders() {
  std::vector<fs::path> packages;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const std::string prefix = Variable(name); !prefix.empty()) {
      AddPackagesOf(prefix, &packages);
    }
  }
  for (const fs::path& path : Split(Variable("PYTHONPATH"))) packages.push_back(path);
  AddPackagesOfPython(&packages);
  if (const std::string home = Variable("HOME"); !home.empty()) {
    AddPackagesOf(fs::path(home) / ".local", &packages);
  }
  AddPackagesOf("/usr/local", &packages);
  AddPackagesOf("/usr", &packages);
  packages.emplace_back("/usr/lib/python3/dist-packages");
  return packages;
}

std::vector<fs::path> Folders() {
  std::vector<fs::path> folders;
  for (const fs::path& packages : PackageFolders()) {
    for (const fs::path& wheel : FoldersIn(packages / "nvidia")) folders.push_back(wheel / "lib");
  }
  for (const std::string& toolkit :
       {Variable("CUDA_HOME"), Variable("CUDA_PATH"), std::string("/usr/local/cuda")}) {
    if (!toolkit.empty()) folders.push_back(fs::path(toolkit) / "lib64");
  }
  return folders;
}

std::string PathOf(void* handle, const std::string& otherwise) {
  const link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, static_cast<void*>(&map)) != 0 || map == nullptr) {
    return otherwise;
  }
  return *map->l_name == '\0' ? otherwise : map->l_name;
}

}  // namespace

std::vector<std::string> LibraryCandidates(const LibraryNames& names) {
  if (const std::string named = Variable(names.variable); !named.empty()) {
    if (named == kNoLibrary) return {};
    return {named};
  }
  std::vector<std::string> candidates;
  const std::vector<fs::path> folders = Folders();
  for (const std::string& soname : names.sonames) {
    candidates.push_back(soname);
    for (const fs::path& folder : folders) {
      const std::string file = folder / soname;
      std::error_code error;
      const bool known = std::find(candidates.begin(), candidates.end(), file) != candidates.end();
      if (!known && fs::exists(file, error)) candidates.push_back(file);
    }
  }
  return candidates;
}

OpenLibrary FindLibrary(const LibraryNames& names, std::string* error) {
  const std::vector<std::string> candidates = LibraryCandidates(names);
  if (candidates.empty()) {
    *error = std::string(names.variable) + " says " + kNoLibrary;
    return {};
  }
  error->clear();
  for (const std::string& candidate : candidates) {
    void* const handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle != nullptr) return {handle, PathOf(handle, candidate)};
    if (error->empty()) *error = dlerror();  // for the name that matters most
  }
  return {};
}

}  // namespace geminid::gpu
