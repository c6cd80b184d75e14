// The hooks on the driver's side.
#include <cstdint>
#include <memory>

#include "tests/gpu/double/hooks.h"
#include "tests/gpu/double/memory.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double {
namespace {

CUresult Enqueue(CUstream handle, StreamWork work, void* data) {
  Context* const context = CurrentContext();
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->failed()) return context->error();
  const std::shared_ptr<Stream> stream = context->Find(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  context->Enqueue(stream, [=] {
    const CUresult result = work(data);
    if (result != CUDA_SUCCESS) context->Fail(result);
  });
  return CUDA_SUCCESS;
}

void* Mirror(const void* address, size_t bytes, bool writes) {
  return DeviceMemory::Get().Mirror(reinterpret_cast<uintptr_t>(address), bytes,
                                    writes ? Access::kReadWrite : Access::kRead);
}

int CurrentDevice() {
  Context* const context = CurrentContext();
  return context == nullptr ? -1 : context->device();
}

}  // namespace
}  // namespace geminid::gpu_double

extern "C" {
// The libraries look for this name.
__attribute__((visibility("default"))) extern const geminid::gpu_double::Hooks
    geminid_double_hooks;  // NOLINT(readability-identifier-naming)
const geminid::gpu_double::Hooks geminid_double_hooks = {
    .enqueue = geminid::gpu_double::Enqueue,
    .mirror = geminid::gpu_double::Mirror,
    .current_device = geminid::gpu_double::CurrentDevice};
}
