#ifndef GEMINID_TOOLS_KERNEL_CHECK_DEVICE_H_
#define GEMINID_TOOLS_KERNEL_CHECK_DEVICE_H_

#include <cstddef>
#include <string>
#include <utility>

// The minimum of a GPU's interface to run the kernels alone and to time them, through the
// driver: device 0, its primary context and its default stream. Training uses client/device. One
// thread.
namespace geminid::kernel_check {

struct CudaDeviceInfo {
  std::string name;            // of device 0
  std::string driver;          // the CUDA version that the driver supports, e.g. "13.0"
  int compute_capability = 0;  // 90 for sm_90
  size_t memory_bytes = 0;
};

// Finds device 0, which the calling thread then uses; else explains in *reason why there is none.
// All other functions need it to have succeeded.
bool FindCudaDevice(CudaDeviceInfo* info, std::string* reason);

// Device memory. Empty if the allocation failed.
class CudaBuffer {
 public:
  CudaBuffer() = default;
  explicit CudaBuffer(size_t bytes);
  CudaBuffer(CudaBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~CudaBuffer();

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  explicit operator bool() const { return data_ != nullptr; }

  // Both copies wait until they are done. False if the driver reports an error.
  bool CopyFrom(const void* host, size_t bytes);
  bool CopyTo(void* host, size_t bytes) const;

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

// Sets every byte, on the default stream.
bool CudaFill(CudaBuffer* buffer, int value);

// Copies between buffers on the default stream, as fast as the device can: the baseline.
bool CudaCopy(const CudaBuffer& from, CudaBuffer* to, size_t bytes);

// Waits for all queued work. False, with the driver's message in *reason, if anything failed.
bool CudaWait(std::string* reason);

// Time between two points of the default stream.
class CudaTimer {
 public:
  CudaTimer();
  ~CudaTimer();
  CudaTimer(const CudaTimer&) = delete;
  CudaTimer& operator=(const CudaTimer&) = delete;

  void Start();
  double StopSeconds();  // waits

 private:
  void* start_ = nullptr;
  void* stop_ = nullptr;
};

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_DEVICE_H_
