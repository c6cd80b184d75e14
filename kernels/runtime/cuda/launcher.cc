#include "kernels/runtime/cuda/launcher.h"

#include <cstring>
#include <map>
#include <mutex>

#include "gpu/driver_api.h"
#include "gpu/driver_calls.h"
#include "kernels/runtime/cuda/images.h"
#include "kernels/runtime/cuda/refusal.h"

namespace geminid::kernels::cuda {
namespace {

thread_local std::string refusal;
thread_local int refusal_code = CUDA_SUCCESS;

Status Refuse(std::string why, CUresult result = CUDA_SUCCESS) {
  refusal = std::move(why);
  refusal_code = result;
  return Status::kUnsupported;
}

Status Refuse(const gpu::DriverApi& api, const std::string& what, CUresult result) {
  return Refuse(what + ": " + gpu::DescribeError(api, result), result);
}

const KernelImage* FindImage(const char* name) {
  for (const KernelImage& image : KernelImages()) {
    if (std::strcmp(image.name, name) == 0) return &image;
  }
  return nullptr;
}

// The fat binaries that the driver has loaded. A library needs no context and serves all devices;
// the driver gets each device's code when it is first used there. None is ever unloaded.
class Libraries {
 public:
  Status Find(const gpu::DriverApi& api, const char* image_name, CUlibrary* library) {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = loaded_.try_emplace(image_name, nullptr);
    if (is_new) {
      const Status status = Load(api, image_name, &place->second);
      if (status != Status::kOk) {
        loaded_.erase(place);
        return status;
      }
    }
    *library = place->second;
    return Status::kOk;
  }

 private:
  static Status Load(const gpu::DriverApi& api, const char* name, CUlibrary* library) {
    const KernelImage* const image = FindImage(name);
    if (image == nullptr) {
      return Refuse(HasKernelImages()
                        ? std::string("there are no kernels called ") + name
                        : std::string("this program was built without a CUDA compiler and has no "
                                      "kernels; build it where nvcc is found"));
    }
    const CUresult result =
        api.library_load_data(library, image->data, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (result == CUDA_SUCCESS) return Status::kOk;
    return Refuse(api, std::string("the driver does not take the kernels ") + name, result);
  }

  std::mutex mutex_;
  std::map<std::string, CUlibrary> loaded_;  // guarded by mutex_
};

Status FindKernel(const gpu::DriverApi& api, const char* image, const char* name,
                  CUkernel* kernel) {
  static auto* const libraries = new Libraries;  // the driver may outlive every destructor
  CUlibrary library = nullptr;
  const Status status = libraries->Find(api, image, &library);
  if (status != Status::kOk) return status;
  const CUresult result = api.library_get_kernel(kernel, library, name);
  if (result == CUDA_SUCCESS) return Status::kOk;
  return Refuse(api, std::string("the kernel ") + name, result);
}

}  // namespace

Status KernelSite::Launch(size_t blocks, unsigned threads, const void* argument,
                          CudaStream stream) {
  if (blocks == 0) return Status::kOk;
  if (blocks > kBlocksMax) return Status::kSizeOverflow;
  const gpu::DriverCall call;
  std::string error;
  const gpu::DriverApi* const api = gpu::ProcessDriver(&error);
  if (api == nullptr) return Refuse(std::move(error));
  void* kernel = handle_.load(std::memory_order_acquire);
  if (kernel == nullptr) {
    CUkernel found = nullptr;
    const Status status = FindKernel(*api, image_, kernel_, &found);
    if (status != Status::kOk) return status;
    kernel = found;
    handle_.store(kernel, std::memory_order_release);  // by two threads: the same value
  }
  void* parameters[] = {const_cast<void*>(argument)};
  const CUresult result =
      api->launch_kernel(static_cast<CUfunction>(kernel), static_cast<unsigned>(blocks), 1, 1,
                         threads, 1, 1, 0, stream, parameters, nullptr);
  if (result == CUDA_SUCCESS) return Status::kOk;
  return Refuse(*api, std::string("launching the kernel ") + kernel_, result);
}

std::string LastRefusal() { return refusal; }

int LastRefusalCode() { return refusal_code; }

bool HasKernelImages() { return !KernelImages().empty(); }

}  // namespace geminid::kernels::cuda
