// The behaviour of cuBLASLt that the project relies on: on the double or, with --real-driver, on
// the machine's own library and GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "gpu/cublaslt_api.h"
#include "tests/gpu/conformance_fixture.h"

namespace geminid::gpu {
namespace {

constexpr uint64_t kBytes = uint64_t{2} << 20;  // of device memory
constexpr uint32_t kAlignment = 16;

#define EXPECT_LT_OK(call) EXPECT_EQ(call, LtStatus::kSuccess) << #call

// C[m,n] = A[m,k] B[k,n] in fp32, column-major and dense, with a handle and device memory for it.
class CublasLtConformance : public DriverConformance {
 protected:
  static constexpr uint64_t kRows = 24;
  static constexpr uint64_t kCols = 42;
  static constexpr uint64_t kDepth = 72;

  void SetUp() override {
    DriverConformance::SetUp();
    int version = 0;
    EXPECT_CU_OK(api_.driver_get_version(&version));
    // The double's driver is older than its cuBLASLt requires.
    std::string error;
    if (!LoadCublasLtApi(std::max(version, 13000), &lt_, &error)) GTEST_SKIP() << error;
    ASSERT_EQ(lt_.create(&handle_), LtStatus::kSuccess);
    memory_ = Create(kBytes);
    base_ = MapWhole(memory_, kBytes);
    EXPECT_LT_OK(lt_.matmul_create(&product_, LtCompute::kFp32, LtType::kFp32));
    EXPECT_LT_OK(lt_.layout_create(&a_, LtType::kFp32, kRows, kDepth, kRows));
    EXPECT_LT_OK(lt_.layout_create(&b_, LtType::kFp32, kDepth, kCols, kDepth));
    EXPECT_LT_OK(lt_.layout_create(&c_, LtType::kFp32, kRows, kCols, kRows));
    EXPECT_LT_OK(lt_.preference_create(&preference_));
  }
  void TearDown() override {
    if (handle_ != nullptr) {
      Synchronize();
      lt_.preference_destroy(preference_);
      for (const LtLayout layout : {a_, b_, c_}) lt_.layout_destroy(layout);
      lt_.matmul_destroy(product_);
      EXPECT_LT_OK(lt_.destroy(handle_));
      Unmap(base_, kBytes);
      EXPECT_CU_OK(api_.mem_release(memory_));
    }
    DriverConformance::TearDown();
  }

  void* At(uint64_t offset) const { return reinterpret_cast<void*>(base_ + offset); }
  void* a() const { return At(0); }
  void* b() const { return At(uint64_t{64} << 10); }
  void* c() const { return At(uint64_t{128} << 10); }
  void* bias() const { return At(uint64_t{192} << 10); }
  void* workspace() const { return At(uint64_t{256} << 10); }
  static constexpr uint64_t kWorkspaceBytes = uint64_t{1} << 20;

  void Write(void* to, const std::vector<float>& values) const {
    EXPECT_CU_OK(api_.memcpy_htod_async(reinterpret_cast<CUdeviceptr>(to), values.data(),
                                        values.size() * sizeof(float), stream_));
    Synchronize();
  }
  std::vector<float> ReadFloats(const void* from, size_t count) const {
    std::vector<float> values(count);
    EXPECT_CU_OK(api_.memcpy_dtoh_async(values.data(), reinterpret_cast<CUdeviceptr>(from),
                                        count * sizeof(float), stream_));
    Synchronize();
    return values;
  }

