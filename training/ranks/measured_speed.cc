#include "training/ranks/measured_speed.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "base/status_macros.h"
#include "kernels/model/matmul/matmul.h"
#include "kernels/runtime/common/absl_status.h"
#include "training/nn/scratch.h"

namespace geminid::trainer {
namespace {

// Long enough to be timed, short enough not to be noticed.
constexpr size_t kMeasuredTokens = 256;  // on the host
constexpr size_t kMeasuredCopyBytes = size_t{8} << 20;
constexpr double kLeastSeconds = 1e-9;

double OperationsOf(const kernels::MatmulShape& shape) {
  return 2 * static_cast<double>(shape.m * shape.n * shape.k);
}

// Of the second of two calls: the first one pays for pages and plans.
template <typename Call>
double SecondsOf(const Call& call) {
  call();
  const auto began = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  return std::max(took.count(), kLeastSeconds);
}

template <typename T>
absl::StatusOr<double> HostOperationsPerSecond(const ModelConfig& config) {
  const kernels::MatmulShape shape = {
      .m = kMeasuredTokens, .n = Tiling{}.mlp_columns, .k = config.hidden};
  size_t bytes = 0;
  GEMINID_RETURN_IF_ERROR(
      FromKernel(kernels::MatmulWorkspaceBytes<T, T>(shape, &bytes), "MatmulWorkspaceBytes"));
  // Aligned as the kernel asks for.
  std::vector<std::byte> storage(bytes + 64);
  void* scratch = storage.data();
  size_t space = storage.size();
  std::align(64, bytes, scratch, space);
  const std::vector<T> a(shape.m * shape.k), b(shape.k * shape.n);
  std::vector<T> c(shape.m * shape.n);
  kernels::Status status = kernels::Status::kOk;
  const double seconds = SecondsOf([&] {
    status = kernels::Matmul<T, T>(shape, a.data(), b.data(), nullptr, c.data(), scratch, bytes);
  });
  GEMINID_RETURN_IF_ERROR(FromKernel(status, "Matmul"));
  return OperationsOf(shape) / seconds;
}

double HostCopiedBytesPerSecond() {
  std::vector<std::byte> from(kMeasuredCopyBytes), to(kMeasuredCopyBytes);
  return static_cast<double>(kMeasuredCopyBytes) /
         SecondsOf([&] { std::memcpy(to.data(), from.data(), to.size()); });
}

template <typename T>
absl::StatusOr<MeasuredSpeed> MeasureOnHost(const ModelConfig& config, size_t threads) {
  GEMINID_ASSIGN_OR_RETURN(const double operations, HostOperationsPerSecond<T>(config));
  return MeasuredSpeed{.operations_per_second = operations * static_cast<double>(threads),
                       .link_bytes_per_second = HostCopiedBytesPerSecond()};
}

// As SecondsOf: the first call loads the kernel, or makes the page-locked memory.
template <typename Call>
absl::StatusOr<double> SecondOf(const Call& call) {
  GEMINID_RETURN_IF_ERROR(call().status());
  GEMINID_ASSIGN_OR_RETURN(const double seconds, call());
  return std::max(seconds, kLeastSeconds);
}

// With all tokens of a micro-batch, since few of them leave a GPU idle.
template <typename T>
absl::StatusOr<double> GpuOperationsPerSecond(const ModelConfig& config, size_t tokens,
                                              const ComputePlace& compute) {
  // Enough for the rate of a whole product, and less memory.
  constexpr size_t kMeasuredColumns = 1024;
  const kernels::MatmulShape shape = {.m = tokens,
                                      .n = std::min<size_t>(config.intermediate, kMeasuredColumns),
                                      .k = config.hidden};
  const Resources resources = {compute.workspace, compute.place.math()};
  const size_t inputs = shape.k * (shape.m + shape.n);
  GEMINID_ASSIGN_OR_RETURN(const auto in, Scratch<T>::Allocate(resources, inputs));
  GEMINID_ASSIGN_OR_RETURN(const auto out, Scratch<T>::Allocate(resources, shape.m * shape.n));
  const KernelsOf<T>& math = KernelsFor<T>(resources);
  GEMINID_RETURN_IF_ERROR(math.Zero(resources, in.data(), inputs * sizeof(T)));
  GEMINID_ASSIGN_OR_RETURN(const double seconds, SecondOf([&] {
                             return compute.place.queue()->SecondsOf([&] {
                               return math.Multiply(resources, shape, in.data(),
                                                    in.data() + shape.m * shape.k, nullptr,
                                                    out.data());
                             });
                           }));
  return OperationsOf(shape) / seconds;
}

template <typename T>
absl::StatusOr<MeasuredSpeed> MeasureOnGpu(const ModelConfig& config, size_t tokens,
                                           const ComputePlace& compute) {
  MeasuredSpeed speed;
  GEMINID_ASSIGN_OR_RETURN(speed.operations_per_second,
                           GpuOperationsPerSecond<T>(config, tokens, compute));
  // No more than the inputs of the half layers.
  const size_t bytes =
      std::min(kMeasuredCopyBytes, 2 * config.layers * tokens * config.hidden * sizeof(T));
  GEMINID_ASSIGN_OR_RETURN(const zero::Workspace::Block to, compute.workspace.Allocate(bytes));
  GEMINID_ASSIGN_OR_RETURN(const double seconds, SecondOf([&] {
                             return compute.place.queue()->SecondsOfUpload(bytes, to.data());
                           }));
  speed.link_bytes_per_second = static_cast<double>(bytes) / seconds;
  return speed;
}

}  // namespace

absl::StatusOr<MeasuredSpeed> MeasureHostSpeed(const ModelConfig& config, zero::DataType type,
                                               size_t threads) {
  return type == zero::DataType::kFloat32 ? MeasureOnHost<float>(config, threads)
                                          : MeasureOnHost<kernels::BFloat16>(config, threads);
}

absl::StatusOr<MeasuredSpeed> MeasureSpeed(const ModelConfig& config, zero::DataType type,
                                           const MicroBatchShape& shape,
                                           const ComputePlace& compute) {
  if (!compute.place.on_gpu()) return MeasureHostSpeed(config, type, compute.threads);
  return type == zero::DataType::kFloat32
             ? MeasureOnGpu<float>(config, shape.tokens(), compute)
             : MeasureOnGpu<kernels::BFloat16>(config, shape.tokens(), compute);
}

}  // namespace geminid::trainer
