// Products through cuBLASLt, on its double. Compares results with double precision, and checks
// which calls the library gets and which not.
#include "kernels/model/matmul/matmul_library_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): setenv

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gpu/driver_api.h"
#include "gpu/library_search.h"
#include "tests/gpu/double/node.h"

namespace geminid::kernels {
namespace {

using ::testing::HasSubstr;

constexpr int kDriverVersion = 13000;
constexpr uint64_t kMemoryBytes = uint64_t{16} << 20;

// A process has one driver, so all tests share one context.
class Device {
 public:
  static Device& Get() {
    static auto* const device = new Device;
    return *device;
  }
  const gpu::DriverApi& api() const { return *api_; }
  CUstream stream() const { return stream_; }
  std::byte* memory() const { return reinterpret_cast<std::byte*>(memory_); }
  gpu_double::Node& node() { return node_; }

 private:
  Device() {
    std::string error;
    api_ = gpu::ProcessDriver(&error);
    EXPECT_NE(api_, nullptr) << error;
    EXPECT_EQ(api_->primary_ctx_retain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(api_->ctx_set_current(context_), CUDA_SUCCESS);
    EXPECT_EQ(api_->stream_create(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(api_->mem_alloc(&memory_, kMemoryBytes), CUDA_SUCCESS);
  }
  gpu_double::Node node_{{.libcuda = GEMINID_CUDA_DOUBLE,
                          .libnvml = GEMINID_NVML_DOUBLE,
                          .libcublaslt = GEMINID_CUBLASLT_DOUBLE}};
  const gpu::DriverApi* api_ = nullptr;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

template <typename T>
T From(double value) {
  if constexpr (std::is_same_v<T, float>) return static_cast<float>(value);
  if constexpr (!std::is_same_v<T, float>) return T::FromFloat(static_cast<float>(value));
}
template <typename T>
double ToDouble(T value) {
  if constexpr (std::is_same_v<T, float>) return value;
  if constexpr (!std::is_same_v<T, float>) return value.ToFloat();
}
// Half a unit in the last place, relative.
template <typename T>
constexpr double kRounding = std::is_same_v<T, float>      ? 0x1p-24
                             : std::is_same_v<T, BFloat16> ? 0x1p-8
                                                           : 0x1p-11;

// A product on the device, with its operands at chosen places of the memory.
template <typename In, typename Out>
class Product {
 public:
  explicit Product(const MatmulShape& shape, double scale = 1) : shape_(shape), scale_(scale) {
    std::mt19937_64 random(shape.m * 1000003 + shape.n * 1009 + shape.k);
    std::uniform_real_distribution<double> value(-1, 1);
    Fill(&a_, shape.m * shape.k, random, value);
    Fill(&b_, shape.k * shape.n, random, value);
    Fill(&bias_, shape.n, random, value);
    Fill(&c_, shape.m * shape.n, random, value);
  }

  // Returns the result. All operands are moved by `shift` elements.
  std::vector<Out> Run(MatmulLibrary* library, size_t shift = 0) {
    Device& device = Device::Get();
    std::byte* next = device.memory();
    const auto place = [&](const auto& values) {
      using T = typename std::remove_reference_t<decltype(values)>::value_type;
      T* const at = reinterpret_cast<T*>(next) + shift;
      next += kMemoryBytes / 8;
      EXPECT_EQ(device.api().memcpy_htod_async(reinterpret_cast<CUdeviceptr>(at), values.data(),
                                               values.size() * sizeof(T), device.stream()),
                CUDA_SUCCESS);
      return at;
    };
    const MatmulOperands<In, Out> operands = {.scale = static_cast<float>(scale_),
                                              .a = place(a_),
                                              .b = place(b_),
                                              .bias = place(bias_),
                                              .c = place(c_)};
    const MatmulPlan* plan = nullptr;
    EXPECT_EQ(library->Plan(shape_, operands, &plan), Status::kOk);
    EXPECT_EQ(library->Run(shape_, *plan, operands, next, plan->workspace_bytes, device.stream()),
              Status::kOk)
        << library->last_refusal();
    std::vector<Out> result(c_.size());
    EXPECT_EQ(
        device.api().memcpy_dtoh_async(result.data(), reinterpret_cast<CUdeviceptr>(operands.c),
                                       result.size() * sizeof(Out), device.stream()),
        CUDA_SUCCESS);
    EXPECT_EQ(device.api().stream_synchronize(device.stream()), CUDA_SUCCESS);
    return result;
  }

  void ExpectRight(const std::vector<Out>& result) const {
    for (size_t row = 0; row < shape_.m; ++row) {
      for (size_t col = 0; col < shape_.n; ++col) {
        double sum = 0;
        double size = 0;
        for (size_t e = 0; e < shape_.k; ++e) {
          const bool a_across = shape_.transpose_a == Transpose::kYes;
          const bool b_across = shape_.transpose_b == Transpose::kYes;
          const double x = ToDouble(a_[a_across ? e * shape_.m + row : row * shape_.k + e]);
          const double y = ToDouble(b_[b_across ? col * shape_.k + e : e * shape_.n + col]);
          sum += x * y;
          size += std::abs(x * y);
        }
        const size_t at = row * shape_.n + col;
        sum *= scale_;
        if (shape_.bias) sum += ToDouble(bias_[col]);
        if (shape_.accumulate) sum += ToDouble(c_[at]);
        const double k = static_cast<double>(shape_.k) + 4;
        const double tolerance =
            kRounding<Out> * std::abs(sum) + k * 0x1p-24 * (std::abs(scale_) * size + 2);
        ASSERT_NEAR(ToDouble(result[at]), sum, tolerance) << row << ", " << col;
      }
    }
  }

 private:
  template <typename T>
  static void Fill(std::vector<T>* to, size_t count, std::mt19937_64& random,
                   std::uniform_real_distribution<double>& value) {
    for (size_t i = 0; i < count; ++i) to->push_back(From<T>(value(random)));
  }
  const MatmulShape shape_;
  const double scale_;
  std::vector<In> a_, b_;
  std::vector<Out> bias_, c_;
};

class MatmulLibraryTest : public ::testing::Test {
 protected:
  MatmulLibraryTest() : node_(Device::Get().node()) {
    std::string error;
    library_ = MatmulLibrary::Load(kDriverVersion, &error);
    EXPECT_NE(library_, nullptr) << error;
  }
  ~MatmulLibraryTest() override { node_.ClearFaults(); }

  template <typename In, typename Out>
  void ExpectEveryShapeIsRight() {
    for (const Transpose a : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose b : {Transpose::kNo, Transpose::kYes}) {
        for (const bool extra : {false, true}) {
          for (const size_t k : {1u, 7u, 96u}) {
            Product<In, Out> product({.m = 5,
                                      .n = 11,
                                      .k = k,
                                      .transpose_a = a,
                                      .transpose_b = b,
                                      .accumulate = extra,
                                      .bias = extra},
                                     extra ? 0.5 : 1);
            product.ExpectRight(product.Run(library_.get()));
          }
        }
      }
    }
  }

  gpu_double::Node& node_;
  std::unique_ptr<MatmulLibrary> library_;
};

TEST_F(MatmulLibraryTest, EveryTypeAndTranspose_IsRightToItsRounding) {
  ExpectEveryShapeIsRight<float, float>();
  ExpectEveryShapeIsRight<BFloat16, BFloat16>();
  ExpectEveryShapeIsRight<BFloat16, float>();
}

TEST_F(MatmulLibraryTest, Shape_IsAskedForOnce) {
  const uint64_t before = node_.calls("cublasLtMatmulAlgoGetHeuristic");
  Product<float, float> product({.m = 8, .n = 8, .k = 64});
  const std::vector<float> first = product.Run(library_.get());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(product.Run(library_.get()), first);
  EXPECT_EQ(node_.calls("cublasLtMatmulAlgoGetHeuristic"), before + 1);
  EXPECT_EQ(library_->shapes(), 1u);
  Product<BFloat16, BFloat16>({.m = 8, .n = 8, .k = 64}).Run(library_.get());
  Product<float, float>({.m = 8, .n = 8, .k = 65}).Run(library_.get());
  EXPECT_EQ(library_->shapes(), 3u);
}

// All multiples of 16 bytes are one class, because arenas place the same tensor at many offsets.
TEST_F(MatmulLibraryTest, PlacesAlignedTo16Bytes_HaveTheSameBitsAndPlan) {
  Product<float, float> product({.m = 16, .n = 24, .k = 160, .bias = true});
  const std::vector<float> first = product.Run(library_.get());
  for (const size_t shift : {4u, 8u, 20u, 64u}) {
    EXPECT_EQ(product.Run(library_.get(), shift), first) << shift;
  }
  EXPECT_EQ(library_->shapes(), 1u);
  // An alignment of 4 bytes has a plan of its own.
  product.ExpectRight(product.Run(library_.get(), /*shift=*/1));
  EXPECT_EQ(library_->shapes(), 2u);
}

TEST_F(MatmulLibraryTest, Strides_LeaveWhatLiesBetweenAlone) {
  Device& device = Device::Get();
  constexpr size_t kRows = 3;
  constexpr size_t kStride = 8;
  const std::vector<float> ones(kRows * kStride, 1.0F);
  const auto address = reinterpret_cast<CUdeviceptr>(device.memory());
  ASSERT_EQ(device.api().memcpy_htod_async(address, ones.data(), ones.size() * sizeof(float),
                                           device.stream()),
            CUDA_SUCCESS);
  auto* const a = reinterpret_cast<float*>(device.memory());
  auto* const c = reinterpret_cast<float*>(device.memory() + 4096);
  ASSERT_EQ(device.api().memset_d8_async(reinterpret_cast<CUdeviceptr>(c), 0,
                                         ones.size() * sizeof(float), device.stream()),
            CUDA_SUCCESS);
  const MatmulShape shape = {
      .m = kRows, .n = 2, .k = 3, .a_stride = kStride, .b_stride = kStride, .c_stride = kStride};
  const MatmulOperands<float, float> operands = {.a = a, .b = a, .c = c};
  const MatmulPlan* plan = nullptr;
  ASSERT_EQ(library_->Plan(shape, operands, &plan), Status::kOk);
  ASSERT_EQ(library_->Run(shape, *plan, operands, device.memory() + 8192, plan->workspace_bytes,
                          device.stream()),
            Status::kOk);
  std::vector<float> result(ones.size());
  ASSERT_EQ(device.api().memcpy_dtoh_async(result.data(), reinterpret_cast<CUdeviceptr>(c),
                                           result.size() * sizeof(float), device.stream()),
            CUDA_SUCCESS);
  ASSERT_EQ(device.api().stream_synchronize(device.stream()), CUDA_SUCCESS);
  for (size_t i = 0; i < result.size(); ++i) EXPECT_EQ(result[i], i % kStride < 2 ? 3.0F : 0.0F);
}

TEST_F(MatmulLibraryTest, ShapeWithoutAnAlgorithm_IsUnsupportedAndAskedForOnce) {
  node_.FailLibrary("cublasLtMatmulAlgoGetHeuristic",
                    static_cast<int>(gpu::LtStatus::kNotSupported));
  const MatmulShape shape = {.m = 2, .n = 2, .k = 2};
  auto* const memory = reinterpret_cast<float*>(Device::Get().memory());
  const MatmulOperands<float, float> operands = {.a = memory, .b = memory, .c = memory + 64};
  const MatmulPlan* plan = nullptr;
  EXPECT_EQ(library_->Plan(shape, operands, &plan), Status::kUnsupported);
  EXPECT_EQ(library_->Plan(shape, operands, &plan), Status::kUnsupported);
  EXPECT_EQ(library_->unsupported_shapes(), 1u);
  EXPECT_THAT(library_->last_refusal(), HasSubstr("cublasLtMatmulAlgoGetHeuristic"));
}

TEST_F(MatmulLibraryTest, RefusedProduct_SaysWhy) {
  const MatmulShape shape = {.m = 2, .n = 2, .k = 2};
  auto* const memory = reinterpret_cast<float*>(Device::Get().memory());
  const MatmulOperands<float, float> operands = {.a = memory, .b = memory, .c = memory + 64};
  const MatmulPlan* plan = nullptr;
  ASSERT_EQ(library_->Plan(shape, operands, &plan), Status::kOk);
  node_.FailLibrary("cublasLtMatmul", static_cast<int>(gpu::LtStatus::kExecutionFailed));
  EXPECT_EQ(library_->Run(shape, *plan, operands, memory + 128, plan->workspace_bytes,
                          Device::Get().stream()),
            Status::kUnsupported);
  EXPECT_EQ(library_->last_refusal(), "cublasLtMatmul: the function failed to launch on the GPU");
}

TEST_F(MatmulLibraryTest, WrongArguments_AreThoseOfMatmul) {
  auto* const memory = reinterpret_cast<float*>(Device::Get().memory());
  const MatmulPlan* plan = nullptr;
  const MatmulShape shape = {.m = 2, .n = 2, .k = 2};
  MatmulOperands<float, float> operands = {.a = memory, .b = memory, .c = memory};
  EXPECT_EQ(library_->Plan(shape, operands, &plan), Status::kOverlap);
  operands.c = nullptr;
  EXPECT_EQ(library_->Plan(shape, operands, &plan), Status::kNullPointer);
  operands.c = memory + 64;
  EXPECT_EQ(library_->Plan({.m = 0, .n = 2, .k = 2}, operands, &plan), Status::kInvalidShape);
  EXPECT_EQ(library_->Plan({.m = 2, .n = 2, .k = 2, .c_stride = 1}, operands, &plan),
            Status::kInvalidShape);
  EXPECT_EQ(library_->shapes(), 0u);
}

TEST_F(MatmulLibraryTest, Name_HasVersionAndFile) {
  EXPECT_EQ(library_->Name(), "cuBLASLt 13.1.0 (" GEMINID_CUBLASLT_DOUBLE ")");
}

TEST_F(MatmulLibraryTest, LibraryThatDoesNotStart_IsNoneAndSaysSo) {
  node_.FailLibrary("cublasLtCreate", static_cast<int>(gpu::LtStatus::kNotInitialized));
  std::string error;
  EXPECT_EQ(MatmulLibrary::Load(kDriverVersion, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("does not start: the library was not initialized"));
}

}  // namespace
}  // namespace geminid::kernels
