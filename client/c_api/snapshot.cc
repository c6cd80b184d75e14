// Snapshots: the state of a step, handed to a callback while training continues.
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/c_checkpoint.h"
#include "geminid/model_state.h"

namespace geminid::c_api {
namespace {

class CallbackSink : public zero::SnapshotSink {
 public:
  CallbackSink(geminid_sink* sink, void* context) : sink_(sink), context_(context) {}

  absl::Status Write(zero::ParameterId id, zero::StateKind kind, uint64_t offset,
                     std::span<const float> values) override {
    const auto parameter = static_cast<uint32_t>(id);
    const int result = sink_(context_, parameter, static_cast<int32_t>(kind), offset,
                             values.data(), values.size());
    if (result == 0) return absl::OkStatus();
    return absl::CancelledError(absl::StrCat("the sink returned ", result, " for parameter ",
                                             parameter, " from element ", offset));
  }

 private:
  geminid_sink* const sink_;
  void* const context_;
};

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

geminid_code geminid_engine_start_snapshot(geminid_engine* engine, geminid_sink* sink,
                                           void* context, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(reinterpret_cast<const void*>(sink), "sink"));
    return object.engine().StartSnapshot(std::make_shared<CallbackSink>(sink, context));
  });
}

geminid_code geminid_engine_wait_snapshot(geminid_engine* engine, geminid_error* error) {
  return OnEngine(engine, error,
                  [](EngineObject& object) { return object.engine().WaitSnapshot(); });
}
