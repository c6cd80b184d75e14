#include "tools/geminictl/plan/plan_parallel_json.h"

#include "tools/geminictl/output/json_message.h"

namespace geminid::ctl {
namespace {

using base::JsonWriter;
using parallel::PlannedMesh;

uint64_t Count(int number) { return static_cast<uint64_t>(number); }

void WriteMesh(const parallel::MeshSpec& mesh, JsonWriter* json) {
  json->BeginObject();
  json->Key("text").Value(ToString(mesh));
  json->Key("pipeline").Value(Count(mesh.pipeline));
  json->Key("schedule").Value(collectives::Name(mesh.schedule));
  json->Key("data").Value(Count(mesh.data));
  json->Key("sequence").Value(Count(mesh.sequence));
  json->Key("sequence_mode").Value(parallel::Name(mesh.sequence_mode));
  json->Key("zero_within_host").Value(mesh.within_host);
  json->Key("tensor_mode").Value(collectives::Name(mesh.tensor_mode));
  json->Key("tensor").Value(Count(mesh.tensor));
  json->Key("depth").Value(Count(mesh.depth));
  json->Key("zero").Value(Count(mesh.zero));
  json->EndObject();
}

// Values of a step are null if the mesh does not fit: then there is no step.
void WritePlanned(const PlannedMesh& planned, JsonWriter* json) {
  const auto step = [&](const char* key, double value) {
    json->Key(key);
    if (planned.fits) {
      json->Value(value);
    } else {
      json->Null();
    }
  };
  json->BeginObject();
  json->Key("mesh");
  WriteMesh(planned.setting.mesh, json);
  json->Key("micro_batches").Value(planned.setting.micro_batches);
  json->Key("activations").Value(ActivationsName(planned.setting.activations));
  json->Key("fits").Value(planned.fits);
  step("step_seconds", planned.step_seconds);
  step("tokens_per_second", planned.tokens_per_second);
  step("pass_seconds", planned.pass_seconds);
  step("sharing_seconds", planned.sharing_seconds);
  step("update_seconds", planned.update_seconds);
  step("bubble_share", planned.bubble);
  step("received_bytes", planned.received_bytes);
  json->Key("compute_seconds").Value(planned.cost.compute_seconds);
  json->Key("exchange_seconds").Value(planned.cost.exchange_seconds);
  json->Key("least_step_seconds").Value(planned.cost.least_step_seconds);
  json->Key("least_received_bytes").Value(planned.cost.received_bytes);
  json->Key("least_device_bytes").Value(planned.cost.least_device_bytes);
  json->Key("partners").Value(Count(planned.cost.partners));
  json->Key("device_bytes_per_rank").Value(planned.device_bytes);
  json->Key("host_bytes_per_rank").Value(planned.host_bytes);
  json->Key("fullest_stage_layers").Value(planned.fullest_layers);
  json->EndObject();
}

void WriteJob(const forecast::Model& model, const forecast::Job& job, JsonWriter* json) {
  json->Key("model").BeginObject();
  json->Key("name").Value(model.name);
  json->Key("parameters").Value(CountParameters(model));
  json->EndObject();
  json->Key("job").BeginObject();
  json->Key("hardware").Value(job.hardware.name);
  json->Key("ranks").Value(uint64_t{job.ranks});
  json->Key("nodes").Value(uint64_t{job.nodes});
  json->Key("sequences_per_rank").Value(job.batch.sequences);
  json->Key("sequence_length").Value(job.batch.sequence_length);
  json->Key("optimizer").Value(job.optimizer.name());
  json->Key("state_dtype").Value(job.optimizer.state_dtype());
  json->EndObject();
}

void WriteConstants(const forecast::Hardware& hardware, JsonWriter* json) {
  json->Key("constants").BeginArray();
  for (const forecast::Constant& constant : ConstantsOf(hardware)) {
    json->BeginObject();
    json->Key("name").Value(constant.name);
    json->Key("value").Value(constant.value);
    json->Key("unit").Value(constant.unit);
    json->Key("source").Value(constant.source);
    json->EndObject();
  }
  json->EndArray();
}

void WriteNotes(const std::vector<std::string>& notes, JsonWriter* json) {
  json->Key("notes").BeginArray();
  for (const std::string& note : notes) json->Value(note);
  json->EndArray();
}

}  // namespace

std::string ParallelJson(const ParallelAnswer& answer) {
  const parallel::Choice& choice = answer.choice;
  JsonWriter json;
  json.BeginObject();
  json.Key("schema_version").Value(kSchemaVersion);
  json.Key("fits").Value(choice.fits());
  WriteJob(answer.model, answer.job, &json);
  json.Key("chosen");
  if (choice.fits()) {
    WritePlanned(choice.planned.front(), &json);
  } else {
    json.Null();
  }
  json.Key("nearest_that_fits");
  if (answer.nearest.has_value()) {
    WritePlanned(*answer.nearest, &json);
  } else {
    json.Null();
  }
  json.Key("planned").BeginArray();
  for (const PlannedMesh& planned : choice.planned) WritePlanned(planned, &json);
  json.EndArray();
  json.Key("planned_for_comparison").Value(uint64_t{choice.for_comparison});
  json.Key("settings").Value(uint64_t{choice.settings});
  json.Key("too_large").Value(uint64_t{choice.too_large});
  json.Key("bounded_out").Value(uint64_t{choice.bounded_out});
  json.Key("not_planned").Value(uint64_t{choice.not_planned});
  json.Key("meshes_not_cut").Value(uint64_t{choice.meshes_not_cut});
  WriteConstants(answer.job.hardware, &json);
  WriteNotes(answer.notes, &json);
  json.EndObject();
  return json.text() + "\n";
}

std::string ComparedJson(const ComparedAnswer& answer) {
  JsonWriter json;
  json.BeginObject();
  json.Key("schema_version").Value(kSchemaVersion);
  WriteJob(answer.model, answer.job, &json);
  json.Key("ranks_per_node").Value(uint64_t{answer.ranks_per_node});
  json.Key("grids").BeginArray();
  for (const parallel::ComparedGrid& grid : answer.grids) {
    json.BeginObject();
    json.Key("activation_bytes").Value(grid.activation_bytes);
    json.Key("state_bytes").Value(grid.state_bytes);
    json.Key("planned");
    WritePlanned(grid.planned, &json);
    json.EndObject();
  }
  json.EndArray();
  WriteConstants(answer.job.hardware, &json);
  WriteNotes(answer.notes, &json);
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace geminid::ctl
