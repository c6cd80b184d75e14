// libcuda.so.1 of the double: the one symbol through which all functions are found.
#include <cstring>
#include <utility>

#include "tests/gpu/double/calls.h"
#include "tests/gpu/double/functions.h"
#include "tests/gpu/double/node_file.h"
#include "tests/gpu/double/process.h"

namespace geminid::gpu_double {
namespace {

constexpr int kNewerSince = 12080;

constexpr Needs NeedsOf(int function) {
  switch (function) {
    case kIndex_init:
    case kIndex_driver_get_version:
    case kIndex_get_error_name:
    case kIndex_get_error_string:
      return Needs::kNothing;
    case kIndex_device_get_count:
    case kIndex_device_get:
    case kIndex_device_get_name:
    case kIndex_device_get_uuid:
    case kIndex_device_total_mem:
    case kIndex_device_get_attribute:
    case kIndex_device_get_pci_bus_id:
    case kIndex_primary_ctx_retain:
    case kIndex_primary_ctx_release:
    case kIndex_ctx_set_current:
    case kIndex_ctx_push_current:
    case kIndex_ctx_pop_current:
    case kIndex_pointer_get_attribute:
    case kIndex_mem_get_allocation_granularity:
    case kIndex_mem_create:
    case kIndex_mem_release:
    case kIndex_mem_export:
    case kIndex_mem_import:
    case kIndex_mem_address_reserve:
    case kIndex_mem_address_free:
    case kIndex_mem_map:
    case kIndex_mem_unmap:
    case kIndex_mem_set_access:
    case kIndex_library_load_data:
    case kIndex_library_get_kernel:
      return Needs::kInit;
    default:
      return Needs::kContext;
  }
}

template <int kFunction, auto kCall>
struct Gated;
template <int kFunction, class... Arguments, CUresult (*kCall)(Arguments...)>
struct Gated<kFunction, kCall> {
  static CUresult Call(Arguments... arguments) {
    const CUresult result = Gate(kFunction, NeedsOf(kFunction));
    return result != CUDA_SUCCESS ? result : kCall(arguments...);
  }
};

void* const kFunctionAddresses[] = {
#define GEMINID_ADDRESS(member, name, parameters) \
  reinterpret_cast<void*>(&Gated<kIndex_##member, &calls::member>::Call),
    GEMINID_DRIVER_FUNCTIONS(GEMINID_ADDRESS) GEMINID_NEWER_DRIVER_FUNCTIONS(GEMINID_ADDRESS)
#undef GEMINID_ADDRESS
};

bool IsNewer(int function) { return function >= kIndex_memcpy_batch_async; }
bool IsOfDriver(int function) { return function >= 0 && function < kFunctions; }

}  // namespace
}  // namespace geminid::gpu_double

extern "C" __attribute__((visibility("default"))) CUresult cuGetProcAddress_v2(
    const char* symbol, void** function, int version, cuuint64_t /*flags*/,
    CUdriverProcAddressQueryResult* status) {
  using namespace geminid::gpu_double;
  if (symbol == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  const int index = IndexOf(symbol);
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  if (!IsOfDriver(index) || (IsNewer(index) && ThisNode().driver_version < kNewerSince)) {
    found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  } else if (IsNewer(index) && version < kNewerSince) {
    found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
  } else {
    *function = kFunctionAddresses[index];
  }
  if (status != nullptr) *status = found;
  return CUDA_SUCCESS;
}
