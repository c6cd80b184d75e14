// Compares our own declarations of cuBLASLt with its header and with the library, on machines that
// have them. The library needs no GPU for its descriptors.
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): unsetenv

#include <string>

#include "gpu/cublaslt_api.h"
#include "gpu/library_search.h"
#include "tests/gpu/same_declarations.h"

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

#include <type_traits>

namespace geminid::gpu {
namespace {

SAME_VALUE(CUBLAS_STATUS_SUCCESS, LtStatus::kSuccess);
SAME_VALUE(CUBLAS_STATUS_NOT_INITIALIZED, LtStatus::kNotInitialized);
SAME_VALUE(CUBLAS_STATUS_ALLOC_FAILED, LtStatus::kAllocFailed);
SAME_VALUE(CUBLAS_STATUS_INVALID_VALUE, LtStatus::kInvalidValue);
SAME_VALUE(CUBLAS_STATUS_ARCH_MISMATCH, LtStatus::kArchMismatch);
SAME_VALUE(CUBLAS_STATUS_MAPPING_ERROR, LtStatus::kMappingError);
SAME_VALUE(CUBLAS_STATUS_EXECUTION_FAILED, LtStatus::kExecutionFailed);
SAME_VALUE(CUBLAS_STATUS_INTERNAL_ERROR, LtStatus::kInternalError);
SAME_VALUE(CUBLAS_STATUS_NOT_SUPPORTED, LtStatus::kNotSupported);
SAME_VALUE(CUBLAS_STATUS_LICENSE_ERROR, LtStatus::kLicenseError);
SAME_VALUE(CUDA_R_32F, LtType::kFp32);
SAME_VALUE(CUDA_R_16F, LtType::kFp16);
SAME_VALUE(CUDA_R_16BF, LtType::kBf16);
SAME_VALUE(CUBLAS_COMPUTE_32F, LtCompute::kFp32);
SAME_VALUE(CUBLAS_OP_N, LtTranspose::kNo);
SAME_VALUE(CUBLAS_OP_T, LtTranspose::kYes);
SAME_VALUE(CUBLASLT_EPILOGUE_DEFAULT, LtEpilogue::kDefault);
SAME_VALUE(CUBLASLT_EPILOGUE_BIAS, LtEpilogue::kBias);
SAME_VALUE(CUBLASLT_REDUCTION_SCHEME_NONE, kLtReductionNone);
SAME_VALUE(CUBLASLT_REDUCTION_SCHEME_INPLACE, kLtReductionInPlace);
SAME_VALUE(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, kLtReductionComputeType);
SAME_VALUE(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, kLtReductionOutputType);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSA, LtMatmulAttribute::kTransposeA);
SAME_VALUE(CUBLASLT_MATMUL_DESC_TRANSB, LtMatmulAttribute::kTransposeB);
SAME_VALUE(CUBLASLT_MATMUL_DESC_EPILOGUE, LtMatmulAttribute::kEpilogue);
SAME_VALUE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, LtMatmulAttribute::kBiasPointer);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, LtPreferenceAttribute::kMaxWorkspaceBytes);
SAME_VALUE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, LtPreferenceAttribute::kReductionMask);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, LtPreferenceAttribute::kAlignmentA);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, LtPreferenceAttribute::kAlignmentB);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, LtPreferenceAttribute::kAlignmentC);
SAME_VALUE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, LtPreferenceAttribute::kAlignmentD);

