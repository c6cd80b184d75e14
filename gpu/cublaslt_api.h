// cuBLASLt, CUDA's library of matrix products, as a table of functions that are loaded at run time:
// nothing of it is linked. The table has only the functions that the project calls.
//
// The library's headers need the CUDA runtime's, so the types are our own; a test compares them
// with cublasLt.h where that is installed. They are the same from CUDA 12.0 to 13.0. This header
// does not need Abseil.
#ifndef GEMINID_GPU_CUBLASLT_API_H_
#define GEMINID_GPU_CUBLASLT_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/driver_api.h"

namespace geminid::gpu {

using LtHandle = struct LtHandleTag*;
using LtMatmul = struct LtMatmulTag*;          // cublasLtMatmulDesc_t
using LtLayout = struct LtLayoutTag*;          // cublasLtMatrixLayout_t
using LtPreference = struct LtPreferenceTag*;  // cublasLtMatmulPreference_t

enum class LtStatus : int {
  kSuccess = 0,
  kNotInitialized = 1,
  kAllocFailed = 3,
  kInvalidValue = 7,
  kArchMismatch = 8,
  kMappingError = 11,
  kExecutionFailed = 13,
  kInternalError = 14,
  kNotSupported = 15,
  kLicenseError = 16,
};

enum class LtType : int { kFp32 = 0, kFp16 = 2, kBf16 = 14 };  // cudaDataType_t
enum class LtCompute : int { kFp32 = 68 };                     // cublasComputeType_t
enum class LtTranspose : int32_t { kNo = 0, kYes = 1 };        // cublasOperation_t
enum class LtEpilogue : uint32_t { kDefault = 1, kBias = 4 };

// Bits of a mask.
enum LtReduction : uint32_t {
  kLtReductionNone = 0,
  kLtReductionInPlace = 1,      // partial sums in C's type, in C
  kLtReductionComputeType = 2,  // partial sums in fp32, in the workspace
  kLtReductionOutputType = 4,   // partial sums in C's type, in the workspace
};

enum class LtMatmulAttribute : int {
  kTransposeA = 3,   // LtTranspose
  kTransposeB = 4,   // LtTranspose
  kEpilogue = 7,     // LtEpilogue
  kBiasPointer = 8,  // const void*: of D's type, as long as a column of D
};

enum class LtPreferenceAttribute : int {
  kMaxWorkspaceBytes = 1,  // uint64_t
  kReductionMask = 3,      // uint32_t
  kAlignmentA = 5,         // uint32_t, bytes
  kAlignmentB = 6,
  kAlignmentC = 7,
  kAlignmentD = 8,
};

struct LtAlgorithm {
  uint64_t data[8];
};

struct LtHeuristic {  // cublasLtMatmulHeuristicResult_t
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  LtStatus state;
  float waves;
  int reserved[4];
};

// One line per function: member, name in the library, parameters.
#define GEMINID_CUBLASLT_FUNCTIONS(X)                                                              \
  X(create, "cublasLtCreate", (LtHandle*))                                                         \
  X(destroy, "cublasLtDestroy", (LtHandle))                                                        \
  X(matmul_create, "cublasLtMatmulDescCreate", (LtMatmul*, LtCompute, LtType))                     \
  X(matmul_destroy, "cublasLtMatmulDescDestroy", (LtMatmul))                                       \
  X(matmul_set, "cublasLtMatmulDescSetAttribute",                                                  \
    (LtMatmul, LtMatmulAttribute, const void*, size_t))                                            \
  X(layout_create, "cublasLtMatrixLayoutCreate", (LtLayout*, LtType, uint64_t, uint64_t, int64_t)) \
  X(layout_destroy, "cublasLtMatrixLayoutDestroy", (LtLayout))                                     \
  X(preference_create, "cublasLtMatmulPreferenceCreate", (LtPreference*))                          \
  X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (LtPreference))                         \
  X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                        \
    (LtPreference, LtPreferenceAttribute, const void*, size_t))                                    \
  X(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                   \
    (LtHandle, LtMatmul, LtLayout, LtLayout, LtLayout, LtLayout, LtPreference, int, LtHeuristic*,  \
     int*))                                                                                        \
  X(matmul, "cublasLtMatmul",                                                                      \
    (LtHandle, LtMatmul, const void*, const void*, LtLayout, const void*, LtLayout, const void*,   \
     const void*, LtLayout, void*, LtLayout, const LtAlgorithm*, void*, size_t, CUstream))

struct CublasLtApi {
#define GEMINID_MEMBER(member, name, parameters) LtStatus(*member) parameters = nullptr;
  GEMINID_CUBLASLT_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
  size_t (*version)() = nullptr;  // 130100 is 13.1.0
  const char* (*status_string)(LtStatus) = nullptr;
  std::string path;  // of the library's file
};

// Names the library's file, or "none", instead of the search (gpu/library_search.h).
inline constexpr char kCublasLtPathVariable[] = "GEMINID_LIBCUBLASLT";

// Fills the table from a library that a driver of this version (cuDriverGetVersion) can run. False,
// with `error` set, if there is none or it lacks a function. Makes no handle.
bool LoadCublasLtApi(int driver_version, CublasLtApi* api, std::string* error);

// "13.1.0".
std::string CublasLtVersion(const CublasLtApi& api);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_CUBLASLT_API_H_
