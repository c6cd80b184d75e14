// The frame of each function on an engine: finds the handle, makes the call, and marks an error as
// final if the engine cannot recover from it.
#ifndef GEMINID_CLIENT_C_API_ENGINE_CALLS_H_
#define GEMINID_CLIENT_C_API_ENGINE_CALLS_H_

#include <memory>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "client/c_api/errors.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"

namespace geminid::c_api {

template <typename Work>
geminid_code OnEngine(geminid_engine* handle, geminid_error* error, const Work& work) noexcept {
  return Guarded(error, [&]() -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const std::shared_ptr<EngineObject> object, Engines().Find(handle));
    absl::Status status = object->CheckUsable();
    if (status.ok()) status = work(*object);
    if (!status.ok() && error != nullptr) error->is_final = !object->engine().health().ok();
    return status;
  });
}

// The same for calls about one parameter.
template <typename Work>
geminid_code OnParameter(geminid_engine* handle, uint32_t parameter, geminid_error* error,
                         const Work& work) noexcept {
  return OnEngine(handle, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_ASSIGN_OR_RETURN(const zero::ParameterId id, object.Id(parameter));
    return work(object, id);
  });
}

}  // namespace geminid::c_api

#endif  // GEMINID_CLIENT_C_API_ENGINE_CALLS_H_
