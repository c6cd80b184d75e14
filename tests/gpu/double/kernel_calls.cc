// Modules, libraries and launches. Machine code cannot run here. Kernels are found by name, as
// plain C++, in the shared object that the environment names; gpu-verify's are below.
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/gpu/double/calls.h"
#include "tests/gpu/double/memory.h"
#include "tests/gpu/double/node_file.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double::calls {
namespace {

constexpr unsigned kMostThreads = 1024;  // of a block
constexpr uint32_t kFatBinaryMagic = 0xBA55ED50;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr size_t kWordBytes = sizeof(uint64_t);

using Arguments = std::vector<std::vector<std::byte>>;

struct Kernel {
  std::string name;
  std::vector<size_t> argument_bytes;
  std::function<void(unsigned blocks, unsigned threads, const Arguments&)> run;
};

template <typename T>
T As(const std::vector<std::byte>& argument) {
  T value;
  std::memcpy(static_cast<void*>(&value), argument.data(), sizeof(T));
  return value;
}

void RunCopy(unsigned, unsigned, const Arguments& arguments) {
  constexpr uint64_t kUnitBytes = 16;
  std::memcpy(As<void*>(arguments[0]), As<const void*>(arguments[1]),
              As<uint64_t>(arguments[2]) * kUnitBytes);
}

void RunCount(unsigned, unsigned, const Arguments& arguments) {
  const auto* const words = As<const uint32_t*>(arguments[0]);
  const auto count = As<uint64_t>(arguments[1]);
  const auto equal = std::count(words, words + count, As<uint32_t>(arguments[2]));
  *As<uint64_t*>(arguments[3]) += count - static_cast<uint64_t>(equal);
}

// For kernels whose results no test reads.
void RunNothing(unsigned, unsigned, const Arguments&) {}

class Kernels {
 public:
  static Kernels& Get() {
    static auto* const kernels = new Kernels;
    return *kernels;
  }

  // Null: there is no kernel of that name.
  const Kernel* Find(const std::string& name) {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(kernels_.begin(), kernels_.end(),
                                    [&](const Kernel& kernel) { return kernel.name == name; });
    if (found != kernels_.end()) return &*found;
    return AddFromLibrary(name);
  }
  bool IsKernel(const void* handle) {
    const std::lock_guard lock(mutex_);
    return std::any_of(kernels_.begin(), kernels_.end(),
                       [&](const Kernel& kernel) { return &kernel == handle; });
  }

 private:
  using FindFunction = bool (*)(const char*, size_t*);
  using RunFunction = void (*)(const char*, unsigned, unsigned, const void*);

  Kernels() {
    kernels_.push_back({"spin", {8, 4}, RunNothing});
    kernels_.push_back({"multiply", {8, 4}, RunNothing});
    kernels_.push_back({"copy", {8, 8, 8}, RunCopy});
    kernels_.push_back({"count", {8, 8, 4, 8}, RunCount});
    const char* const path = std::getenv(kKernelsVariable);
    if (path == nullptr || *path == '\0') return;
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) {
      find_ = reinterpret_cast<FindFunction>(dlsym(library, "geminid_double_find_kernel"));
      run_ = reinterpret_cast<RunFunction>(dlsym(library, "geminid_double_run_kernel"));
    }
    if (find_ != nullptr && run_ != nullptr) return;
    std::fprintf(stderr, "driver double: %s=%s brings no kernels: %s\n", kKernelsVariable, path,
                 library == nullptr ? dlerror() : "it lacks geminid_double_find_kernel");
    std::abort();
  }

  const Kernel* AddFromLibrary(const std::string& name) {
    size_t bytes = 0;
    if (find_ == nullptr || !find_(name.c_str(), &bytes)) return nullptr;
    kernels_.push_back(
        {name, {bytes}, [run = run_, name](unsigned blocks, unsigned threads, const Arguments& a) {
           run(name.c_str(), blocks, threads, a[0].data());
         }});
    return &kernels_.back();
  }

  std::mutex mutex_;
  std::deque<Kernel> kernels_;  // elements do not move
  FindFunction find_ = nullptr;
  RunFunction run_ = nullptr;
};

bool IsImage(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof(magic));
  if (magic == kFatBinaryMagic || magic == kElfMagic) return true;
  const std::string_view text(static_cast<const char*>(image));  // PTX ends with a zero
  return text.find(".version") != std::string_view::npos;
}

template <typename Handle>
CUresult Load(Handle* handle, const void* image) {
  if (handle == nullptr || image == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsImage(image)) return CUDA_ERROR_INVALID_IMAGE;
  *handle = reinterpret_cast<Handle>(&Kernels::Get());
  return CUDA_SUCCESS;
}

template <typename Handle, typename Module>
CUresult FindKernel(Handle* handle, Module module, const char* name) {
  if (handle == nullptr || name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (reinterpret_cast<void*>(module) != &Kernels::Get()) return CUDA_ERROR_INVALID_HANDLE;
  const Kernel* const kernel = Kernels::Get().Find(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  *handle = reinterpret_cast<Handle>(const_cast<Kernel*>(kernel));
  return CUDA_SUCCESS;
}

// Device addresses have no memory behind them, so a kernel gets the mirror's instead: every word of
// an argument that lies in a reserved range is taken for an address.
void Translate(std::vector<std::byte>* argument) {
  for (size_t at = 0; at + kWordBytes <= argument->size(); at += kWordBytes) {
    uint64_t word;
    std::memcpy(&word, argument->data() + at, kWordBytes);
    word = DeviceMemory::Get().Translate(word);
    std::memcpy(argument->data() + at, &word, kWordBytes);
  }
}

}  // namespace

CUresult module_load_data(CUmodule* module, const void* image) { return Load(module, image); }
CUresult module_get_function(CUfunction* function, CUmodule module, const char* name) {
  return FindKernel(function, module, name);
}
CUresult library_load_data(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return Load(library, image);
}
CUresult library_get_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return FindKernel(kernel, library, name);
}

CUresult launch_kernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned,
                       CUstream handle, void** parameters, void** extra) {
  if (!Kernels::Get().IsKernel(function)) return CUDA_ERROR_INVALID_HANDLE;
  const auto* const kernel = reinterpret_cast<const Kernel*>(function);
  const bool is_flat = grid_y == 1 && grid_z == 1 && block_y == 1 && block_z == 1;
  if (!is_flat || grid_x == 0 || block_x == 0 || block_x > kMostThreads || extra != nullptr ||
      parameters == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* const context = CurrentContext();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Arguments arguments;
  for (size_t i = 0; i < kernel->argument_bytes.size(); ++i) {
    const auto* const bytes = static_cast<const std::byte*>(parameters[i]);
    arguments.emplace_back(bytes, bytes + kernel->argument_bytes[i]);
  }
  context->Enqueue(stream, [=]() mutable {
    for (std::vector<std::byte>& argument : arguments) Translate(&argument);
    kernel->run(grid_x, block_x, arguments);
  });
  return CUDA_SUCCESS;
}

}  // namespace geminid::gpu_double::calls
