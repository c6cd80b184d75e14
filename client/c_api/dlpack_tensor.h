// The structs of dlpack/dlpack.h, version 1.0, as far as this library fills them. NumPy, PyTorch
// and JAX read this layout.
#ifndef GEMINID_CLIENT_C_API_DLPACK_TENSOR_H_
#define GEMINID_CLIENT_C_API_DLPACK_TENSOR_H_

#include <cstdint>

// NOLINTBEGIN(readability-identifier-naming): the names of DLPack.
struct DLPackVersion {
  uint32_t major, minor;
};
struct DLDevice {
  int32_t device_type;
  int32_t device_id;
};
struct DLDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements
  uint64_t byte_offset;
};
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};
// NOLINTEND(readability-identifier-naming)

namespace geminid::c_api {

inline constexpr DLPackVersion kDlpackVersion = {1, 0};
inline constexpr DLDevice kDlpackHost = {1, 0};  // kDLCPU
enum DlpackTypeCode : uint8_t {
  kDlpackInt = 0,
  kDlpackUint = 1,
  kDlpackFloat = 2,
  kDlpackBfloat = 4
};
inline constexpr uint64_t kDlpackReadOnly = 1;

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_DLPACK_TENSOR_H_
