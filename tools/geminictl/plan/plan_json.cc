#include "tools/geminictl/plan/plan_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tools/geminictl/output/json_message.h"
#include "tools/geminictl/plan/plan_engine.h"
#include "training/forecast/catalogue.h"

namespace geminid::ctl {
namespace {

using planner::Tier;

void Begin(base::JsonWriter* json) {
  json->BeginObject();
  json->Key("schema_version").Value(kSchemaVersion);
}

std::string End(base::JsonWriter* json) {
  json->EndObject();
  return json->text() + "\n";
}

void WriteModel(const forecast::Model& m, base::JsonWriter* json) {
  json->BeginObject();
  json->Key("name").Value(m.name);
  json->Key("parameters").Value(forecast::CountParameters(m));
  json->Key("layers").Value(m.layers);
  json->Key("hidden").Value(m.hidden);
  json->Key("encoder_layers").Value(m.encoder_layers());
  json->Key("experts").Value(m.mlps());
  json->Key("active_parameters").Value(forecast::CountActiveParameters(m));
  json->Key("heads").Value(m.heads);
  json->Key("kv_heads").Value(m.kv_heads);
  json->Key("head_dim").Value(m.head_dim());
  json->Key("intermediate").Value(m.intermediate);
  json->Key("vocabulary").Value(m.vocabulary);
  json->Key("context").Value(m.position_rows());
  json->EndObject();
}

// Numbers of the flags in `missing` are null: their stand-ins describe no machine.
void WriteHardware(const forecast::Hardware& h, const std::vector<std::string>& missing,
                   base::JsonWriter* json) {
  const auto write = [&](const char* key, const char* flag, double value) {
    json->Key(key);
    if (std::find(missing.begin(), missing.end(), flag) == missing.end()) {
      json->Value(value);
    } else {
      json->Null();
    }
  };
  json->BeginObject();
  json->Key("name").Value(h.name);
  json->Key("device_bytes").Value(h.device_bytes);
  json->Key("usable_bytes").Value(h.usable_bytes());
  write("operations_per_second", "--compute", h.flops);
  write("achieved_share", "--achieved", h.achieved_share);
  write("device_memory_bytes_per_second", "--device-bandwidth", h.device_memory_bytes_per_second);
  write("up_bytes_per_second", "--link-up", h.up_bytes_per_second);
  write("down_bytes_per_second", "--link-down", h.down_bytes_per_second);
  write("both_bytes_per_second", "--link-both", h.both_bytes_per_second);
  write("node_link_bytes_per_second", "--uplink", h.node_link_bytes_per_second);
  write("copy_latency_seconds", "--link-latency", h.copy_latency_seconds);
  write("peer_bytes_per_second", "--peer", h.peer_bytes_per_second);
  write("network_bytes_per_second", "--network", h.network_bytes_per_second);
  write("host_memory_bytes_per_second", "--dram", h.host_memory_bytes_per_second);
  json->EndObject();
}

void WriteJob(const PlanAnswer& answer, base::JsonWriter* json) {
  const forecast::Job& job = answer.job;
  json->BeginObject();
  json->Key("hardware");
  WriteHardware(job.hardware, answer.missing_rates, json);
  json->Key("ranks").Value(uint64_t{job.ranks});
  json->Key("nodes").Value(uint64_t{job.nodes});
  json->Key("host_bytes");
  if (answer.host_is_given) {
    json->Value(job.host_bytes);
  } else {
    json->Null();
  }
  json->Key("disk_bytes").Value(job.disk_bytes);
  json->Key("sequences").Value(job.batch.sequences);
  json->Key("sequence_length").Value(job.batch.sequence_length);
  json->Key("optimizer").Value(job.optimizer.name());
  json->Key("state_dtype").Value(job.optimizer.state_dtype());
  json->EndObject();
}

// Writes which parts of the plan today's engine carries out; null if the plan does not fit.
void WriteEngine(const PlanAnswer& answer, base::JsonWriter* json) {
  const forecast::Forecast& f = answer.forecast;
  if (!f.fits()) {
    json->Null();
    return;
  }
  json->BeginObject();
  bool all = true;
  json->Key("parts").BeginArray();
  for (const EnginePart& part : EngineParts(f, answer.job.hardware)) {
    json->BeginObject();
    json->Key("part").Value(part.part);
    json->Key("planned").Value(part.planned);
    json->Key("executed").Value(part.executed);
    json->Key("today").Value(part.today);
    json->EndObject();
    all = all && part.executed;
  }
  json->EndArray();
  json->Key("executes_all").Value(all);
  json->EndObject();
}

// Bytes of one rank, as the planner counts.
void WriteTiers(const PlanAnswer& answer, base::JsonWriter* json) {
  json->BeginArray();
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    const planner::TierBytes& bytes = answer.forecast.plan.tier(tier);
    json->BeginObject();
    json->Key("tier").Value(planner::TierName(tier));
    json->Key("peak_bytes_per_rank").Value(bytes.peak);
    json->Key("limit_bytes_per_rank").Value(bytes.limit);
    json->Key("lacking_bytes_per_rank")
        .Value(answer.forecast.plan.lacking[static_cast<std::size_t>(tier)]);
    json->Key("bytes_per_parameter")
        .Value(forecast::BytesPerParameter(answer.forecast, answer.job, tier));
    json->Key("by_owner").BeginObject();
    for (std::size_t owner = 0; owner < planner::kNumOwners; ++owner) {
      json->Key(planner::OwnerName(static_cast<planner::Owner>(owner)))
          .Value(bytes.by_owner[owner]);
    }
    json->EndObject();
    json->EndObject();
  }
  json->EndArray();
}

void WriteStep(const forecast::Forecast& f, base::JsonWriter* json) {
  json->BeginObject();
  json->Key("seconds").Value(f.step_seconds);
  json->Key("lower_bound_seconds")
      .Value(std::max(f.plan.step_lower_bound_seconds, f.collective_seconds));
  json->Key("tokens_per_second").Value(f.tokens_per_second);
  json->Key("bottleneck")
      .Value(f.bound_by_collectives ? "collectives" : planner::ResourceName(f.plan.bottleneck));
  json->Key("parts").BeginObject();
  json->Key("compute_seconds").Value(f.plan.seconds.compute);
  json->Key("head_seconds").Value(f.plan.seconds.head);
  json->Key("waits_seconds").Value(f.plan.seconds.waits);
  json->Key("tail_seconds").Value(f.plan.seconds.tail);
  json->Key("optimizer_seconds").Value(f.plan.seconds.optimizer);
  json->Key("disk_seconds").Value(f.plan.seconds.disk);
  json->EndObject();
  json->Key("busy_seconds").BeginObject();
  for (std::size_t i = 0; i < planner::kNumResources; ++i) {
    json->Key(planner::ResourceName(static_cast<planner::Resource>(i)))
        .Value(f.plan.busy_seconds[i]);
  }
  json->Key("collectives").Value(f.collective_seconds);
  json->EndObject();
  json->EndObject();
}

void WriteTraffic(const forecast::Forecast& f, base::JsonWriter* json) {
  const planner::StepTraffic& traffic = f.plan.traffic;
  json->BeginObject();
  json->Key("up_bytes").Value(traffic.up());
  json->Key("down_bytes").Value(traffic.down());
  json->Key("weights_up_bytes").Value(f.plan.device_plan.h2d_bytes);
  json->Key("weights_up_lower_bound_bytes").Value(f.plan.device_plan.lower_bound_bytes);
  json->Key("host_memory_bytes").Value(traffic.host_memory);
  json->Key("disk_read_bytes").Value(traffic.disk_read);
  json->Key("disk_written_bytes").Value(traffic.disk_written);
  json->EndObject();
}

void WriteDecisions(const planner::Decisions& decisions, base::JsonWriter* json) {
  json->BeginObject();
  json->Key("optimizer").BeginObject();
  for (const auto place : {planner::OptimizerPlace::kHost, planner::OptimizerPlace::kDevice,
                           planner::OptimizerPlace::kStreamed}) {
    json->Key(planner::OptimizerPlaceName(place))
        .Value(static_cast<uint64_t>(
            std::count(decisions.optimizer.begin(), decisions.optimizer.end(), place)));
  }
  json->EndObject();
  json->Key("activations").BeginObject();
  for (const auto place : {planner::ActivationPlace::kKeep, planner::ActivationPlace::kOffload,
                           planner::ActivationPlace::kRecompute}) {
    json->Key(planner::ActivationPlaceName(place))
        .Value(static_cast<uint64_t>(
            std::count(decisions.activations.begin(), decisions.activations.end(), place)));
  }
  json->EndObject();
  json->EndObject();
}

void WriteWords(const std::vector<std::string>& words, base::JsonWriter* json) {
  json->BeginArray();
  for (const std::string& word : words) json->Value(word);
  json->EndArray();
}

// The planner's choices and predictions depend on rates: null if rates are unknown.
void WriteChoices(const PlanAnswer& answer, base::JsonWriter* json) {
  const forecast::Forecast& f = answer.forecast;
  if (!answer.rates_are_known()) {
    for (const char* key : {"step", "traffic_per_rank", "decisions", "explanation"}) {
      json->Key(key).Null();
    }
    return;
  }
  json->Key("step");
  WriteStep(f, json);
  json->Key("traffic_per_rank");
  WriteTraffic(f, json);
  json->Key("decisions");
  WriteDecisions(f.plan.decisions, json);
  json->Key("explanation").Value(planner::ExplainTierPlan(f.problem, f.plan));
}

void WriteChanges(const PlanAnswer& answer, base::JsonWriter* json) {
  json->BeginArray();
  for (const forecast::Change& change : answer.changes) {
    json->BeginObject();
    json->Key("change").Value(forecast::Name(change.kind));
    json->Key("to").Value(change.value);
    json->Key("text").Value(change.text);
    json->EndObject();
  }
  json->EndArray();
}

}  // namespace

