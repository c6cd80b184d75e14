#include "tools/kernel-check/product_timing.h"

#include <algorithm>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/driver_api.h"
#include "kernels/model/matmul/matmul_cuda.h"
#include "kernels/runtime/common/bfloat16.h"
#include "kernels/runtime/cuda/launcher.h"
#include "tools/kernel-check/device.h"
#include "tools/kernel-check/trial.h"

namespace geminid::kernel_check {
namespace {

using gpu::LtStatus;
using kernels::BFloat16;
using kernels::MatmulShape;
using kernels::Status;
using kernels::Transpose;

constexpr int kRounds = 5;
constexpr int kMostCalls = 10'000;
// The duration of one measurement.
constexpr double kJudgedSeconds = 0.1;
constexpr double kShortSeconds = 0.002;
// The workspace that callers give the library by default.
constexpr uint64_t kBareWorkspaceBytes = uint64_t{32} << 20;

// Queues one product; false if it was refused.
using Call = std::function<bool()>;

// Calls per second; 0 if a call was refused. The first calls load code and do not count.
double CallsPerSecond(const Call& queue, double seconds) {
  CudaTimer timer;
  timer.Start();
  if (!queue()) return 0;
  const double first = timer.StopSeconds();
  const double wanted = first > 0 ? seconds / first : kMostCalls;
  const int calls = std::max(1, static_cast<int>(std::min<double>(wanted, kMostCalls)));
  timer.Start();
  for (int i = 0; i < calls; ++i) {
    if (!queue()) return 0;
  }
  const double taken = timer.StopSeconds();
  return taken > 0 ? calls / taken : 0;
}

template <typename T>
constexpr gpu::LtType TypeOf() {
  return std::is_same_v<T, float> ? gpu::LtType::kFp32 : gpu::LtType::kBf16;
}

// The library's call alone: the algorithm that it proposes first, without restrictions. Row-major
// products are column-major ones with swapped factors.
class BareLoop {
 public:
  BareLoop(const gpu::CublasLtApi& api, gpu::LtHandle handle) : api_(api), handle_(handle) {}
  BareLoop(const BareLoop&) = delete;
  BareLoop& operator=(const BareLoop&) = delete;
  ~BareLoop() {
    for (const gpu::LtLayout layout : {left_, right_, result_}) {
      if (layout != nullptr) api_.layout_destroy(layout);
    }
    if (product_ != nullptr) api_.matmul_destroy(product_);
  }

  // False if the library has no algorithm for the product.
  bool Choose(const MatmulShape& s, gpu::LtType in, gpu::LtType out, const void* bias) {
    const bool a_turned = s.transpose_a == Transpose::kYes;
    const bool b_turned = s.transpose_b == Transpose::kYes;
    const auto layout = [&](gpu::LtLayout* made, gpu::LtType type, bool turned, size_t rows,
                            size_t cols) {
      if (turned) std::swap(rows, cols);
      return Took(api_.layout_create(made, type, cols, rows, static_cast<int64_t>(cols)));
    };
    using Attribute = gpu::LtMatmulAttribute;
    return Took(api_.matmul_create(&product_, gpu::LtCompute::kFp32, gpu::LtType::kFp32)) &&
           Set(Attribute::kTransposeA, b_turned ? gpu::LtTranspose::kYes : gpu::LtTranspose::kNo) &&
           Set(Attribute::kTransposeB, a_turned ? gpu::LtTranspose::kYes : gpu::LtTranspose::kNo) &&
           (!s.bias || (Set(Attribute::kEpilogue, gpu::LtEpilogue::kBias) &&
                        Set(Attribute::kBiasPointer, bias))) &&
           layout(&left_, in, b_turned, s.k, s.n) && layout(&right_, in, a_turned, s.m, s.k) &&
           layout(&result_, out, false, s.m, s.n) && ChooseAlgorithm();
  }

