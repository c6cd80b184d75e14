// Tensors of open operations as DLPack tensors, which keep their operations open.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/dlpack_tensor.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "client/c_api/operation_tensors.h"
#include "geminid/c_api.h"
#include "geminid/c_dlpack.h"
#include "geminid/data_type.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

// A tensor, and what it keeps alive until its deleter is called.
struct Exported {
  DLManagedTensorVersioned tensor = {};
  std::vector<int64_t> shape, strides;
  std::shared_ptr<zero::Operation> open;
};

absl::Status CheckOnHost(const EngineObject& object) {
  if (object.IsOnHost()) return absl::OkStatus();
  return absl::UnimplementedError(
      "DLPack export works on the host device alone; on a GPU take the addresses of "
      "geminid_engine_weight and geminid_engine_gradient");
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * shape[i - 1];
  return strides;
}

DLDataType ToDlpack(zero::DataType type) {
  const auto bits = static_cast<uint8_t>(8 * zero::SizeOf(type));
  switch (type) {
    case zero::DataType::kBFloat16:
      return {kDlpackBfloat, bits, 1};
    case zero::DataType::kInt8:
      return {kDlpackInt, bits, 1};
    case zero::DataType::kUint8:
      return {kDlpackUint, bits, 1};
    default:
      return {kDlpackFloat, bits, 1};
  }
}

void Delete(DLManagedTensorVersioned* self) { delete static_cast<Exported*>(self->manager_ctx); }

DLManagedTensorVersioned* Export(const EngineObject& object, uint32_t parameter,
                                 std::shared_ptr<zero::Operation> open, void* data,
                                 uint64_t flags) {
  auto exported = std::make_unique<Exported>();
  exported->open = std::move(open);
  exported->shape = object.parameters()[parameter].shape;
  exported->strides = RowMajor(exported->shape);
  DLManagedTensorVersioned& tensor = exported->tensor;
  tensor.version = kDlpackVersion;
  tensor.deleter = &Delete;
  tensor.flags = flags;
  tensor.dl_tensor = {.data = data,
                      .device = kDlpackHost,
                      .ndim = static_cast<int32_t>(exported->shape.size()),
                      .dtype = ToDlpack(object.TypeOf(parameter)),
                      .shape = exported->shape.data(),
                      .strides = exported->strides.data(),
                      .byte_offset = 0};
  tensor.manager_ctx = exported.release();
  return &tensor;
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace
using geminid::zero::ParameterId;

geminid_code geminid_engine_export_weight(geminid_engine* engine, uint64_t operation,
                                          uint32_t parameter, DLManagedTensorVersioned** tensor,
                                          geminid_error* error) {
  return OnParameter(
      engine, parameter, error, [&](EngineObject& object, ParameterId id) -> absl::Status {
        GEMINID_RETURN_IF_ERROR(CheckGiven(tensor, "tensor"));
        GEMINID_RETURN_IF_ERROR(CheckOnHost(object));
        GEMINID_ASSIGN_OR_RETURN(auto open, object.KeepOpen(operation));
        GEMINID_ASSIGN_OR_RETURN(const std::byte* const weight, WeightOf(*open, operation, id));
        *tensor = Export(object, parameter, std::move(open), const_cast<std::byte*>(weight),
                         kDlpackReadOnly);
        return absl::OkStatus();
      });
}

geminid_code geminid_engine_export_gradient(geminid_engine* engine, uint64_t operation,
                                            uint32_t parameter, DLManagedTensorVersioned** tensor,
                                            int* accumulates, geminid_error* error) {
  return OnParameter(
      engine, parameter, error, [&](EngineObject& object, ParameterId id) -> absl::Status {
        GEMINID_RETURN_IF_ERROR(CheckGiven(tensor, "tensor"));
        GEMINID_RETURN_IF_ERROR(CheckGiven(accumulates, "accumulates"));
        GEMINID_RETURN_IF_ERROR(CheckOnHost(object));
        GEMINID_ASSIGN_OR_RETURN(auto open, object.KeepOpen(operation));
        GEMINID_ASSIGN_OR_RETURN(std::byte* const gradient, GradientOf(*open, operation, id));
        const bool adds = open->GradientAccumulates(id);
        *tensor = Export(object, parameter, std::move(open), gradient, 0);
        *accumulates = adds ? 1 : 0;
        return absl::OkStatus();
      });
}
