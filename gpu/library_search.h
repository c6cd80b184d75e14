// Where a library of CUDA may lie that programs load if it is there. Machines have them from a
// toolkit, or as pip's wheels beside PyTorch, whose folders the loader does not know.
#ifndef GEMINID_GPU_LIBRARY_SEARCH_H_
#define GEMINID_GPU_LIBRARY_SEARCH_H_

#include <string>
#include <vector>

namespace geminid::gpu {

// One library, by what differs between places.
struct LibraryNames {
  const char* variable;              // of the environment: a file, or kNoLibrary
  std::vector<std::string> sonames;  // the best first: {"libcublasLt.so.13", "libcublasLt.so.12"}
};

// What `variable` says to have none. Other than that, it names the only file that is tried.
inline constexpr char kNoLibrary[] = "none";

// What dlopen is to be given, in this order: what the variable names, alone; else each soname as it
// is (LD_LIBRARY_PATH and the loader's own folders); as a file of a Python wheel
// (site-packages/nvidia/*/lib) of $VIRTUAL_ENV, $CONDA_PREFIX, $PYTHONPATH, the python3 in $PATH
// and the system; and in $CUDA_HOME, $CUDA_PATH and /usr/local/cuda. Files that do not exist are
// left out. Variables are not read by set-user-ID programs.
std::vector<std::string> LibraryCandidates(const LibraryNames& names);

struct OpenLibrary {
  void* handle = nullptr;  // of dlopen; stays open for the life of the process
  std::string path;        // of its file
};

// The first of the candidates that loads; or a null handle with `error` set.
OpenLibrary FindLibrary(const LibraryNames& names, std::string* error);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_LIBRARY_SEARCH_H_