std::string PlanJson(const PlanAnswer& answer) {
  const forecast::Forecast& f = answer.forecast;
  base::JsonWriter json;
  Begin(&json);
  json.Key("fits").Value(f.fits());
  json.Key("subject").Value(answer.subject);
  json.Key("parameters").Value(f.parameters);
  json.Key("model");
  if (answer.model.has_value()) {
    WriteModel(*answer.model, &json);
  } else {
    json.Null();
  }
  json.Key("job");
  WriteJob(answer, &json);
  json.Key("engine");
  WriteEngine(answer, &json);
  json.Key("tiers");
  WriteTiers(answer, &json);
  json.Key("notes");
  WriteWords(answer.notes, &json);
  json.Key("missing_rates");
  WriteWords(answer.missing_rates, &json);
  WriteChoices(answer, &json);
  json.Key("least_host_bytes_per_node");
  if (answer.least_host_bytes.has_value()) {
    json.Value(*answer.least_host_bytes);
  } else {
    json.Null();
  }
  json.Key("trainer_device_bytes");
  if (answer.trainer_device_bytes.has_value()) {
    json.Value(*answer.trainer_device_bytes);
  } else {
    json.Null();
  }
  json.Key("changes");
  WriteChanges(answer, &json);
  return End(&json);
}

std::string ModelListJson() {
  base::JsonWriter json;
  Begin(&json);
  json.Key("models").BeginArray();
  for (const forecast::CatalogueEntry& entry : forecast::Catalogue()) {
    WriteModel(entry.model, &json);
  }
  json.EndArray();
  json.Key("families").BeginArray();
  for (const forecast::Family& family : forecast::Families()) json.Value(family.name);
  json.EndArray();
  return End(&json);
}

std::string HardwareListJson() {
  base::JsonWriter json;
  Begin(&json);
  json.Key("hardware").BeginArray();
  for (const forecast::Hardware& hardware : forecast::HardwareTable()) {
    WriteHardware(hardware, {}, &json);
  }
  json.EndArray();
  return End(&json);
}

}  // namespace geminid::ctl
