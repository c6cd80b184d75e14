// cuDNN's graph API, which has attention as one kernel, as a table of functions that are loaded at
// run time: nothing of it is linked. The table has only the functions that the project calls.
//
// The library's headers need the CUDA runtime's, so the types are our own; a test compares them
// with cudnn.h where that is installed. Their values have not changed within cuDNN 9. This header
// does not need Abseil.
#ifndef GEMINID_GPU_CUDNN_API_H_
#define GEMINID_GPU_CUDNN_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "gpu/driver_api.h"

namespace geminid::gpu {

using DnnHandle = struct DnnHandleTag*;
using DnnDescriptor = void*;  // cudnnBackendDescriptor_t

// The thousands of an error are its class; the rest is detail.
enum class DnnStatus : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kNotSupported = 3000,
  kInternalError = 4000,
  kExecutionFailed = 5000,
};

enum class DnnKind : int {  // cudnnBackendDescriptorType_t
  kPointwise = 0,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristic = 4,
  kExecutionPlan = 5,
  kPointwiseOperation = 13,
  kGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kDeviceProperties = 38,  // from 9.8 on
};

enum class DnnAttribute : int {  // cudnnBackendAttributeName_t
  kPointwiseMode = 0,
  kPointwiseComputeType = 1,
  kPointwiseAxis = 9,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kHeuristicDeviceProperties = 204,
  kConfigEngine = 300,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceBytes = 402,
  kPlanDeviceProperties = 407,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorIsVirtual = 907,
  kTensorIsByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineIndex = 1301,
  kEngineNotes = 1303,
  kMatmulComputeType = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionComputeType = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescriptor = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDevicePropertiesJson = 2702,
};

enum class DnnType : int {  // of an attribute: cudnnBackendAttributeType_t
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kPointer = 6,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReductionOperator = 18,
  kChar = 24,
};

enum class DnnData : int { kFp32 = 0, kInt32 = 4, kBf16 = 9, kBoolean = 11 };  // cudnnDataType_t
enum class DnnReduce : int { kAdd = 0, kMax = 3 };                    // cudnnReduceTensorOp_t
enum class DnnHeuristic : int { kFallback = 2, kA = 3 };              // cudnnBackendHeurMode_t
enum class DnnNote : int { kTensorCore = 0, kNondeterministic = 4 };  // cudnnBackendNumericalNote_t
inline constexpr int64_t kDnnNotes = 10;

enum class DnnPointwise : int {  // cudnnPointwiseMode_t
  kMul = 1,
  kAdd = 0,
  kDiv = 6,
  kSub = 9,
  kExp = 13,
  kLog = 15,
  kGreaterOrEqual = 303,
  kIndex = 501,   // of an axis
  kSelect = 601,  // T ? X : B
};

// One line per function: member, name in the library, parameters.
#define GEMINID_CUDNN_FUNCTIONS(X)                                                                 \
  X(create, "cudnnCreate", (DnnHandle*))                                                           \
  X(destroy, "cudnnDestroy", (DnnHandle))                                                          \
  X(set_stream, "cudnnSetStream", (DnnHandle, CUstream))                                           \
  X(descriptor_create, "cudnnBackendCreateDescriptor", (DnnKind, DnnDescriptor*))                  \
  X(descriptor_destroy, "cudnnBackendDestroyDescriptor", (DnnDescriptor))                          \
  X(set, "cudnnBackendSetAttribute", (DnnDescriptor, DnnAttribute, DnnType, int64_t, const void*)) \
  X(get, "cudnnBackendGetAttribute",                                                               \
    (DnnDescriptor, DnnAttribute, DnnType, int64_t, int64_t*, void*))                              \
  X(finalize, "cudnnBackendFinalize", (DnnDescriptor))                                             \
  X(execute, "cudnnBackendExecute", (DnnHandle, DnnDescriptor, DnnDescriptor))

struct CudnnApi {
#define GEMINID_MEMBER(member, name, parameters) DnnStatus(*member) parameters = nullptr;
  GEMINID_CUDNN_FUNCTIONS(GEMINID_MEMBER)
#undef GEMINID_MEMBER
  size_t (*version)() = nullptr;  // 91900 is 9.19.0
  const char* (*status_string)(DnnStatus) = nullptr;
  std::string path;  // of the library's file
};

// Names the library's file, or "none", instead of the search (gpu/library_search.h).
inline constexpr char kCudnnPathVariable[] = "GEMINID_LIBCUDNN";

// Older versions compute wrong gradients, or lack features that are used here.
inline constexpr size_t kOldestCudnn = 91002;

// Fills the table. False, with `error` set, if there is no library, it lacks a function, or it is
// older than kOldestCudnn. Makes no handle.
bool LoadCudnnApi(CudnnApi* api, std::string* error);

// "9.19.0".
std::string CudnnVersion(size_t version);

}  // namespace geminid::gpu

#endif  // GEMINID_GPU_CUDNN_API_H_
