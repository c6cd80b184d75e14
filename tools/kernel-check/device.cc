#include "tools/kernel-check/device.h"

#include "gpu/driver_api.h"

namespace geminid::kernel_check {
namespace {

constexpr int kNameBytes = 256;

const gpu::DriverApi* Api() {
  std::string unused;
  return gpu::ProcessDriver(&unused);
}

CUdeviceptr Address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

std::string Version(int version) {  // 13000 is 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Makes the primary context of device 0 current in this thread.
CUresult UseDevice(const gpu::DriverApi& api, CUdevice* device) {
  CUcontext context = nullptr;
  CUresult result = api.device_get(device, 0);
  if (result == CUDA_SUCCESS) result = api.primary_ctx_retain(&context, *device);
  if (result == CUDA_SUCCESS) result = api.ctx_set_current(context);
  return result;
}

}  // namespace

bool FindCudaDevice(CudaDeviceInfo* info, std::string* reason) {
  const gpu::DriverApi* const api = gpu::ProcessDriver(reason);
  if (api == nullptr) return false;
  CUdevice device = 0;
  if (const CUresult result = UseDevice(*api, &device); result != CUDA_SUCCESS) {
    *reason = gpu::DescribeError(*api, result);
    return false;
  }
  char name[kNameBytes] = {};
  int driver = 0;
  int major = 0;
  int minor = 0;
  static_cast<void>(api->device_get_name(name, kNameBytes, device));
  static_cast<void>(api->driver_get_version(&driver));
  const auto get = [&](CUdevice_attribute attribute, int* value) {
    static_cast<void>(api->device_get_attribute(value, attribute, device));
  };
  get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
  get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
  *info = {.name = name, .driver = Version(driver), .compute_capability = major * 10 + minor};
  static_cast<void>(api->device_total_mem(&info->memory_bytes, device));
  return true;
}

CudaBuffer::CudaBuffer(size_t bytes) {
  CUdeviceptr address = 0;
  if (Api()->mem_alloc(&address, bytes) != CUDA_SUCCESS) return;
  data_ = reinterpret_cast<void*>(address);
  bytes_ = bytes;
}

CudaBuffer::~CudaBuffer() {
  if (data_ != nullptr) static_cast<void>(Api()->mem_free(Address(data_)));
}

bool CudaBuffer::CopyFrom(const void* host, size_t bytes) {
  return bytes <= bytes_ &&
         Api()->memcpy_htod_async(Address(data_), host, bytes, nullptr) == CUDA_SUCCESS &&
         Api()->stream_synchronize(nullptr) == CUDA_SUCCESS;
}

bool CudaBuffer::CopyTo(void* host, size_t bytes) const {
  return bytes <= bytes_ &&
         Api()->memcpy_dtoh_async(host, Address(data_), bytes, nullptr) == CUDA_SUCCESS &&
         Api()->stream_synchronize(nullptr) == CUDA_SUCCESS;
}

bool CudaFill(CudaBuffer* buffer, int value) {
  return Api()->memset_d8_async(Address(buffer->data()), static_cast<unsigned char>(value),
                                buffer->bytes(), nullptr) == CUDA_SUCCESS;
}

bool CudaCopy(const CudaBuffer& from, CudaBuffer* to, size_t bytes) {
  return bytes <= from.bytes() && bytes <= to->bytes() &&
         Api()->memcpy_dtod_async(Address(to->data()), Address(from.data()), bytes, nullptr) ==
             CUDA_SUCCESS;
}

bool CudaWait(std::string* reason) {
  const CUresult result = Api()->ctx_synchronize();
  if (result == CUDA_SUCCESS) return true;
  *reason = gpu::DescribeError(*Api(), result);
  return false;
}

CudaTimer::CudaTimer() {
  CUevent start = nullptr;
  CUevent stop = nullptr;
  if (Api()->event_create(&start, CU_EVENT_DEFAULT) == CUDA_SUCCESS) start_ = start;
  if (Api()->event_create(&stop, CU_EVENT_DEFAULT) == CUDA_SUCCESS) stop_ = stop;
}

CudaTimer::~CudaTimer() {
  if (start_ != nullptr) static_cast<void>(Api()->event_destroy(static_cast<CUevent>(start_)));
  if (stop_ != nullptr) static_cast<void>(Api()->event_destroy(static_cast<CUevent>(stop_)));
}

void CudaTimer::Start() {
  static_cast<void>(Api()->event_record(static_cast<CUevent>(start_), nullptr));
}

double CudaTimer::StopSeconds() {
  const auto stop = static_cast<CUevent>(stop_);
  static_cast<void>(Api()->event_record(stop, nullptr));
  static_cast<void>(Api()->event_synchronize(stop));
  float milliseconds = 0;
  static_cast<void>(Api()->event_elapsed_time(&milliseconds, static_cast<CUevent>(start_), stop));
  return milliseconds / 1e3;
}

}  // namespace geminid::kernel_check
