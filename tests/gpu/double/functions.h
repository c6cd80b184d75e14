// The functions of the driver and its libraries, numbered in the order of the project's tables.
#ifndef GEMINID_TESTS_GPU_DOUBLE_FUNCTIONS_H_
#define GEMINID_TESTS_GPU_DOUBLE_FUNCTIONS_H_

#include <string_view>

#include "gpu/cublaslt_api.h"
#include "gpu/cudnn_api.h"
#include "gpu/driver_api.h"
#include "gpu/nccl_api.h"
#include "tests/gpu/double/node_file.h"

namespace geminid::gpu_double {

enum FunctionIndex : int {
#define GEMINID_INDEX(member, name, parameters) kIndex_##member,
  GEMINID_DRIVER_FUNCTIONS(GEMINID_INDEX) GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_INDEX)
#undef GEMINID_INDEX
      kFunctions,  // of the driver
#define GEMINID_LT_INDEX(member, name, parameters) kLtIndex_##member,
  kBeforeCublasLt = kFunctions - 1,
  GEMINID_CUBLASLT_FUNCTIONS(GEMINID_LT_INDEX)
#undef GEMINID_LT_INDEX
#define GEMINID_NCCL_INDEX(member, name, parameters) kNcclIndex_##member,
      GEMINID_NCCL_FUNCTIONS(GEMINID_NCCL_INDEX) GEMINID_NEWER_NCCL_FUNCTIONS(GEMINID_NCCL_INDEX)
#undef GEMINID_NCCL_INDEX
#define GEMINID_DNN_INDEX(member, name, parameters) kDnnIndex_##member,
          GEMINID_CUDNN_FUNCTIONS(GEMINID_DNN_INDEX)
#undef GEMINID_DNN_INDEX
              kAllFunctions
};

static_assert(static_cast<int>(kAllFunctions) <= kMostFunctions);

inline constexpr std::string_view kFunctionNames[] = {
#define GEMINID_NAME(member, name, parameters) name,
    GEMINID_DRIVER_FUNCTIONS(GEMINID_NAME) GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_NAME)
        GEMINID_CUBLASLT_FUNCTIONS(GEMINID_NAME) GEMINID_NCCL_FUNCTIONS(GEMINID_NAME)
            GEMINID_NEWER_NCCL_FUNCTIONS(GEMINID_NAME) GEMINID_CUDNN_FUNCTIONS(GEMINID_NAME)
#undef GEMINID_NAME
};

// The number of a function; -1: neither the driver nor its libraries have one of that name.
constexpr int IndexOf(std::string_view name) {
  for (int i = 0; i < kAllFunctions; ++i) {
    if (kFunctionNames[i] == name) return i;
  }
  return -1;
}

}  // namespace geminid::gpu_double

#endif  // GEMINID_TESTS_GPU_DOUBLE_FUNCTIONS_H_
