#include <cuda_runtime.h>

#include "kernels/runtime/cuda/device.h"

namespace geminid::kernels {
namespace {

std::string Version(int version) {  // 13000 is 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

bool FindCudaDevice(CudaDeviceInfo* info, std::string* reason) {
  int count = 0;  // cudaGetDeviceCount leaves it alone when it fails
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    *reason = error == cudaSuccess ? "the driver knows no device" : cudaGetErrorString(error);
    return false;
  }
  cudaDeviceProp properties;
  if (const cudaError_t failed = cudaGetDeviceProperties(&properties, 0); failed != cudaSuccess) {
    *reason = cudaGetErrorString(failed);
    return false;
  }
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  *info = {.name = properties.name,
           .driver = Version(driver),
           .compute_capability = properties.major * 10 + properties.minor,
           .memory_bytes = properties.totalGlobalMem,
           .l2_bytes = static_cast<size_t>(properties.l2CacheSize)};
  return true;
}

CudaBuffer::CudaBuffer(size_t bytes) {
  if (cudaMalloc(&data_, bytes) == cudaSuccess) {
    bytes_ = bytes;
  } else {
    data_ = nullptr;
    static_cast<void>(cudaGetLastError());  // an allocation that failed is no error of a later call
  }
}

CudaBuffer::~CudaBuffer() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

bool CudaBuffer::CopyFrom(const void* host, size_t bytes) {
  return bytes <= bytes_ && cudaMemcpy(data_, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

bool CudaBuffer::CopyTo(void* host, size_t bytes) const {
  return bytes <= bytes_ && cudaMemcpy(host, data_, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

bool CudaFill(CudaBuffer* buffer, int value) {
  return cudaMemsetAsync(buffer->data(), value, buffer->bytes()) == cudaSuccess;
}

bool CudaCopy(const CudaBuffer& from, CudaBuffer* to, size_t bytes) {
  return bytes <= from.bytes() && bytes <= to->bytes() &&
         cudaMemcpyAsync(to->data(), from.data(), bytes, cudaMemcpyDeviceToDevice) == cudaSuccess;
}

bool CudaWait(std::string* reason) {
  const cudaError_t error = cudaDeviceSynchronize();
  if (error == cudaSuccess) return true;
  *reason = cudaGetErrorString(error);
  return false;
}

CudaTimer::CudaTimer() {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  if (cudaEventCreate(&start) == cudaSuccess) start_ = start;
  if (cudaEventCreate(&stop) == cudaSuccess) stop_ = stop;
}

CudaTimer::~CudaTimer() {
  if (start_ != nullptr) static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(start_)));
  if (stop_ != nullptr) static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(stop_)));
}

void CudaTimer::Start() {
  static_cast<void>(cudaEventRecord(static_cast<cudaEvent_t>(start_), nullptr));
}

double CudaTimer::StopSeconds() {
  const auto stop = static_cast<cudaEvent_t>(stop_);
  static_cast<void>(cudaEventRecord(stop, nullptr));
  static_cast<void>(cudaEventSynchronize(stop));
  float milliseconds = 0;
  static_cast<void>(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(start_), stop));
  return milliseconds / 1e3;
}

}  // namespace geminid::kernels
