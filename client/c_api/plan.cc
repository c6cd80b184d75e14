// The plan that training follows, as JSON.
#include "geminid/plan.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

void PutChunks(const zero::PlanInForce& given, base::JsonWriter& json) {
  json.Key("chunks").BeginArray();
  for (size_t i = 0; i < given.trace.chunks.size(); ++i) {
    json.BeginObject();
    json.Key("name").Value(given.names[i]);
    json.Key("device_bytes").Value(given.trace.chunks[i].device_bytes);
    json.Key("transfer_bytes").Value(given.trace.chunks[i].transfer_bytes);
    json.Key("gradient_bytes").Value(given.trace.chunks[i].gradient_bytes);
    json.EndObject();
  }
  json.EndArray();
  json.Key("resident_at_start").BeginArray();
  for (const PlannedPlacement& placement : given.plan.resident_at_start) {
    json.BeginObject();
    json.Key("chunk").Value(uint64_t{placement.index});
    json.Key("offset").Value(placement.device_offset);
    json.EndObject();
  }
  json.EndArray();
}

void PutMoves(const PlannedMoment& moment, base::JsonWriter& json) {
  json.Key("loads").BeginArray();
  for (const PlannedLoad& load : moment.loads) {
    json.BeginObject();
    json.Key("chunk").Value(uint64_t{load.index});
    json.Key("offset").Value(load.device_offset);
    json.Key("deadline_moment").Value(uint64_t{load.deadline_moment});
    json.EndObject();
  }
  json.EndArray();
  json.Key("drops").BeginArray();
  for (const PlannedDrop& drop : moment.drops) {
    json.BeginObject();
    json.Key("chunk").Value(uint64_t{drop.index});
    json.Key("becomes_gradient").Value(drop.becomes_gradient);
    json.Key("free_moment").Value(uint64_t{drop.free_moment});
    json.EndObject();
  }
  json.EndArray();
}

void PutMoments(const zero::PlanInForce& given, base::JsonWriter& json) {
  const std::vector<TraceMoment>& moments = given.trace.moments;
  std::vector<double> stalls(moments.size());
  for (const PlannedStall& stall : given.plan.stalls) {
    if (stall.moment < stalls.size()) stalls[stall.moment] += stall.seconds;
  }
  json.Key("moments").BeginArray();
  for (size_t m = 0; m < moments.size(); ++m) {
    json.BeginObject();
    json.Key("uses").BeginArray();
    for (const TraceUse& use : moments[m].uses) json.Value(uint64_t{use.index});
    json.EndArray();
    json.Key("workspace_bytes").Value(moments[m].workspace_bytes);
    json.Key("compute_seconds").Value(moments[m].compute_seconds);
    json.Key("stall_seconds").Value(stalls[m]);
    if (m < given.plan.moments.size()) PutMoves(given.plan.moments[m], json);
    json.EndObject();
  }
  json.EndArray();
}

std::string ToJson(const zero::PlanInForce& given) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("arena_bytes").Value(given.trace.arena_bytes);
  json.Key("everything_fits").Value(given.plan.everything_fits);
  json.Key("transfer_bytes").Value(given.plan.transfer_bytes);
  json.Key("transfer_bytes_lower_bound").Value(given.plan.transfer_bytes_lower_bound);
  json.Key("gradient_bytes").Value(given.plan.gradient_bytes);
  json.Key("predicted_step_seconds").Value(given.plan.predicted_step_seconds);
  json.Key("step_lower_bound_seconds").Value(given.plan.step_lower_bound_seconds);
  json.Key("explanation").Value(given.plan.explanation);
  PutChunks(given, json);
  PutMoments(given, json);
  json.EndObject();
  return json.text();
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

geminid_code geminid_engine_plan(geminid_engine* engine, char** json, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(json, "json"));
    const std::optional<geminid::zero::PlanInForce> plan = object.engine().GetPlan();
    GEMINID_ASSIGN_OR_RETURN(*json, NewText(plan.has_value() ? ToJson(*plan) : "null"));
    return absl::OkStatus();
  });
}