  void Prefer(uint64_t workspace_bytes) const {
    EXPECT_LT_OK(lt_.preference_set(preference_, LtPreferenceAttribute::kMaxWorkspaceBytes,
                                    &workspace_bytes, sizeof(workspace_bytes)));
    const uint32_t reductions = kLtReductionComputeType;
    EXPECT_LT_OK(lt_.preference_set(preference_, LtPreferenceAttribute::kReductionMask, &reductions,
                                    sizeof(reductions)));
    for (const auto operand :
         {LtPreferenceAttribute::kAlignmentA, LtPreferenceAttribute::kAlignmentB,
          LtPreferenceAttribute::kAlignmentC, LtPreferenceAttribute::kAlignmentD}) {
      EXPECT_LT_OK(lt_.preference_set(preference_, operand, &kAlignment, sizeof(kAlignment)));
    }
  }
  LtHeuristic Choose(uint64_t workspace_bytes = kWorkspaceBytes) const {
    Prefer(workspace_bytes);
    LtHeuristic answer = {};
    int count = 0;
    EXPECT_LT_OK(lt_.heuristic(handle_, product_, a_, b_, c_, c_, preference_, 1, &answer, &count));
    EXPECT_EQ(count, 1);
    EXPECT_LT_OK(answer.state);
    EXPECT_LE(answer.workspace_bytes, workspace_bytes);
    return answer;
  }
  LtStatus Multiply(const LtHeuristic& choice, float alpha = 1, float beta = 0) const {
    return lt_.matmul(handle_, product_, &alpha, a(), a_, b(), b_, &beta, c(), c_, c(), c_,
                      &choice.algorithm, workspace(), choice.workspace_bytes, stream_);
  }

  // Small whole numbers, so that every order of sums has the same result.
  static std::vector<float> Numbers(size_t count, int seed) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(static_cast<int>((i * 7 + static_cast<size_t>(seed)) % 9) - 4);
    }
    return values;
  }
  static float Expected(const std::vector<float>& a, const std::vector<float>& b, uint64_t row,
                        uint64_t col) {
    float sum = 0;
    for (uint64_t e = 0; e < kDepth; ++e) sum += a[e * kRows + row] * b[col * kDepth + e];
    return sum;
  }

  CublasLtApi lt_;
  LtHandle handle_ = nullptr;
  CUmemGenericAllocationHandle memory_ = 0;
  CUdeviceptr base_ = 0;
  LtMatmul product_ = nullptr;
  LtLayout a_ = nullptr;
  LtLayout b_ = nullptr;
  LtLayout c_ = nullptr;
  LtPreference preference_ = nullptr;
};

TEST_F(CublasLtConformance, Product_HasAlphaBetaAndBias) {
  const std::vector<float> a = Numbers(kRows * kDepth, 1);
  const std::vector<float> b = Numbers(kDepth * kCols, 2);
  const std::vector<float> old = Numbers(kRows * kCols, 3);
  const std::vector<float> bias_of_rows = Numbers(kRows, 4);
  Write(this->a(), a);
  Write(this->b(), b);
  Write(c(), old);
  Write(bias(), bias_of_rows);
  const LtEpilogue epilogue = LtEpilogue::kBias;
  const void* const pointer = bias();
  EXPECT_LT_OK(lt_.matmul_set(product_, LtMatmulAttribute::kEpilogue, &epilogue, sizeof(epilogue)));
  EXPECT_LT_OK(
      lt_.matmul_set(product_, LtMatmulAttribute::kBiasPointer, &pointer, sizeof(pointer)));
  EXPECT_LT_OK(Multiply(Choose(), /*alpha=*/2, /*beta=*/1));
  const std::vector<float> result = ReadFloats(c(), kRows * kCols);
  for (uint64_t col = 0; col < kCols; ++col) {
    for (uint64_t row = 0; row < kRows; ++row) {
      const uint64_t i = col * kRows + row;
      ASSERT_EQ(result[i], 2 * Expected(a, b, row, col) + old[i] + bias_of_rows[row]);
    }
  }
}

TEST_F(CublasLtConformance, TransposedFactors_AreReadAcross) {
  const std::vector<float> a = Numbers(kRows * kDepth, 5);
  const std::vector<float> b = Numbers(kDepth * kCols, 6);
  std::vector<float> across(a.size());
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t e = 0; e < kDepth; ++e) across[row * kDepth + e] = a[e * kRows + row];
  }
  Write(this->a(), across);
  Write(this->b(), b);
  lt_.layout_destroy(a_);
  EXPECT_LT_OK(lt_.layout_create(&a_, LtType::kFp32, kDepth, kRows, kDepth));
  const LtTranspose transpose = LtTranspose::kYes;
  EXPECT_LT_OK(
      lt_.matmul_set(product_, LtMatmulAttribute::kTransposeA, &transpose, sizeof(transpose)));
  EXPECT_LT_OK(Multiply(Choose()));
  const std::vector<float> result = ReadFloats(c(), kRows * kCols);
  for (uint64_t i = 0; i < result.size(); ++i) {
    ASSERT_EQ(result[i], Expected(a, b, i % kRows, i / kRows));
  }
}

