// Operations: the engine's object owns them, and callers name them by number.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "client/c_api/operation_tensors.h"
#include "client/c_api/streams.h"
#include "geminid/c_api.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

absl::StatusOr<std::vector<zero::ParameterId>> ToIds(const EngineObject& object,
                                                     const uint32_t* parameters, size_t count) {
  if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(parameters, "parameters"));
  std::vector<zero::ParameterId> ids;
  for (size_t i = 0; i < count; ++i) {
    GEMINID_ASSIGN_OR_RETURN(const zero::ParameterId id, object.Id(parameters[i]));
    ids.push_back(id);
  }
  return ids;
}

// The same for functions about one parameter of an open operation.
template <typename Work>
geminid_code OnOperation(geminid_engine* engine, uint64_t operation, uint32_t parameter,
                         geminid_error* error, const Work& work) noexcept {
  return OnParameter(engine, parameter, error,
                     [&](EngineObject& object, zero::ParameterId id) -> absl::Status {
                       GEMINID_ASSIGN_OR_RETURN(const auto found, object.Find(operation));
                       return work(*found, id);
                     });
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace
using geminid::zero::Operation;
using geminid::zero::ParameterId;

geminid_code geminid_engine_use(geminid_engine* engine, int32_t pass, const uint32_t* parameters,
                                size_t parameter_count, uint64_t stream, uint64_t* operation,
                                geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(operation, "operation"));
    GEMINID_RETURN_IF_ERROR(CheckNumber(pass, GEMINID_FORWARD, GEMINID_EVALUATE, "pass"));
    GEMINID_ASSIGN_OR_RETURN(const auto ids, ToIds(object, parameters, parameter_count));
    GEMINID_ASSIGN_OR_RETURN(
        Operation begun,
        object.engine().Use(static_cast<geminid::zero::Pass>(pass), ids, ToStream(stream)));
    *operation = object.Add(std::move(begun));
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_device_bytes(geminid_engine* engine, const uint32_t* parameters,
                                         size_t parameter_count, const uint32_t* gradients,
                                         size_t gradient_count, uint64_t* bytes,
                                         geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(bytes, "bytes"));
    GEMINID_ASSIGN_OR_RETURN(const auto weights, ToIds(object, parameters, parameter_count));
    GEMINID_ASSIGN_OR_RETURN(const auto beside, ToIds(object, gradients, gradient_count));
    *bytes = object.engine().DeviceBytes(weights, beside);
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_weight(geminid_engine* engine, uint64_t operation, uint32_t parameter,
                                   const void** address, geminid_error* error) {
  return OnOperation(engine, operation, parameter, error,
                     [&](Operation& open, ParameterId id) -> absl::Status {
                       GEMINID_RETURN_IF_ERROR(CheckGiven(address, "address"));
                       GEMINID_ASSIGN_OR_RETURN(*address, WeightOf(open, operation, id));
                       return absl::OkStatus();
                     });
}

geminid_code geminid_engine_copy_weights(geminid_engine* engine, uint64_t operation,
                                         const uint32_t* parameters, void* const* to, size_t count,
                                         geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    if (count > 0) GEMINID_RETURN_IF_ERROR(CheckGiven(to, "to"));
    GEMINID_ASSIGN_OR_RETURN(const auto ids, ToIds(object, parameters, count));
    GEMINID_ASSIGN_OR_RETURN(const auto open, object.Find(operation));
    for (size_t i = 0; i < count; ++i) {
      GEMINID_RETURN_IF_ERROR(CheckGiven(to[i], "one of to"));
      GEMINID_RETURN_IF_ERROR(open->CopyWeight(ids[i], static_cast<std::byte*>(to[i])));
    }
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_gradient(geminid_engine* engine, uint64_t operation, uint32_t parameter,
                                     void** address, int* accumulates, geminid_error* error) {
  return OnOperation(engine, operation, parameter, error,
                     [&](Operation& open, ParameterId id) -> absl::Status {
                       GEMINID_RETURN_IF_ERROR(CheckGiven(address, "address"));
                       GEMINID_RETURN_IF_ERROR(CheckGiven(accumulates, "accumulates"));
                       GEMINID_ASSIGN_OR_RETURN(*address, GradientOf(open, operation, id));
                       *accumulates = open.GradientAccumulates(id) ? 1 : 0;
                       return absl::OkStatus();
                     });
}

geminid_code geminid_engine_gradient_written(geminid_engine* engine, uint64_t operation,
                                             uint32_t parameter, geminid_error* error) {
  return OnOperation(engine, operation, parameter, error,
                     [](Operation& open, ParameterId id) { return open.GradientWritten(id); });
}

geminid_code geminid_engine_finish(geminid_engine* engine, uint64_t operation, uint64_t stream,
                                   geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const auto taken, object.Take(operation));
    return taken->Finish(ToStream(stream));
  });
}

geminid_code geminid_engine_finish_all(geminid_engine* engine, uint64_t stream,
                                       geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) {
    absl::Status first;
    for (const std::shared_ptr<Operation>& open : object.TakeAll()) {
      first.Update(open->Finish(ToStream(stream)));
    }
    first.Update(object.CheckNoneIsKept());
    return first;
  });
}

geminid_code geminid_engine_stable_address(geminid_engine* engine, uint32_t parameter,
                                           const void** address, geminid_error* error) {
  return OnParameter(engine, parameter, error, [&](EngineObject& object, ParameterId id) {
    GEMINID_RETURN_IF_ERROR(CheckGiven(address, "address"));
    *address = object.engine().StableAddress(id);
    return absl::OkStatus();
  });
}
