// One kernel beside its twin: arrays in separate memory of host and device, a call on both, and the
// difference of the results. Or, with `timed`, repeated calls on the device alone.
#ifndef GEMINID_TOOLS_KERNEL_CHECK_TRIAL_H_
#define GEMINID_TOOLS_KERNEL_CHECK_TRIAL_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/common/float16.h"
#include "kernels/runtime/common/status.h"
#include "tools/kernel-check/device.h"
#include "tools/kernel-check/finding.h"

namespace geminid::kernel_check {

// Element `i` of a fixed pseudo-random sequence, in [-1, 1).
float RandomUnit(uint64_t i);

// `count` elements from `seed` on, times `scale`, as elements of T.
template <typename T>
std::vector<T> RandomArray(size_t count, uint64_t seed, float scale = 1.0F) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    const float value = RandomUnit(seed * count + i) * scale;
    if constexpr (std::is_same_v<T, float>) {
      values[i] = value;
    } else {
      values[i] = T::FromFloat(value);
    }
  }
  return values;
}

// The same array on each side.
template <typename T>
struct HostDeviceArray {
  T* host = nullptr;
  T* device = nullptr;
};

class Trial {
 public:
  explicit Trial(bool timed) : timed_(timed) {}
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  bool timed() const { return timed_; }

  // In: an array that is read. Out: one that is compared afterwards, bit for bit or, with a
  // tolerance above 0, to within that share of the largest expected magnitude. `shift` elements lie
  // before it on the device, so that it is not aligned to a word.
  template <typename T>
  HostDeviceArray<T> In(std::vector<T> values, size_t shift = 0) {
    return Add<T>("", std::move(values), shift, 0, 1, &ToDouble<T>);
  }
  // `traffic` is 1 for arrays that are only written, 2 for those that are read, too.
  template <typename T>
  HostDeviceArray<T> Out(const char* name, std::vector<T> values, size_t shift = 0,
                         double tolerance = 0, int traffic = 1) {
    return Add<T>(name, std::move(values), shift, tolerance, traffic, &ToDouble<T>);
  }
  // Device memory without a twin on the host.
  void* Workspace(size_t bytes);

  // Makes both calls; leaves out the host's if the trial is timed.
  void Run(const std::function<kernels::Status()>& on_host,
           const std::function<kernels::Status()>& on_device);
  // Fails with `wrong` unless `holds`.
  void Expect(bool holds, const std::string& wrong) {
    if (!holds) Fail(wrong);
  }
  // The operations of the device's call, if arithmetic takes its time.
  void Computes(double operations) { operations_ = operations; }

  // Empty if all results are as expected.
  std::string Difference();
  size_t compared() const { return compared_; }
  double seconds() const { return seconds_; }  // of one call
  double traffic_bytes() const { return traffic_bytes_; }
  double operations() const { return operations_; }

 private:
  struct Array {
    std::string name;  // empty: not compared
    std::vector<std::byte> host;
    CudaBuffer device;
    size_t shift_bytes = 0;
    size_t element_bytes = 0;
    double tolerance = 0;
    double (*to_double)(const std::byte*) = nullptr;
  };

  template <typename T>
  static double ToDouble(const std::byte* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof(T));
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<double>(value);
    } else {
      return static_cast<double>(value.ToFloat());
    }
  }

  template <typename T>
  HostDeviceArray<T> Add(const char* name, std::vector<T> values, size_t shift, double tolerance,
                         int traffic, double (*to_double)(const std::byte*)) {
    auto array = std::make_unique<Array>();
    array->name = name;
    array->host.resize(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(array->host.data(), values.data(), array->host.size());
    array->shift_bytes = shift * sizeof(T);
    array->element_bytes = sizeof(T);
    array->tolerance = tolerance;
    array->to_double = to_double;
    traffic_bytes_ += static_cast<double>(array->host.size()) * traffic;
    std::byte* const device = Upload(array.get());
    HostDeviceArray<T> twin;
    twin.host = reinterpret_cast<T*>(array->host.data());
    twin.device = reinterpret_cast<T*>(device);
    arrays_.push_back(std::move(array));
    return twin;
  }
  std::byte* Upload(Array* array);
  std::string DifferenceOf(const Array& array);
  void Fail(const std::string& what);

  const bool timed_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<CudaBuffer> workspaces_;
  std::string failure_;
  size_t compared_ = 0;
  double seconds_ = 0;
  double traffic_bytes_ = 0;
  double operations_ = 0;
};

// A kernel, or one form of it, on several shapes, and on one that is as large as in training.
struct KernelCase {
  std::string name;
  std::vector<std::function<void(Trial&)>> compared;
  std::function<void(Trial&)> timed;
};

// The cases of kernels/numeric, of kernels/model except the following, of products and dropout, of
// attention, of pointwise functions, and of layers over a grid of ranks.
std::vector<KernelCase> NumericCases();
std::vector<KernelCase> ModelCases();
std::vector<KernelCase> ProductCases();
std::vector<KernelCase> AttentionCases();
std::vector<KernelCase> PointwiseCases();
std::vector<KernelCase> PartCases();
std::vector<KernelCase> AllKernelCases();

Finding CheckKernel(const KernelCase& one, bool timing);

}  // namespace geminid::kernel_check

#endif  // GEMINID_TOOLS_KERNEL_CHECK_TRIAL_H_
