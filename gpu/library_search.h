// Searches for CUDA libraries that programs load if they are installed. Machines have them from a
// toolkit, or from pip's wheels beside PyTorch, whose folders the loader does not know.
#ifndef GEMINID_GPU_LIBRARY_SEARCH_H_
#define GEMINID_GPU_LIBRARY_SEARCH_H_

#include <string>
#include <vector>

namespace geminid::gpu {

// The names by which one library may be found.
struct LibraryNames {
  const char* variable;              // of the environment: a file, or kNoLibrary
  std::vector<std::string> sonames;  // the best first: {"libcublasLt.so.13", "libcublasLt.so.12"}
};

// The value of `variable` for no library. Any other value names the only file that is tried.
inline constexpr char kNoLibrary[] = "none";

// The arguments for dlopen, in order: the file that the variable names, alone; else each soname as
// it is (LD_LIBRARY_PATH and the loader's own folders); as a file of a Python wheel
// (site-packages/nvidia/*/lib) of $VIRTUAL_ENV, $CONDA_PREFIX, $PYTHONPATH, the python3 in $PATH
// and the system; and in $CUDA_HOME, $CUDA_PATH and /usr/local/cuda. Files that do not exist are
// left out. Set-user-ID programs ignore the variables.
std::vector<std::string> LibraryCandidates(const LibraryNames& names);

struct OpenLibrary {
  void* handle = nullptr;  // of dlopen; stays open for the life of the process
  std::string path;        // of its file
};

// The first of the candidates that loads; or a null handle with `error` set.
OpenLibrary FindLibrary(const LibraryNames& names, std::string* error);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_LIBRARY_SEARCH_H_
