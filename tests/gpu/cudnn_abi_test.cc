// Compares our own declarations of cuDNN with its header and with the library, on machines that
// have them. Graphs of operations need no GPU.
#include <gtest/gtest.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): unsetenv

#include <string>

#include "gpu/cudnn_api.h"
#include "gpu/library_search.h"
#include "tests/gpu/same_declarations.h"

#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime_api.h>)
#include <cudnn.h>

#include <type_traits>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // handles, which all versions take

namespace geminid::gpu {
namespace {

SAME_VALUE(CUDNN_STATUS_SUCCESS, DnnStatus::kSuccess);
SAME_VALUE(CUDNN_STATUS_NOT_INITIALIZED, DnnStatus::kNotInitialized);
SAME_VALUE(CUDNN_STATUS_BAD_PARAM, DnnStatus::kBadParam);
SAME_VALUE(CUDNN_STATUS_NOT_SUPPORTED, DnnStatus::kNotSupported);
SAME_VALUE(CUDNN_STATUS_INTERNAL_ERROR, DnnStatus::kInternalError);
SAME_VALUE(CUDNN_STATUS_EXECUTION_FAILED, DnnStatus::kExecutionFailed);
SAME_VALUE(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, DnnKind::kPointwise);
SAME_VALUE(CUDNN_BACKEND_ENGINE_DESCRIPTOR, DnnKind::kEngine);
SAME_VALUE(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, DnnKind::kEngineConfig);
SAME_VALUE(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, DnnKind::kEngineHeuristic);
SAME_VALUE(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, DnnKind::kExecutionPlan);
SAME_VALUE(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, DnnKind::kPointwiseOperation);
SAME_VALUE(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, DnnKind::kGraph);
SAME_VALUE(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, DnnKind::kVariantPack);
SAME_VALUE(CUDNN_BACKEND_TENSOR_DESCRIPTOR, DnnKind::kTensor);
SAME_VALUE(CUDNN_BACKEND_MATMUL_DESCRIPTOR, DnnKind::kMatmul);
SAME_VALUE(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, DnnKind::kMatmulOperation);
SAME_VALUE(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, DnnKind::kReduction);
SAME_VALUE(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, DnnKind::kReductionOperation);
SAME_VALUE(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, DnnKind::kReshapeOperation);
SAME_VALUE(CUDNN_ATTR_POINTWISE_MODE, DnnAttribute::kPointwiseMode);
SAME_VALUE(CUDNN_ATTR_POINTWISE_MATH_PREC, DnnAttribute::kPointwiseComputeType);
SAME_VALUE(CUDNN_ATTR_POINTWISE_AXIS, DnnAttribute::kPointwiseAxis);
SAME_VALUE(CUDNN_ATTR_ENGINEHEUR_MODE, DnnAttribute::kHeuristicMode);
SAME_VALUE(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, DnnAttribute::kHeuristicGraph);
SAME_VALUE(CUDNN_ATTR_ENGINEHEUR_RESULTS, DnnAttribute::kHeuristicResults);
SAME_VALUE(CUDNN_ATTR_ENGINECFG_ENGINE, DnnAttribute::kConfigEngine);
SAME_VALUE(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, DnnAttribute::kPlanHandle);
SAME_VALUE(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, DnnAttribute::kGraphHandle);
SAME_VALUE(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, DnnAttribute::kPlanConfig);
SAME_VALUE(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, DnnAttribute::kPlanWorkspaceBytes);
SAME_VALUE(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, DnnAttribute::kPointwiseDescriptor);
SAME_VALUE(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, DnnAttribute::kPointwiseX);
SAME_VALUE(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, DnnAttribute::kPointwiseB);
SAME_VALUE(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, DnnAttribute::kPointwiseY);
SAME_VALUE(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, DnnAttribute::kPointwiseT);
SAME_VALUE(CUDNN_ATTR_OPERATIONGRAPH_OPS, DnnAttribute::kGraphOperations);
SAME_VALUE(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, DnnAttribute::kTensorAlignment);
SAME_VALUE(CUDNN_ATTR_TENSOR_DATA_TYPE, DnnAttribute::kTensorType);
SAME_VALUE(CUDNN_ATTR_TENSOR_DIMENSIONS, DnnAttribute::kTensorDimensions);
SAME_VALUE(CUDNN_ATTR_TENSOR_STRIDES, DnnAttribute::kTensorStrides);
SAME_VALUE(CUDNN_ATTR_TENSOR_UNIQUE_ID, DnnAttribute::kTensorId);
SAME_VALUE(CUDNN_ATTR_TENSOR_IS_VIRTUAL, DnnAttribute::kTensorIsVirtual);
SAME_VALUE(CUDNN_ATTR_TENSOR_IS_BY_VALUE, DnnAttribute::kTensorIsByValue);
SAME_VALUE(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, DnnAttribute::kPackIds);
SAME_VALUE(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, DnnAttribute::kPackPointers);
SAME_VALUE(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, DnnAttribute::kPackWorkspace);
SAME_VALUE(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, DnnAttribute::kEngineIndex);
SAME_VALUE(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, DnnAttribute::kEngineNotes);
SAME_VALUE(CUDNN_ATTR_MATMUL_COMP_TYPE, DnnAttribute::kMatmulComputeType);
SAME_VALUE(CUDNN_ATTR_OPERATION_MATMUL_ADESC, DnnAttribute::kMatmulA);
SAME_VALUE(CUDNN_ATTR_OPERATION_MATMUL_BDESC, DnnAttribute::kMatmulB);
SAME_VALUE(CUDNN_ATTR_OPERATION_MATMUL_CDESC, DnnAttribute::kMatmulC);
SAME_VALUE(CUDNN_ATTR_OPERATION_MATMUL_DESC, DnnAttribute::kMatmulDescriptor);
SAME_VALUE(CUDNN_ATTR_REDUCTION_OPERATOR, DnnAttribute::kReductionOperator);
SAME_VALUE(CUDNN_ATTR_REDUCTION_COMP_TYPE, DnnAttribute::kReductionComputeType);
SAME_VALUE(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, DnnAttribute::kReductionX);
SAME_VALUE(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, DnnAttribute::kReductionY);
SAME_VALUE(CUDNN_ATTR_OPERATION_REDUCTION_DESC, DnnAttribute::kReductionDescriptor);
SAME_VALUE(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, DnnAttribute::kReshapeX);
SAME_VALUE(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, DnnAttribute::kReshapeY);
SAME_VALUE(CUDNN_TYPE_HANDLE, DnnType::kHandle);
SAME_VALUE(CUDNN_TYPE_DATA_TYPE, DnnType::kDataType);
SAME_VALUE(CUDNN_TYPE_BOOLEAN, DnnType::kBoolean);
SAME_VALUE(CUDNN_TYPE_INT64, DnnType::kInt64);
SAME_VALUE(CUDNN_TYPE_VOID_PTR, DnnType::kPointer);
SAME_VALUE(CUDNN_TYPE_HEUR_MODE, DnnType::kHeuristicMode);
SAME_VALUE(CUDNN_TYPE_NUMERICAL_NOTE, DnnType::kNumericalNote);
SAME_VALUE(CUDNN_TYPE_POINTWISE_MODE, DnnType::kPointwiseMode);
SAME_VALUE(CUDNN_TYPE_BACKEND_DESCRIPTOR, DnnType::kDescriptor);
SAME_VALUE(CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, DnnType::kReductionOperator);
SAME_VALUE(CUDNN_TYPE_CHAR, DnnType::kChar);
SAME_VALUE(CUDNN_DATA_FLOAT, DnnData::kFp32);
SAME_VALUE(CUDNN_DATA_INT32, DnnData::kInt32);
SAME_VALUE(CUDNN_DATA_BFLOAT16, DnnData::kBf16);
SAME_VALUE(CUDNN_DATA_BOOLEAN, DnnData::kBoolean);
SAME_VALUE(CUDNN_REDUCE_TENSOR_ADD, DnnReduce::kAdd);
SAME_VALUE(CUDNN_REDUCE_TENSOR_MAX, DnnReduce::kMax);
SAME_VALUE(CUDNN_HEUR_MODE_FALLBACK, DnnHeuristic::kFallback);
SAME_VALUE(CUDNN_HEUR_MODE_A, DnnHeuristic::kA);
SAME_VALUE(CUDNN_NUMERICAL_NOTE_TENSOR_CORE, DnnNote::kTensorCore);
SAME_VALUE(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, DnnNote::kNondeterministic);
static_assert(kDnnNotes == CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
SAME_VALUE(CUDNN_POINTWISE_ADD, DnnPointwise::kAdd);
SAME_VALUE(CUDNN_POINTWISE_MUL, DnnPointwise::kMul);
SAME_VALUE(CUDNN_POINTWISE_DIV, DnnPointwise::kDiv);
SAME_VALUE(CUDNN_POINTWISE_SUB, DnnPointwise::kSub);
SAME_VALUE(CUDNN_POINTWISE_EXP, DnnPointwise::kExp);
SAME_VALUE(CUDNN_POINTWISE_LOG, DnnPointwise::kLog);
SAME_VALUE(CUDNN_POINTWISE_CMP_GE, DnnPointwise::kGreaterOrEqual);
SAME_VALUE(CUDNN_POINTWISE_GEN_INDEX, DnnPointwise::kIndex);
SAME_VALUE(CUDNN_POINTWISE_BINARY_SELECT, DnnPointwise::kSelect);
#if CUDNN_VERSION >= 90800
SAME_VALUE(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, DnnKind::kDeviceProperties);
SAME_VALUE(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, DnnAttribute::kHeuristicDeviceProperties);
SAME_VALUE(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, DnnAttribute::kPlanDeviceProperties);
SAME_VALUE(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, DnnAttribute::kDevicePropertiesJson);
#endif

#define SAME_CALL(member, function)                                                         \
  static_assert(                                                                            \
      kSameCall<cudnnStatus_t, DnnStatus, decltype(&function), decltype(CudnnApi::member)>, \
      #member)
SAME_CALL(create, cudnnCreate);
SAME_CALL(destroy, cudnnDestroy);
SAME_CALL(set_stream, cudnnSetStream);
SAME_CALL(descriptor_create, cudnnBackendCreateDescriptor);
SAME_CALL(descriptor_destroy, cudnnBackendDestroyDescriptor);
SAME_CALL(set, cudnnBackendSetAttribute);
SAME_CALL(get, cudnnBackendGetAttribute);
SAME_CALL(finalize, cudnnBackendFinalize);
SAME_CALL(execute, cudnnBackendExecute);
static_assert(std::is_same_v<decltype(&cudnnGetVersion), decltype(CudnnApi::version)>);

}  // namespace
}  // namespace geminid::gpu
#endif

namespace geminid::gpu {
namespace {

TEST(MachinesCudnn, Version_IsThatOfItsFile) {
  unsetenv(kCudnnPathVariable);
  CudnnApi api;
  std::string error;
  if (!LoadCudnnApi(&api, &error)) GTEST_SKIP() << error;
  EXPECT_NE(api.path.find("libcudnn.so.9"), std::string::npos) << api.path;
  EXPECT_GE(api.version(), kOldestCudnn) << CudnnVersion(api.version());
}

}  // namespace
}  // namespace geminid::gpu
