// geminid-with-double [--devices N] [--instances N] [--memory MIB] [--link MB/S] COMMAND
// [ARGUMENT...]: runs a command, and all that it starts, on simulated GPUs (tests/gpu/double).
// --instances divides the first GPU (MIG); --link limits each direction of the links. Ends with the
// command's exit status.
#include <spawn.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/exit_code.h"
#include "tests/gpu/double/node.h"

namespace geminid::gpu_double {
namespace {

constexpr int kSignalled = 128;  // plus the signal's number, as in shells

int Usage() {
  std::fprintf(stderr,
               "usage: geminid-with-double [--devices N] [--instances N] [--memory MIB] [--link "
               "MB/S] COMMAND [ARGUMENT...]\n");
  return base::kExitUsage;
}

int Run(char** command) {
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, command[0], nullptr, nullptr, command, environ);
  if (error != 0) {
    std::fprintf(stderr, "geminid-with-double: %s: %s\n", command[0], std::strerror(error));
    return base::kExitFailed;
  }
  int status = 0;
  while (waitpid(pid, &status, 0) != pid) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

int Main(int argc, char** argv) {
  NodeOptions options = {.libcuda = GEMINID_CUDA_DOUBLE,
                         .libnvml = GEMINID_NVML_DOUBLE,
                         .kernels = GEMINID_DOUBLE_KERNELS,
                         .libcublaslt = GEMINID_CUBLASLT_DOUBLE,
                         .libcudnn = GEMINID_CUDNN_DOUBLE,
                         .libnccl = GEMINID_NCCL_DOUBLE};
  uint64_t link_bytes_per_second = 0;
  int next = 1;
  for (; next + 1 < argc && argv[next][0] == '-'; next += 2) {
    const long value = std::strtol(argv[next + 1], nullptr, 10);
    if (std::strcmp(argv[next], "--devices") == 0 && value > 0 && value <= kMostDevices) {
      options.devices = static_cast<int>(value);
    } else if (std::strcmp(argv[next], "--instances") == 0 && value > 0 && value < kMostDevices) {
      options.instances = static_cast<int>(value);
    } else if (std::strcmp(argv[next], "--memory") == 0 && value > 0) {
      options.memory_bytes = static_cast<uint64_t>(value) << 20;
    } else if (std::strcmp(argv[next], "--link") == 0 && value > 0) {
      link_bytes_per_second = static_cast<uint64_t>(value) * 1'000'000;
    } else {
      return Usage();
    }
  }
  if (next >= argc || argv[next][0] == '-') return Usage();
  Node node(options);
  for (int i = 0; i < options.devices; ++i) node.SetCopySpeed(i, link_bytes_per_second);
  return Run(argv + next);
}

}  // namespace
}  // namespace geminid::gpu_double

int main(int argc, char** argv) { return geminid::gpu_double::Main(argc, argv); }
