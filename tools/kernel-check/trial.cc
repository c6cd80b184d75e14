#include "tools/kernel-check/trial.h"

#include <algorithm>

#include "kernels/runtime/cuda/launcher.h"

namespace geminid::kernel_check {
namespace {

using kernels::Status;

constexpr int kTimedCalls = 20;

std::string Words(const char* where, Status status) {
  std::string words = std::string(where) + " says " + kernels::StatusName(status);
  const std::string refusal = kernels::cuda::LastRefusal();
  return status == Status::kUnsupported && !refusal.empty() ? words + ": " + refusal : words;
}

}  // namespace

float RandomUnit(uint64_t i) {
  uint64_t x = (i + 1) * 0x9E3779B97F4A7C15u;  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 11) * 0x1p-52 - 1.0);
}

void Trial::Fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

std::byte* Trial::Upload(Array* array) {
  std::vector<std::byte> bytes(array->shift_bytes + array->host.size());
  std::copy(array->host.begin(), array->host.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(array->shift_bytes));
  array->device = CudaBuffer(std::max<size_t>(bytes.size(), 1));
  if (!array->device.CopyFrom(bytes.data(), bytes.size()))
    Fail("the device has too little free memory for this check");
  return array->device.as<std::byte>() + array->shift_bytes;
}

void* Trial::Workspace(size_t bytes) {
  workspaces_.emplace_back(std::max<size_t>(bytes, 1));
  if (!workspaces_.back()) Fail("the device has too little free memory for this check");
  return workspaces_.back().data();
}

void Trial::Run(const std::function<Status()>& on_host, const std::function<Status()>& on_device) {
  if (!failure_.empty()) return;
  if (!timed_) {
    if (const Status status = on_host(); status != Status::kOk) Fail(Words("the host", status));
  }
  if (const Status status = on_device(); status != Status::kOk) Fail(Words("the device", status));
  std::string reason;
  if (!CudaWait(&reason)) Fail(reason);
  if (!timed_ || !failure_.empty()) return;
  CudaTimer timer;
  timer.Start();
  for (int i = 0; i < kTimedCalls; ++i) {
    if (on_device() != Status::kOk) Fail("the device refuses a call that it accepted before");
  }
  seconds_ = timer.StopSeconds() / kTimedCalls;
}

std::string Trial::DifferenceOf(const Array& array) {
  std::vector<std::byte> found(array.shift_bytes + array.host.size());
  if (!array.device.CopyTo(found.data(), found.size())) return "the result could not be read";
  const std::byte* const bytes = found.data() + array.shift_bytes;
  const size_t count = array.host.size() / array.element_bytes;
  double largest = 0;
  for (size_t i = 0; array.tolerance > 0 && i < count; ++i) {
    const double expected = array.to_double(array.host.data() + i * array.element_bytes);
    if (std::isfinite(expected)) largest = std::max(largest, std::fabs(expected));
  }
  compared_ += count;
  for (size_t i = 0; i < count; ++i) {
    const size_t at = i * array.element_bytes;
    if (std::memcmp(array.host.data() + at, bytes + at, array.element_bytes) == 0) continue;
    const double expected = array.to_double(array.host.data() + at);
    const double value = array.to_double(bytes + at);
    if (std::fabs(expected - value) <= array.tolerance * largest) continue;  // no for a NaN
    return array.name + "[" + std::to_string(i) + "] is " + std::to_string(value) + ", not " +
           std::to_string(expected);
  }
  return "";
}

std::string Trial::Difference() {
  if (!failure_.empty()) return failure_;
  for (const auto& array : arrays_) {
    if (array->name.empty()) continue;
    std::string difference = DifferenceOf(*array);
    if (!difference.empty()) return difference;
  }
  return "";
}

std::vector<KernelCase> AllKernelCases() {
  std::vector<KernelCase> all = NumericCases();
  for (auto cases :
       {ModelCases(), PointwiseCases(), PartCases(), ProductCases(), AttentionCases()}) {
    for (KernelCase& one : cases) all.push_back(std::move(one));
  }
  return all;
}

Finding CheckKernel(const KernelCase& one, bool timing) {
  Finding finding;
  finding.name = one.name;
  for (size_t i = 0; i < one.compared.size(); ++i) {
    Trial trial(/*timed=*/false);
    one.compared[i](trial);
    const std::string difference = trial.Difference();
    finding.compared += trial.compared();
    if (difference.empty()) continue;
    finding.detail = "shape " + std::to_string(i) + ": " + difference;
    return finding;
  }
  finding.passed = true;
  if (!timing) return finding;
  Trial trial(/*timed=*/true);
  one.timed(trial);
  if (trial.seconds() <= 0) return finding;
  if (trial.operations() > 0) {
    finding.operations_per_second = trial.operations() / trial.seconds();
  } else {
    finding.bytes_per_second = trial.traffic_bytes() / trial.seconds();
  }
  return finding;
}

}  // namespace geminid::kernel_check