static_assert(sizeof(LtAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(LtHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
#define SAME_PLACE(theirs, ours) \
  static_assert(offsetof(cublasLtMatmulHeuristicResult_t, theirs) == offsetof(LtHeuristic, ours))
SAME_PLACE(algo, algorithm);
SAME_PLACE(workspaceSize, workspace_bytes);
SAME_PLACE(state, state);
SAME_PLACE(wavesCount, waves);

#define SAME_CALL(member, function)                                                            \
  static_assert(                                                                               \
      kSameCall<cublasStatus_t, LtStatus, decltype(&function), decltype(CublasLtApi::member)>, \
      #member)
SAME_CALL(create, cublasLtCreate);
SAME_CALL(destroy, cublasLtDestroy);
SAME_CALL(matmul_create, cublasLtMatmulDescCreate);
SAME_CALL(matmul_destroy, cublasLtMatmulDescDestroy);
SAME_CALL(matmul_set, cublasLtMatmulDescSetAttribute);
SAME_CALL(layout_create, cublasLtMatrixLayoutCreate);
SAME_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
SAME_CALL(preference_create, cublasLtMatmulPreferenceCreate);
SAME_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
SAME_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
SAME_CALL(heuristic, cublasLtMatmulAlgoGetHeuristic);
SAME_CALL(matmul, cublasLtMatmul);
static_assert(std::is_same_v<decltype(&cublasLtGetVersion), decltype(CublasLtApi::version)>);

}  // namespace
}  // namespace geminid::gpu
#endif

namespace geminid::gpu {
namespace {

constexpr int kNewestDriver = 13000;

// The machine's own library, which needs a GPU only for its handle.
class MachinesCublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv(kCublasLtPathVariable);
    std::string error;
    if (!LoadCublasLtApi(kNewestDriver, &api_, &error)) GTEST_SKIP() << error;
  }
  CublasLtApi api_;
};

TEST_F(MachinesCublasLt, Version_IsThatOfItsFile) {
  EXPECT_NE(api_.path.find("libcublasLt.so." + std::to_string(api_.version() / 10000)),
            std::string::npos)
      << api_.path << " " << CublasLtVersion(api_);
}

TEST_F(MachinesCublasLt, DescriptorOfAProduct_TakesAttributesOfTheirSizeAlone) {
  LtMatmul product = nullptr;
  ASSERT_EQ(api_.matmul_create(&product, LtCompute::kFp32, LtType::kFp32), LtStatus::kSuccess);
  const LtTranspose transpose = LtTranspose::kYes;
  const LtEpilogue epilogue = LtEpilogue::kBias;
  const void* const bias = &transpose;
  const auto set = [&](LtMatmulAttribute attribute, const auto& value) {
    EXPECT_EQ(api_.matmul_set(product, attribute, &value, sizeof(value)), LtStatus::kSuccess);
    EXPECT_EQ(api_.matmul_set(product, attribute, &value, 3), LtStatus::kInvalidValue);
    EXPECT_EQ(api_.matmul_set(product, attribute, nullptr, sizeof(value)), LtStatus::kInvalidValue);
  };
  set(LtMatmulAttribute::kTransposeA, transpose);
  set(LtMatmulAttribute::kTransposeB, transpose);
  set(LtMatmulAttribute::kEpilogue, epilogue);
  set(LtMatmulAttribute::kBiasPointer, bias);
  EXPECT_EQ(api_.matmul_destroy(product), LtStatus::kSuccess);
}

TEST_F(MachinesCublasLt, Preference_TakesAttributesOfTheirSizeAlone) {
  LtPreference preference = nullptr;
  ASSERT_EQ(api_.preference_create(&preference), LtStatus::kSuccess);
  const auto set = [&](LtPreferenceAttribute attribute, const auto& value) {
    EXPECT_EQ(api_.preference_set(preference, attribute, &value, sizeof(value)),
              LtStatus::kSuccess);
    EXPECT_EQ(api_.preference_set(preference, attribute, &value, 3), LtStatus::kInvalidValue);
  };
  set(LtPreferenceAttribute::kMaxWorkspaceBytes, uint64_t{1} << 20);
  set(LtPreferenceAttribute::kReductionMask, uint32_t{kLtReductionComputeType});
  for (const auto attribute :
       {LtPreferenceAttribute::kAlignmentA, LtPreferenceAttribute::kAlignmentB,
        LtPreferenceAttribute::kAlignmentC, LtPreferenceAttribute::kAlignmentD}) {
    set(attribute, uint32_t{16});
  }
  EXPECT_EQ(api_.preference_destroy(preference), LtStatus::kSuccess);
}

TEST_F(MachinesCublasLt, Layouts_AreMadeAndEnded) {
  for (const LtType type : {LtType::kFp32, LtType::kFp16, LtType::kBf16}) {
    LtLayout layout = nullptr;
    EXPECT_EQ(api_.layout_create(&layout, type, 4, 5, 4), LtStatus::kSuccess);
    EXPECT_EQ(api_.layout_destroy(layout), LtStatus::kSuccess);
  }
  EXPECT_EQ(api_.layout_create(nullptr, LtType::kFp32, 4, 5, 4), LtStatus::kInvalidValue);
}

}  // namespace
}  // namespace geminid::gpu