  bool Queue(const void* a, const void* b, void* c, void* workspace) const {
    const float one = 1;
    const float zero = 0;
    return Took(api_.matmul(handle_, product_, &one, b, left_, a, right_, &zero, c, result_, c,
                            result_, &algorithm_, workspace, kBareWorkspaceBytes, nullptr));
  }

 private:
  static bool Took(LtStatus status) { return status == LtStatus::kSuccess; }

  template <typename Value>
  bool Set(gpu::LtMatmulAttribute attribute, const Value& value) {
    return Took(api_.matmul_set(product_, attribute, static_cast<const void*>(&value),
                                sizeof(value)));
  }

  bool ChooseAlgorithm() {
    gpu::LtPreference preference = nullptr;
    if (!Took(api_.preference_create(&preference))) return false;
    gpu::LtHeuristic answer = {};
    int answers = 0;
    const bool found =
        Took(api_.preference_set(preference, gpu::LtPreferenceAttribute::kMaxWorkspaceBytes,
                                 static_cast<const void*>(&kBareWorkspaceBytes),
                                 sizeof(kBareWorkspaceBytes))) &&
        Took(api_.heuristic(handle_, product_, left_, right_, result_, result_, preference, 1,
                            &answer, &answers));
    api_.preference_destroy(preference);
    algorithm_ = answer.algorithm;
    return found && answers > 0 && answer.state == LtStatus::kSuccess;
  }

  const gpu::CublasLtApi& api_;
  const gpu::LtHandle handle_;
  gpu::LtMatmul product_ = nullptr;
  gpu::LtLayout left_ = nullptr;
  gpu::LtLayout right_ = nullptr;
  gpu::LtLayout result_ = nullptr;
  gpu::LtAlgorithm algorithm_ = {};
};

template <typename T>
CudaBuffer Upload(const std::vector<T>& values) {
  CudaBuffer buffer(values.size() * sizeof(T));
  if (!buffer || !buffer.CopyFrom(values.data(), values.size() * sizeof(T))) return CudaBuffer();
  return buffer;
}

// A product's operands on the device, and the three ways to compute it.
template <typename In, typename Out>
class ProductComparison {
 public:
  ProductComparison(const MatmulShape& shape, kernels::MatmulLibrary* library,
                    const gpu::CublasLtApi& api, gpu::LtHandle handle)
      : shape_(shape), library_(*library), bare_(api, handle) {}

  // Empty, or why the product cannot be computed.
  std::string Prepare() {
    a_ = Upload(RandomArray<In>(shape_.m * shape_.k, 1));
    b_ = Upload(RandomArray<In>(shape_.k * shape_.n, 2));
    bias_ = Upload(RandomArray<Out>(shape_.n, 3));
    c_ = CudaBuffer(shape_.m * shape_.n * sizeof(Out));
    workspace_ = CudaBuffer(kBareWorkspaceBytes);
    if (!a_ || !b_ || !bias_ || !c_ || !workspace_)
      return "the device has too little free memory for this check";
    if (!bare_.Choose(shape_, TypeOf<In>(), TypeOf<Out>(), bias_.data())) {
      return "cuBLASLt has no algorithm for it";
    }
    return "";
  }

  // As training does it: looks up the plan for each product.
  bool QueueByLibrary() {
    const kernels::MatmulOperands<In, Out> operands = {.a = a_.template as<In>(),
                                                       .b = b_.template as<In>(),
                                                       .bias = bias_.template as<Out>(),
                                                       .c = c_.template as<Out>()};
    const kernels::MatmulPlan* plan = nullptr;
    return library_.Plan(shape_, operands, &plan) == Status::kOk &&
           library_.Run(shape_, *plan, operands, workspace_.data(), workspace_.bytes(), nullptr) ==
               Status::kOk;
  }
  bool QueueBare() { return bare_.Queue(a_.data(), b_.data(), c_.data(), workspace_.data()); }
  bool QueueOwn() {
    return kernels::MatmulCuda<In, Out>(shape_, 1.0F, a_.template as<In>(), b_.template as<In>(),
                                        bias_.template as<Out>(), c_.template as<Out>(),
                                        nullptr) == Status::kOk;
  }

