#include "tools/trainer/mesh_choice.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tools/forecast/optimizer.h"
#include "tools/parallel/axes.h"
#include "tools/parallel/choose.h"
#include "tools/trainer/tensor_share.h"

namespace geminid::trainer {
namespace {

// Half-precision elements are what the forecast counts with.
double SizeOfElements(const TrainOptions& options) {
  return static_cast<double>(zero::SizeOf(options.zero.data_type)) / forecast::kElementBytes;
}

forecast::Hardware HardwareOf(const RanksPlace& place, double element_size) {
  // What a copy reads and writes.
  const double memory = 2 * place.copied_bytes_per_second;
  const double local_ranks = static_cast<double>(place.ranks) / place.hosts;
  // Where there is nobody to receive from, a rate that the planner takes and never uses.
  const auto rate = [&](double measured) {
    return (measured > 0 ? measured : place.copied_bytes_per_second) / element_size;
  };
  return {
      .name = "this run's ranks",
      .device_bytes = static_cast<uint64_t>(static_cast<double>(place.device_bytes) / element_size),
      .flops = place.operations_per_second,
      .achieved_share = 1,
      .device_memory_bytes_per_second = memory / element_size,
      .up_bytes_per_second = place.link_bytes_per_second / element_size,
      .down_bytes_per_second = place.link_bytes_per_second / element_size,
      .peer_bytes_per_second = rate(place.peer_bytes_per_second),
      .network_bytes_per_second = local_ranks * rate(place.network_bytes_per_second),
      .host_memory_bytes_per_second = local_ranks * memory / element_size,
      .peer_message_seconds = place.peer_message_seconds,
      .network_message_seconds = place.network_message_seconds};
}

absl::StatusOr<forecast::Job> JobOf(const TrainOptions& options, const RanksPlace& place) {
  const uint64_t sequences = options.batch * static_cast<uint64_t>(options.zero.accumulate);
  const auto ranks = static_cast<uint64_t>(place.ranks);
  if (sequences % ranks != 0) {
    return parallel::RefuseParallel(absl::StrCat("auto shares out the ", sequences,
                                                 " sequences of a step (--batch x "
                                                 "--accumulate) evenly, and there are ",
                                                 ranks,
                                                 " ranks; change one of them, or name the axes"));
  }
  forecast::Job job = {
      .hardware = HardwareOf(place, SizeOfElements(options)),
      .nodes = static_cast<uint32_t>(place.hosts),
      .ranks = static_cast<uint32_t>(place.ranks),
      .host_bytes = place.host_bytes,
      .batch = {.sequences = sequences / ranks, .sequence_length = options.model.context},
      .only_executable = true};
  GEMINID_ASSIGN_OR_RETURN(job.optimizer, forecast::FindOptimizer(Name(options.zero.optimizer)));
  if (options.recompute == Recompute::kOn) job.activations = forecast::Activations::kRecompute;
  if (options.recompute == Recompute::kOff) job.activations = forecast::Activations::kKeep;
  return job;
}

// Whether the trainer can do so what is asked of it, in micro-batches no larger than asked.
bool Trains(const TrainOptions& options, const parallel::Setting& setting) {
  if (setting.micro_batches < static_cast<uint64_t>(options.zero.accumulate)) return false;
  TrainOptions on_mesh = options;
  auto parsed = ParseParallel(parallel::ToString(setting.mesh));
  if (!parsed.ok()) return false;
  on_mesh.parallel = *std::move(parsed);
  on_mesh.batch =
      options.batch * static_cast<uint64_t>(options.zero.accumulate) / setting.micro_batches;
  return CheckParallel(on_mesh).ok() && CheckTensorBatch(on_mesh, setting.mesh.data).ok();
}

std::string InWords(const parallel::PlannedMesh& planned) {
  return absl::StrFormat("%s with %d micro-batch%s, %.3g ms a step",
                         parallel::ToString(planned.setting.mesh), planned.setting.micro_batches,
                         planned.setting.micro_batches == 1 ? "" : "es",
                         1e3 * planned.step_seconds);
}

// The first, and the best that is another mesh.
std::string WhyOf(const parallel::Choice& choice) {
  const parallel::PlannedMesh& chosen = choice.planned.front();
  if (!choice.fits()) {
    return absl::StrCat(parallel::ToString(chosen.setting.mesh),
                        " lacks least; nothing is predicted to fit");
  }
  std::string words = InWords(chosen);
  for (const parallel::PlannedMesh& other : choice.planned) {
    if (!other.fits || other.setting.mesh == chosen.setting.mesh) continue;
    return absl::StrCat(words, " as predicted; next ", InWords(other));
  }
  return absl::StrCat(words, " as predicted");
}

}  // namespace

forecast::Model ForecastModelOf(const ModelConfig& config) {
  const bool gpt2 = config.family == Family::kGpt2;
  return {.name = Name(config.family),
          .layers = config.layers,
          .hidden = config.hidden,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim(),
          .intermediate = config.intermediate,
          .vocabulary = config.vocabulary,
          .position_rows = gpt2 ? config.position_rows() : 0,
          .context = config.position_rows(),
          .gated_mlp = !gpt2,
          .experts = config.routed() ? config.experts : 1,
          .experts_per_token = config.mlps_per_token(),
          .norm_shift = gpt2,
          .fused_qkv = gpt2,
          .qkv_bias = gpt2,
          .attention_output_bias = gpt2,
          .mlp_bias = gpt2,
          .tied_output = config.tied_output()};
}

absl::StatusOr<MeshChoice> ChooseMesh(const TrainOptions& options, const RanksPlace& place) {
  if (options.model.lora_rank > 0) {
    return parallel::RefuseParallel(
        "auto does not know what adapters cost; name the axes, or leave --parallel out");
  }
  GEMINID_ASSIGN_OR_RETURN(const forecast::Job job, JobOf(options, place));
  const parallel::ChooseOptions ask = {
      .usable = [&options](const parallel::Setting& how) { return Trains(options, how); }};
  GEMINID_ASSIGN_OR_RETURN(const parallel::Choice found,
                           parallel::Choose(ForecastModelOf(options.model), job, ask));
  const parallel::Setting& setting = found.planned.front().setting;
  return MakeChoice(options, parallel::ToString(setting.mesh), setting.micro_batches, WhyOf(found));
}

absl::StatusOr<MeshChoice> MakeChoice(const TrainOptions& options, const std::string& mesh,
                                      uint64_t micro_batches, const std::string& why) {
  const uint64_t sequences = options.batch * static_cast<uint64_t>(options.zero.accumulate);
  MeshChoice choice = {.mesh = mesh,
                       .batch = sequences / micro_batches,
                       .accumulate = static_cast<int>(micro_batches),
                       .why = why};
  GEMINID_ASSIGN_OR_RETURN(choice.parallel, ParseParallel(mesh));
  return choice;
}

TrainOptions WithChoice(TrainOptions options, const MeshChoice& choice) {
  options.parallel = choice.parallel;
  options.batch = choice.batch;
  options.zero.accumulate = choice.accumulate;
  return options;
}

}  // namespace geminid::trainer
