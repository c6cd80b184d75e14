// Gradients: added by callers that compute their own, and read before the step.
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "client/c_api/streams.h"
#include "geminid/c_api.h"
#include "geminid/zero.h"

using namespace geminid::c_api;  // below is the interface, outside of any namespace
using geminid::zero::DataType;
using geminid::zero::ParameterId;

geminid_code geminid_engine_add_gradient(geminid_engine* engine, uint32_t parameter,
                                         const void* gradient, uint64_t bytes, int32_t data_type,
                                         uint64_t stream, geminid_error* error) {
  return OnParameter(engine, parameter, error,
                     [&](EngineObject& object, ParameterId id) -> absl::Status {
                       GEMINID_RETURN_IF_ERROR(CheckGiven(gradient, "gradient"));
                       GEMINID_RETURN_IF_ERROR(
                           CheckNumber(data_type, GEMINID_BFLOAT16, GEMINID_FLOAT32, "data_type"));
                       const std::span values(static_cast<const std::byte*>(gradient), bytes);
                       const DataType type =
                           data_type == GEMINID_BFLOAT16 ? DataType::kBFloat16 : DataType::kFloat32;
                       return object.engine().AddGradient(id, values, type, ToStream(stream));
                     });
}

geminid_code geminid_engine_gradient_norm(geminid_engine* engine, double* norm,
                                          geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(norm, "norm"));
    GEMINID_ASSIGN_OR_RETURN(*norm, object.engine().GradientNorm());
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_read_gradient(geminid_engine* engine, uint32_t parameter,
                                          uint64_t offset, float* values, uint64_t count,
                                          geminid_error* error) {
  return OnParameter(engine, parameter, error, [&](EngineObject& object, ParameterId id) {
    if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(values, "values"));
    return object.engine().ReadGradient(id, offset, std::span(values, count));
  });
}

geminid_code geminid_engine_write_gradient(geminid_engine* engine, uint32_t parameter,
                                           uint64_t offset, const float* values, uint64_t count,
                                           geminid_error* error) {
  return OnParameter(engine, parameter, error, [&](EngineObject& object, ParameterId id) {
    if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(values, "values"));
    return object.engine().WriteGradient(id, offset, std::span(values, count));
  });
}

geminid_code geminid_engine_loss_scale(geminid_engine* engine, double* scale,
                                       geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(scale, "scale"));
    *scale = object.engine().loss_scale();
    return absl::OkStatus();
  });
}
