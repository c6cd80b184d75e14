// Device memory besides the model, and the engine's statistics.
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/c_api/arguments.h"
#include "client/c_api/engine_calls.h"
#include "client/c_api/objects.h"
#include "geminid/c_api.h"
#include "geminid/zero.h"

namespace geminid::c_api {
namespace {

void PutMemory(const zero::Statistics& statistics, base::JsonWriter& json) {
  json.Key("parameters").Value(statistics.parameters);
  json.Key("model_state_bytes").Value(statistics.model_state_bytes);
  json.Key("device_state_bytes").Value(statistics.device_state_bytes);
  json.Key("state_chunks_on_device").Value(statistics.state_chunks_on_device);
  json.Key("state_chunks_streamed").Value(statistics.state_chunks_streamed);
  json.Key("host_bytes").Value(statistics.host_bytes);
  json.Key("arena_bytes").Value(statistics.arena_bytes);
  json.Key("peak_model_bytes").Value(statistics.peak_model_bytes);
  json.Key("peak_workspace_bytes").Value(statistics.peak_workspace_bytes);
  json.Key("peak_total_bytes").Value(statistics.peak_total_bytes);
  json.Key("model_bytes_at_peak").Value(statistics.model_bytes_at_peak);
  json.Key("model_bytes").Value(statistics.model_bytes);
  json.Key("workspace_bytes").Value(statistics.workspace_bytes);
  json.Key("registered_bytes").Value(statistics.registered_bytes);
  json.Key("host_shard_bytes").Value(statistics.host_shard_bytes);
  json.Key("chunks").Value(statistics.chunks);
  json.Key("chunk_elements").Value(statistics.chunk_elements);
  json.Key("waste_ratio").Value(statistics.waste_ratio);
}

void PutDisk(const zero::Statistics& statistics, base::JsonWriter& json) {
  json.Key("state_disk_bytes").Value(statistics.state_disk_bytes);
  json.Key("disk_read_bytes").Value(statistics.disk_read_bytes);
  json.Key("disk_written_bytes").Value(statistics.disk_written_bytes);
  json.Key("state_disk").Value(statistics.state_disk);
}

void PutActivations(const zero::Statistics& statistics, const EngineObject& engine,
                    base::JsonWriter& json) {
  const auto store = engine.Activations();
  json.Key("activation_place_bytes").Value(statistics.activation_place_bytes);
  json.Key("activation_bytes").Value(statistics.activation_bytes);
  json.Key("activation_host_bytes").Value(store.ok() ? (*store)->host_bytes() : uint64_t{0});
  json.Key("activation_items").Value(store.ok() ? (*store)->items() : uint64_t{0});
}

void PutTransfers(const zero::Statistics& statistics, base::JsonWriter& json) {
  json.Key("host_to_device_bytes").Value(statistics.host_to_device_bytes);
  json.Key("device_to_host_bytes").Value(statistics.device_to_host_bytes);
  json.Key("transfer_bytes_lower_bound").Value(statistics.transfer_bytes_lower_bound);
  json.Key("received_bytes").Value(statistics.received_bytes);
  json.Key("received_within_host_bytes").Value(statistics.received_within_host_bytes);
  json.Key("ranks_exchange_by").Value(statistics.ranks_exchange_by);
  json.Key("queued_seconds").Value(statistics.queued_seconds);
  json.Key("stall_seconds").Value(statistics.stall_seconds);
  json.Key("stall_seconds_by_cause").BeginObject();
  for (const auto& [cause, seconds] : statistics.stall_seconds_by_cause) {
    json.Key(cause).Value(seconds);
  }
  json.EndObject();
}

void PutPlan(const zero::Statistics& statistics, base::JsonWriter& json) {
  json.Key("plan").BeginObject();
  json.Key("plans_made").Value(statistics.plans_made);
  json.Key("everything_fits").Value(statistics.everything_fits);
  json.Key("planned_transfer_bytes").Value(statistics.planned_transfer_bytes);
  json.Key("explanation").Value(statistics.plan_explanation);
  json.Key("replans_by_cause").BeginObject();
  for (const auto& [cause, count] : statistics.replans_by_cause) json.Key(cause).Value(count);
  json.EndObject().EndObject();
}

std::string ToJson(const zero::Statistics& statistics, const EngineObject& engine) {
  base::JsonWriter json;
  json.BeginObject();
  PutMemory(statistics, json);
  PutDisk(statistics, json);
  PutActivations(statistics, engine, json);
  PutTransfers(statistics, json);
  PutPlan(statistics, json);
  json.EndObject();
  return json.text();
}

}  // namespace
}  // namespace geminid::c_api

using namespace geminid::c_api;  // below is the interface, outside of any namespace

geminid_code geminid_engine_allocate(geminid_engine* engine, uint64_t bytes, uint64_t* block,
                                     void** address, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(block, "block"));
    GEMINID_RETURN_IF_ERROR(CheckGiven(address, "address"));
    GEMINID_ASSIGN_OR_RETURN(auto allocated, object.engine().workspace().Allocate(bytes));
    *address = allocated.data();
    *block = object.Add(std::move(allocated));
    return absl::OkStatus();
  });
}

geminid_code geminid_engine_release(geminid_engine* engine, uint64_t block, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) {
    if (object.Release(block)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " is not allocated: it was released, or never was"));
  });
}

geminid_code geminid_engine_report_workspace(geminid_engine* engine, uint64_t bytes,
                                             geminid_error* error) {
  return OnEngine(engine, error,
                  [&](EngineObject& object) { return object.engine().ReportWorkspace(bytes); });
}

geminid_code geminid_engine_statistics(geminid_engine* engine, char** json, geminid_error* error) {
  return OnEngine(engine, error, [&](EngineObject& object) -> absl::Status {
    GEMINID_RETURN_IF_ERROR(CheckGiven(json, "json"));
    GEMINID_ASSIGN_OR_RETURN(const auto statistics, object.engine().GetStatistics());
    GEMINID_ASSIGN_OR_RETURN(*json, NewText(ToJson(statistics, object)));
    return absl::OkStatus();
  });
}
