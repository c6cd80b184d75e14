#include "tools/kernel-check/norm_check.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <random>

#include "kernels/numeric/norm/norm_cuda.h"
#include "tools/kernel-check/device.h"

namespace geminid::kernel_check {
namespace {

using kernels::BFloat16;
using kernels::SquareSum;
using kernels::Status;

// Three trees; the last one has few blocks, and its last block is short.
constexpr size_t kComparedCount = 2 * kernels::kNormTree + 40 * kernels::kNormBlock + 1203;
constexpr int kTimedRounds = 20;

float FromFloat(float value, const float*) { return value; }
BFloat16 FromFloat(float value, const BFloat16*) { return BFloat16::FromFloat(value); }

template <typename T>
std::vector<T> RandomValues(size_t count) {
  std::mt19937_64 random(count);
  std::vector<T> values(count);
  for (T& value : values) {
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    value = FromFloat(static_cast<float>(2 * unit - 1), static_cast<const T*>(nullptr));
  }
  return values;
}

// Empty if the sums have the same bits.
template <typename T>
std::string Difference(const std::vector<T>& values) {
  constexpr double kBefore = 0.125;  // the sum before
  SquareSum expected = {kBefore};
  if (kernels::AddSquares(values.data(), values.size(), &expected) != Status::kOk) {
    return "the host's sum failed";
  }
  CudaBuffer on_device(values.size() * sizeof(T));
  const size_t workspace_bytes = kernels::SquareSumWorkspaceBytes(values.size());
  CudaBuffer workspace(workspace_bytes);
  CudaBuffer total(sizeof(double));
  double found = kBefore;
  if (!workspace || !on_device.CopyFrom(values.data(), values.size() * sizeof(T)) ||
      !total.CopyFrom(&found, sizeof(found))) {
    return "the device has too little free memory for this check";
  }
  const Status status =
      kernels::AddSquaresCuda(on_device.as<T>(), values.size(), workspace.as<double>(),
                              workspace_bytes, total.as<double>(), nullptr);
  std::string reason;
  if (status != Status::kOk) return kernels::StatusName(status);
  if (!CudaWait(&reason) || !total.CopyTo(&found, sizeof(found))) return reason;
  if (std::bit_cast<uint64_t>(found) == std::bit_cast<uint64_t>(expected.sum)) return "";
  return "the sum is " + std::to_string(found) + ", not " + std::to_string(expected.sum);
}

template <typename T>
double Speed(size_t count) {
  CudaBuffer values(count * sizeof(T));
  const size_t workspace_bytes = kernels::SquareSumWorkspaceBytes(count);
  CudaBuffer workspace(workspace_bytes);
  CudaBuffer total(sizeof(double));
  if (!values || !workspace || !total || !CudaFill(&values, 0)) return 0;
  const auto run = [&] {
    return kernels::AddSquaresCuda(values.as<T>(), count, workspace.as<double>(), workspace_bytes,
                                   total.as<double>(), nullptr) == Status::kOk;
  };
  if (!run()) return 0;
  CudaTimer timer;
  timer.Start();
  for (int i = 0; i < kTimedRounds; ++i) {
    if (!run()) return 0;
  }
  return static_cast<double>(count * sizeof(T)) * kTimedRounds / timer.StopSeconds();
}

template <typename T>
Finding CheckNorm(const char* name, size_t timed_count) {
  std::vector<T> values = RandomValues<T>(kComparedCount);
  Finding finding;
  finding.name = name;
  finding.compared = 2 * kComparedCount;
  finding.detail = Difference(values);
  if (finding.detail.empty()) {
    values[kComparedCount / 2] =
        FromFloat(std::numeric_limits<float>::quiet_NaN(), static_cast<const T*>(nullptr));
    finding.detail = Difference(values);
  }
  finding.passed = finding.detail.empty();
  if (finding.passed && timed_count != 0) finding.bytes_per_second = Speed<T>(timed_count);
  return finding;
}

}  // namespace

std::vector<Finding> CheckNorms(size_t timed_count) {
  return {CheckNorm<float>("sum of squares, fp32", timed_count),
          CheckNorm<BFloat16>("sum of squares, bf16", timed_count)};
}

}  // namespace geminid::kernel_check
