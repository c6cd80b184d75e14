#include "training/run/report.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_format.h"
#include "base/json_writer.h"

namespace geminid::trainer {
namespace {

uint64_t Sum(const Report& report, uint64_t RankReport::*field) {
  uint64_t sum = 0;
  for (const RankReport& rank : report.ranks) sum += rank.*field;
  return sum;
}

uint64_t Most(const Report& report, uint64_t RankReport::*field) {
  uint64_t most = 0;
  for (const RankReport& rank : report.ranks) most = std::max(most, rank.*field);
  return most;
}

void WriteNumbers(base::JsonWriter& json, const char* key, const std::vector<double>& numbers) {
  json.Key(key).BeginArray();
  for (const double number : numbers) json.Value(number);
  json.EndArray();
}

void WriteModel(base::JsonWriter& json, const Report& report) {
  const ModelConfig& model = report.options.model;
  json.Key("model").BeginObject();
  json.Key("family").Value(Name(model.family));
  json.Key("layers").Value(model.layers).Key("hidden").Value(model.hidden);
  json.Key("heads").Value(model.heads).Key("kv_heads").Value(model.kv_heads);
  json.Key("intermediate").Value(model.intermediate).Key("context").Value(model.context);
  json.Key("vocabulary").Value(model.vocabulary);
  if (model.image) {
    json.Key("image_size").Value(model.image->side).Key("patch_size").Value(model.image->patch);
    json.Key("channels").Value(model.image->channels).Key("classes").Value(model.classes);
  }
  if (model.routed()) {
    json.Key("experts").Value(model.experts);
    json.Key("experts_per_token").Value(model.experts_per_token);
    json.Key("balance_loss").Value(model.balance_loss);
    json.Key("expert_capacity").Value(model.expert_capacity);
  }
  json.EndObject();
  json.Key("parameters").Value(report.parameters);
}

void WriteRun(base::JsonWriter& json, const Report& report) {
  const TrainOptions& options = report.options;
  json.Key("world_size").Value(static_cast<uint64_t>(report.ranks.size()));
  json.Key("mesh").Value(report.mesh);
  json.Key("zero_stage").Value(static_cast<uint64_t>(options.zero.stage));
  json.Key("zero_within_host").Value(options.parallel.zero_within_host);
  json.Key("placement").Value(Name(options.zero.placement));
  json.Key("dtype").Value(Name(options.zero.data_type));
  json.Key("norm_dtype").Value(Name(NormType(options)));
  json.Key("seed").Value(options.seed);
  json.Key("sampling").Value(Name(options.sampling));
  json.Key("steps").Value(options.schedule.steps);
  json.Key("batch").Value(options.batch);
  json.Key("accumulate")
      .Value(options.follows_noise ? options.follows_noise->least
                                   : static_cast<uint64_t>(options.zero.accumulate));
  json.Key("clip_norm").Value(options.zero.clip_norm);
  json.Key("update").Value(Name(options.zero.update));
  json.Key("optimizer").Value(Name(options.zero.optimizer));
  json.Key("state_dtype").Value(Name(options.zero.state_type));
  json.Key("learning_rate").Value(options.schedule.peak);
  json.Key("schedule").Value(Name(options.schedule.shape));
  json.Key("instruction_set").Value(report.instruction_set);
  json.Key("computes_on").Value(report.computes_on);
  json.Key("products_by").Value(report.products_by);
  json.Key("attention_by").Value(report.attention_by);
  json.Key("ranks_exchange_by").Value(report.ranks_exchange_by);
  json.Key("layers_add_up_by").Value(report.layers_add_up_by);
  json.Key("keys_travel_by").Value(report.keys_travel_by);
  json.Key("nccl_registered_bytes").Value(report.registered_bytes);
  json.Key("threads").Value(report.threads);
  json.Key("activations").Value(Name(report.activations));
  json.Key("final_loss_scale").Value(report.final_loss_scale);
}

void WriteData(base::JsonWriter& json, const Report& report) {
  json.Key("data_files").BeginArray();
  for (const DataFile& file : report.data.files) {
    json.BeginObject().Key("path").Value(file.path).Key("bytes").Value(file.bytes).EndObject();
  }
  json.EndArray();
  json.Key("data_left_out").BeginArray();
  for (const std::string& what : report.data.left_out) json.Value(what);
  json.EndArray();
  json.Key("notes").BeginArray();
  for (const std::string& note : report.notes) json.Value(note);
  json.EndArray();
}

void WriteChoice(base::JsonWriter& json, const Report& report) {
  json.Key("mesh_warning").Value(report.mesh_warning);
  if (!report.choice) return;
  json.Key("mesh_choice").BeginObject();
  json.Key("why").Value(report.choice->why);
  json.Key("planned").BeginArray();
  for (const PlannedRow& row : report.choice->rows) {
    json.BeginObject();
    json.Key("mesh").Value(row.mesh).Key("micro_batches").Value(row.micro_batches);
    json.Key("activations").Value(row.keeps_activations ? "kept" : "recomputed");
    json.Key("fits").Value(row.fits).Key("step_seconds").Value(row.step_seconds);
    json.Key("received_bytes").Value(row.received_bytes);
    json.Key("device_bytes").Value(row.device_bytes);
    json.EndObject();
  }
  json.EndArray().EndObject();
  if (!report.choice->run) return;
  json.Key("place");
  parallel::WritePlacedRun(json, *report.choice->run);
}

// Null where sequences are drawn with replacement.
void WriteEpochs(base::JsonWriter& json, const Report& report) {
  const std::optional<double> done = EpochsDone(report);
  if (!done.has_value()) {
    json.Key("samples_per_epoch").Null().Key("epochs_done").Null();
    return;
  }
  json.Key("samples_per_epoch").Value(report.samples_per_epoch);
  json.Key("epochs_done").Value(*done);
}

void WriteResults(base::JsonWriter& json, const Report& report) {
  WriteNumbers(json, "loss", report.losses);
  json.Key("loss_hex").BeginArray();
  for (const double loss : report.losses) json.Value(absl::StrFormat("%a", loss));
  json.EndArray();
  WriteNumbers(json, "gradient_norm", report.gradient_norms);
  json.Key("validation").BeginArray();
  for (const ValidationLoss& measured : report.validation) {
    json.BeginObject().Key("step").Value(measured.step).Key("loss").Value(measured.loss);
    if (measured.accuracy) json.Key("accuracy").Value(*measured.accuracy);
    json.EndObject();
  }
  json.EndArray();
  json.Key("validation_tokens").Value(report.validation_tokens);
  json.Key("overflowed_steps").Value(report.overflowed_steps);
  json.Key("non_finite_losses").Value(report.non_finite_losses);
  json.Key("first_non_finite_step");
  if (report.first_non_finite_step > 0) {
    json.Value(report.first_non_finite_step);
  } else {
    json.Null();
  }
  json.Key("first_step").Value(report.first_step);
  json.Key("load_seconds").Value(report.load_seconds);
  json.Key("steps_done").Value(report.first_step + report.losses.size());
  WriteEpochs(json, report);
  json.Key("ended_by").Value(report.ended_by);
  json.Key("weights_sha256").Value(report.weights_sha256);
  WriteNumbers(json, "step_seconds", report.step_seconds);
  json.Key("tokens_per_step").Value(report.tokens_per_step);
  json.Key("tokens_per_second").Value(TokensPerSecond(report));
  json.Key("flops_per_token").Value(report.flops_per_token);
  json.Key("flops_per_second").Value(FlopsPerSecond(report));
  json.Key("dtype_is_native").Value(report.native_data_type);
}

void WriteMemory(base::JsonWriter& json, const Report& report) {
  json.Key("model_state_bytes").Value(Sum(report, &RankReport::model_state_bytes));
  json.Key("model_state_bytes_per_rank").BeginArray();
  for (const RankReport& rank : report.ranks) json.Value(rank.model_state_bytes);
  json.EndArray();
  json.Key("device_per_rank").BeginArray();
  for (const RankReport& rank : report.ranks) json.Value(rank.device);
  json.EndArray();
  json.Key("device_bytes_limit").Value(Most(report, &RankReport::device_bytes_limit));
  json.Key("device_state_bytes").Value(Sum(report, &RankReport::device_state_bytes));
  json.Key("activation_place_bytes").Value(Sum(report, &RankReport::activation_place_bytes));
  json.Key("device_bytes_peak").BeginObject();
  json.Key("model").Value(Most(report, &RankReport::peak_model_bytes));
  json.Key("non_model").Value(Most(report, &RankReport::peak_workspace_bytes));
  json.Key("total").Value(Most(report, &RankReport::peak_total_bytes));
  json.EndObject();
  const uint64_t host_bytes = Sum(report, &RankReport::host_bytes);
  json.Key("host_bytes").Value(host_bytes);
  json.Key("state_disk_bytes").Value(Sum(report, &RankReport::state_disk_bytes));
  json.Key("host_bytes_registered").Value(report.host_bytes_registered);
  json.Key("host_bytes_refused").Value(report.host_bytes_refused);
  json.Key("host_bytes_per_parameter")
      .Value(report.parameters == 0
                 ? 0.0
                 : static_cast<double>(host_bytes) / static_cast<double>(report.parameters));
}

void WriteTransfers(base::JsonWriter& json, const Report& report) {
  json.Key("h2d_bytes").Value(Sum(report, &RankReport::host_to_device_bytes));
  json.Key("d2h_bytes").Value(Sum(report, &RankReport::device_to_host_bytes));
  json.Key("activation_bytes").Value(Sum(report, &RankReport::activation_bytes));
  json.Key("transfer_bytes_lower_bound")
      .Value(Sum(report, &RankReport::transfer_bytes_lower_bound));
  json.Key("received_bytes").Value(Sum(report, &RankReport::received_bytes));
  json.Key("received_within_host_bytes")
      .Value(Sum(report, &RankReport::received_within_host_bytes));
  double stall_seconds = 0;
  for (const RankReport& rank : report.ranks) {
    stall_seconds = std::max(stall_seconds, rank.stall_seconds);
  }
  json.Key("stall_seconds").Value(stall_seconds);
  json.Key("stall_seconds_per_rank").BeginArray();
  for (const RankReport& rank : report.ranks) json.Value(rank.stall_seconds);
  json.EndArray();
  json.Key("stall_seconds_by_cause").BeginObject();
  for (const auto& [cause, seconds] : report.stall_seconds_by_cause) json.Key(cause).Value(seconds);
  json.EndObject();
}

void WritePlan(base::JsonWriter& json, const Report& report) {
  json.Key("chunks").Value(report.chunks);
  json.Key("chunk_elements").Value(report.chunk_elements);
  json.Key("plans_made").Value(report.plans_made);
  json.Key("replans_by_cause").BeginObject();
  for (const auto& [cause, replans] : report.replans_by_cause) json.Key(cause).Value(replans);
  json.EndObject();
  json.Key("everything_fits").Value(report.everything_fits);
  json.Key("plan_explanation").Value(report.plan_explanation);
}

void WriteTraffic(base::JsonWriter& json, const Report& report) {
  json.Key("traffic").BeginArray();
  for (const TrafficRow& row : report.traffic) {
    json.BeginObject();
    json.Key("axis").Value(Name(row.axis)).Key("operation").Value(Name(row.operation));
    json.Key("calls").Value(row.calls);
    json.Key("bytes_sent").Value(row.bytes_sent);
    json.Key("bytes_received").Value(row.bytes_received);
    json.Key("network_bytes_received").Value(row.network_bytes);
    json.Key("partners").Value(row.partners).Key("seconds").Value(row.seconds);
    json.EndObject();
  }
  json.EndArray();
}

void WriteVersions(base::JsonWriter& json) {
  json.Key("schema_version").Value(kReportSchemaVersion);
  json.Key("versions").BeginObject().Key("geminid").Value(GEMINID_VERSION).EndObject();
}

void WriteEvaluation(base::JsonWriter& json, const Report& report) {
  const bool has_loss = !report.validation.empty();
  const double loss = has_loss ? report.validation.back().loss : std::nan("");  // null
  const double seconds = has_loss ? report.step_seconds.back() : 0;
  json.Key("evaluated").Value(report.options.load);
  json.Key("validation_loss").Value(loss);
  json.Key("validation_loss_hex").Value(absl::StrFormat("%a", loss));
  json.Key("perplexity").Value(std::exp(loss));
  if (has_loss && report.validation.back().accuracy) {
    json.Key("accuracy").Value(*report.validation.back().accuracy);
  }
  json.Key("validation_tokens").Value(report.validation_tokens);
  json.Key("seconds").Value(seconds);
  json.Key("ended_by").Value(report.ended_by);
  json.Key("world_size").Value(static_cast<uint64_t>(report.ranks.size()));
  json.Key("mesh").Value(report.mesh);
  json.Key("placement").Value(Name(report.options.zero.placement));
  json.Key("dtype").Value(Name(report.options.zero.data_type));
  json.Key("norm_dtype").Value(Name(NormType(report.options)));
  json.Key("batch").Value(report.options.batch);
  json.Key("instruction_set").Value(report.instruction_set);
  json.Key("computes_on").Value(report.computes_on);
  json.Key("threads").Value(report.threads);
}

}  // namespace

double TokensPerSecond(const Report& report) {
  const std::vector<double>& all = report.step_seconds;
  if (all.empty()) return 0;
  const size_t first = all.size() > 1 ? 1 : 0;
  const double seconds =
      std::accumulate(all.begin() + static_cast<ptrdiff_t>(first), all.end(), 0.0);
  uint64_t tokens = 0;
  for (size_t i = first; i < all.size(); ++i) tokens += TokensOfStep(report, i);
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

double FlopsPerSecond(const Report& report) {
  return report.flops_per_token * TokensPerSecond(report);
}

uint64_t StepsOf(const Report& report) {
  return report.following ? report.following->steps : report.options.schedule.steps;
}

uint64_t TokensOfStep(const Report& report, size_t index) {
  if (!report.following) return report.tokens_per_step;
  const uint64_t sequences =
      report.following->rules.batch * report.following->step_micro_batches[index];
  return sequences * report.options.model.context;
}

uint64_t TokensDone(const Report& report) {
  if (report.following) return report.following->sequences_done * report.options.model.context;
  return (report.first_step + report.losses.size()) * report.tokens_per_step;
}

std::optional<double> EpochsDone(const Report& report) {
  if (report.samples_per_epoch == 0) return std::nullopt;
  const uint64_t samples = TokensDone(report) / report.options.model.context;
  return static_cast<double>(samples) / static_cast<double>(report.samples_per_epoch);
}

std::string ToJson(const Report& report) {
  base::JsonWriter json;
  json.BeginObject();
  WriteVersions(json);
  WriteModel(json, report);
  WriteRun(json, report);
  WriteData(json, report);
  WriteChoice(json, report);
  WriteResults(json, report);
  WriteMemory(json, report);
  WriteTransfers(json, report);
  WriteTraffic(json, report);
  WritePlan(json, report);
  if (report.following) {
    json.Key("batch_following");
    WriteAutoBatchReport(json, *report.following);
  }
  if (report.advice) {
    json.Key("batch_advice");
    WriteAdvice(json, *report.advice);
  }
  json.EndObject();
  return json.text() + "\n";
}

std::string EvaluationJson(const Report& report) {
  base::JsonWriter json;
  json.BeginObject();
  WriteVersions(json);
  WriteModel(json, report);
  WriteEvaluation(json, report);
  WriteData(json, report);
  WriteMemory(json, report);
  WriteTransfers(json, report);
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace geminid::trainer