// Fractions, whose sums round. A NaN in the old result must not come through either.
TEST_F(CublasLtConformance, SameProductAgain_HasTheSameBitsAndDoesNotReadTheOldResult) {
  std::vector<float> a = Numbers(kRows * kDepth, 1);
  std::vector<float> b = Numbers(kDepth * kCols, 2);
  for (float& value : a) value /= 7;
  for (float& value : b) value /= 11;
  Write(this->a(), a);
  Write(this->b(), b);
  const LtHeuristic choice = Choose();
  EXPECT_LT_OK(Multiply(choice));
  const std::vector<float> first = ReadFloats(c(), kRows * kCols);
  Write(c(), std::vector<float>(kRows * kCols, NAN));
  EXPECT_LT_OK(Multiply(choice));
  EXPECT_EQ(ReadFloats(c(), kRows * kCols), first);
}

TEST_F(CublasLtConformance, SameQuestionAgain_HasTheSameAnswer) {
  const LtHeuristic first = Choose();
  const LtHeuristic second = Choose();
  for (size_t i = 0; i < std::size(first.algorithm.data); ++i) {
    EXPECT_EQ(first.algorithm.data[i], second.algorithm.data[i]);
  }
  EXPECT_EQ(first.workspace_bytes, second.workspace_bytes);
}

TEST_F(CublasLtConformance, WithoutWorkspace_SomeAlgorithmNeedsNone) {
  Write(a(), Numbers(kRows * kDepth, 1));
  Write(b(), Numbers(kDepth * kCols, 2));
  const LtHeuristic choice = Choose(/*workspace_bytes=*/0);
  EXPECT_EQ(choice.workspace_bytes, 0u);
  EXPECT_LT_OK(Multiply(choice));
}

TEST_F(CublasLtConformance, Product_WaitsForItsStream) {
  Write(b(), Numbers(kDepth * kCols, 2));
  const std::vector<float> a = Numbers(kRows * kDepth, 1);
  PinnedWords words(api_, 1);
  EXPECT_CU_OK(api_.stream_wait_value64(stream_, words.address(), 1, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_CU_OK(
      api_.memset_d32_async(reinterpret_cast<CUdeviceptr>(this->a()), 0, kRows * kDepth, stream_));
  EXPECT_LT_OK(Multiply(Choose()));
  EXPECT_CU(CUDA_ERROR_NOT_READY, api_.stream_query(stream_));
  words[0] = 1;
  EXPECT_EQ(ReadFloats(c(), kRows * kCols), std::vector<float>(kRows * kCols, 0.0F));
}

TEST_F(CublasLtConformance, QuestionsWithoutSense_AreRefused) {
  Prefer(kWorkspaceBytes);
  LtHeuristic answer = {};
  int count = 0;
  EXPECT_EQ(lt_.heuristic(handle_, product_, a_, b_, c_, c_, preference_, 0, &answer, &count),
            LtStatus::kInvalidValue);
  // A[m,k] A[m,k] has no inner length.
  EXPECT_NE(lt_.heuristic(handle_, product_, a_, a_, c_, c_, preference_, 1, &answer, &count),
            LtStatus::kSuccess);
}

TEST_F(CublasLtConformance, WorkspaceBelowWhatTheAlgorithmNeeds_IsRefused) {
  LtHeuristic choice = Choose();
  if (choice.workspace_bytes == 0) GTEST_SKIP() << "the algorithm needs no workspace";
  --choice.workspace_bytes;
  EXPECT_EQ(Multiply(choice), LtStatus::kInvalidValue);
}

}  // namespace
}  // namespace geminid::gpu