  // The result of `queue` in C; empty if it was refused.
  std::vector<Out> Result(const Call& queue) {
    std::vector<Out> values(shape_.m * shape_.n);
    const size_t bytes = values.size() * sizeof(Out);
    if (!CudaFill(&c_, 0xFF) || !queue() || !c_.CopyTo(values.data(), bytes)) values.clear();
    return values;
  }

 private:
  const MatmulShape shape_;
  kernels::MatmulLibrary& library_;
  BareLoop bare_;
  CudaBuffer a_, b_, bias_, c_, workspace_;
};

// Allows for rounding of the result, and for sums in another order.
template <typename Out>
constexpr double kTolerance = std::is_same_v<Out, float> ? 1e-4 : 1e-2;

}  // namespace

std::unique_ptr<ProductTimer> ProductTimer::Create(std::string* reason) {
  const gpu::DriverApi* const driver = gpu::ProcessDriver(reason);
  int version = 0;
  if (driver == nullptr || driver->driver_get_version(&version) != CUDA_SUCCESS) return nullptr;
  std::unique_ptr<ProductTimer> timer(new ProductTimer);
  timer->library_ = kernels::MatmulLibrary::Load(version, reason);
  if (timer->library_ == nullptr || !gpu::LoadCublasLtApi(version, &timer->api_, reason)) {
    return nullptr;
  }
  const LtStatus status = timer->api_.create(&timer->handle_);
  if (status == LtStatus::kSuccess) return timer;
  *reason = timer->api_.status_string(status);
  return nullptr;
}

ProductTimer::~ProductTimer() {
  if (handle_ != nullptr) api_.destroy(handle_);
}

template <typename In, typename Out>
void ProductTimer::TimeAs(bool judged, ProductTiming* timing) {
  ProductComparison<In, Out> trio(timing->product.shape, library_.get(), api_, handle_);
  const Call by_library = [&] { return trio.QueueByLibrary(); };
  const Call bare = [&] { return trio.QueueBare(); };
  const Call own = [&] { return trio.QueueOwn(); };
  timing->detail = trio.Prepare();
  if (!timing->detail.empty()) return;
  const std::vector<Out> expected = trio.Result(own);
  if (expected.empty()) {
    timing->detail = "our kernel was refused: " + kernels::cuda::LastRefusal();
    return;
  }
  for (const Call& queue : {by_library, bare}) {
    const std::vector<Out> found = trio.Result(queue);
    timing->detail = found.empty() ? "cuBLASLt refused it: " + library_->last_refusal()
                                   : ProductDifference(found, expected, kTolerance<Out>);
    if (!timing->detail.empty()) return;
  }
  const double seconds = judged ? kJudgedSeconds : kShortSeconds;
  const double operations = timing->product.operations();
  std::vector<double> library_rates;
  std::vector<double> bare_rates;
  for (int round = 0; round < kRounds; ++round) {
    library_rates.push_back(operations * CallsPerSecond(by_library, seconds));
    bare_rates.push_back(operations * CallsPerSecond(bare, seconds));
  }
  timing->own_kernel = operations * CallsPerSecond(own, seconds);
  JudgeRounds(library_rates, bare_rates, judged, timing);
}

ProductTiming ProductTimer::Time(const TimedProduct& product, bool judged) {
  ProductTiming timing;
  timing.product = product;
  switch (product.types) {
    case ProductTypes::kBf16:
      TimeAs<BFloat16, BFloat16>(judged, &timing);
      break;
    case ProductTypes::kBf16ToFp32:
      TimeAs<BFloat16, float>(judged, &timing);
      break;
    case ProductTypes::kFp32:
      TimeAs<float, float>(judged, &timing);
      break;
  }
  return timing;
}

}  // namespace geminid::kernel_check
