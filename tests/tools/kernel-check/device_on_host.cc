// Implements tools/kernel-check/device.h on the heap, and kernels/runtime/cuda/launcher.h with the
// kernels as plain C++.
#include "tests/tools/kernel-check/device_on_host.h"

#include <cstdlib>
#include <cstring>

#include "kernels/runtime/cuda/launcher.h"
#include "tests/kernels/cuda_on_host/registry.h"
#include "tools/kernel-check/device.h"

namespace geminid::cuda_on_host {
BlockOrder launch_order = BlockOrder::kForward;
}  // namespace geminid::cuda_on_host

namespace geminid::kernels::cuda {

Status KernelSite::Launch(size_t blocks, unsigned threads, const void* argument,
                          CudaStream /* stream */) {
  const cuda_on_host::HostKernel* const kernel = cuda_on_host::FindHostKernel(kernel_);
  if (kernel == nullptr) return Status::kUnsupported;
  cuda_on_host::RunHostKernel(*kernel, static_cast<unsigned>(blocks), threads, argument,
                              cuda_on_host::launch_order);
  return Status::kOk;
}

std::string LastRefusal() { return ""; }

}  // namespace geminid::kernels::cuda

namespace geminid::kernel_check {

bool FindCudaDevice(CudaDeviceInfo* info, std::string* /* reason */) {
  *info = {.name = "host", .driver = "none", .compute_capability = 0, .memory_bytes = 0};
  return true;
}

CudaBuffer::CudaBuffer(size_t bytes) {
  constexpr size_t kAlignment = 256;  // the alignment of cudaMalloc
  data_ = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  bytes_ = data_ == nullptr ? 0 : bytes;
}

CudaBuffer::~CudaBuffer() { std::free(data_); }

bool CudaBuffer::CopyFrom(const void* host, size_t bytes) {
  if (bytes > bytes_) return false;
  std::memcpy(data_, host, bytes);
  return true;
}

bool CudaBuffer::CopyTo(void* host, size_t bytes) const {
  if (bytes > bytes_) return false;
  std::memcpy(host, data_, bytes);
  return true;
}

bool CudaFill(CudaBuffer* buffer, int value) {
  std::memset(buffer->data(), value, buffer->bytes());
  return true;
}

bool CudaCopy(const CudaBuffer& from, CudaBuffer* to, size_t bytes) {
  return bytes <= from.bytes() && to->CopyFrom(from.data(), bytes);
}

bool CudaWait(std::string* /* reason */) { return true; }

CudaTimer::CudaTimer() = default;
CudaTimer::~CudaTimer() = default;
void CudaTimer::Start() {}
double CudaTimer::StopSeconds() { return 1; }

}  // namespace geminid::kernel_check
