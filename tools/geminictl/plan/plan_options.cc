#include "tools/geminictl/plan/plan_options.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/status_macros.h"
#include "tools/geminictl/plan/plan_hardware.h"
#include "tools/geminictl/plan/plan_numbers.h"
#include "tools/geminictl/plan/plan_rules.h"
#include "training/forecast/hf_config.h"
#include "training/meshes/placed_choice.h"

namespace geminid::ctl {
namespace {

// A configuration with the names of twenty thousand classes has a megabyte.
constexpr std::uint64_t kConfigBytesMax = std::uint64_t{4} << 20;

// A member of the family, by its shape or by its size.
absl::StatusOr<forecast::Model> Member(const forecast::Family& family, const PlanFlags& flags,
                                       std::vector<std::string>* notes) {
  if (!flags.parameters.empty()) {
    double parameters = 0;
    GEMINID_RETURN_IF_ERROR(ReadNumber("--parameters", flags.parameters, kRateMax, &parameters));
    constexpr double kLargest = 1e18;
    return forecast::MemberOfSize(family,
                                  static_cast<std::uint64_t>(std::min(parameters, kLargest)));
  }
  if (flags.layers.empty() || flags.hidden.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--model ", family.name,
        " is a family; say which member by --parameters, or by --layers and --hidden, or ask for "
        "the --largest"));
  }
  std::uint64_t layers = 0, hidden = 0, heads = 0;
  GEMINID_RETURN_IF_ERROR(ReadCount("--layers", flags.layers, &layers));
  GEMINID_RETURN_IF_ERROR(ReadCount("--hidden", flags.hidden, &hidden));
  GEMINID_RETURN_IF_ERROR(ReadCount("--heads", flags.heads, &heads));
  GEMINID_ASSIGN_OR_RETURN(forecast::Model model,
                           forecast::MakeMember(family, layers, hidden, heads));
  if (heads == 0) {
    notes->push_back(absl::StrCat("Attention has ", model.heads,
                                  model.heads == 1 ? " head of " : " heads of ", model.head_dim(),
                                  " columns; --heads chooses."));
  }
  return model;
}

absl::Status ReadConfig(const std::string& path, PlanRequest* request) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const std::string file = folder ? absl::StrCat(path, "/config.json") : path;
  const absl::StatusOr<std::string> json = base::ReadFile(file, kConfigBytesMax);
  if (!json.ok()) {
    return absl::Status(json.status().code(), absl::StrCat("--config: ", json.status().message()));
  }
  absl::StatusOr<forecast::Model> model = forecast::ModelFromHuggingFace(*json);
  if (!model.ok()) return NamedFlag(absl::StrCat("--config ", file), model.status());
  request->model = *std::move(model);
  return absl::OkStatus();
}

// The shape of a published model is fixed.
absl::Status CheckNoShape(const PlanFlags& flags) {
  struct Flag {
    const char* name;
    const std::string& text;
  };
  for (const Flag& flag : {Flag{"--parameters", flags.parameters}, Flag{"--layers", flags.layers},
                           Flag{"--hidden", flags.hidden}, Flag{"--heads", flags.heads}}) {
    if (flag.text.empty()) continue;
    return WrongFlag(flag.name, flag.text,
                     absl::StrCat("the shape of ", flags.model,
                                  " is given; leave it out, or name a family, as in llama-like"));
  }
  return absl::OkStatus();
}

// Adds a note if geminid-train has this published model with another vocabulary.
void NoteTrainersOwn(const forecast::Model& model, std::vector<std::string>* notes) {
  const forecast::Model* const own = forecast::FindTrainerModel(model.name);
  if (own == nullptr || own->vocabulary == model.vocabulary) return;
  notes->push_back(absl::StrFormat(
      "This is the published model; geminid-train's %s has its shape with a vocabulary of %d, "
      "%.3g billion parameters.",
      model.name, own->vocabulary, static_cast<double>(forecast::CountParameters(*own)) * 1e-9));
}

absl::Status ReadModel(const PlanFlags& flags, PlanRequest* request) {
  if (!flags.config.empty()) return ReadConfig(flags.config, request);
  const forecast::Family* family = forecast::FindFamily(flags.model);
  if (flags.largest) {
    if (family == nullptr) {
      return WrongFlag("--model", flags.model,
                       "the --largest is sought in a family, as in gpt2-like");
    }
    request->family = family;
    return absl::OkStatus();
  }
  absl::StatusOr<forecast::Model> model = family != nullptr
                                              ? Member(*family, flags, &request->notes)
                                              : forecast::FindModel(flags.model);
  if (!model.ok()) return absl::InvalidArgumentError(std::string(model.status().message()));
  if (family == nullptr) GEMINID_RETURN_IF_ERROR(CheckNoShape(flags));
  request->model = *std::move(model);
  NoteTrainersOwn(*request->model, &request->notes);
  return absl::OkStatus();
}

// A model's context is a limit and not the length that the model is trained with.
absl::Status ReadSequence(const PlanFlags& flags, PlanRequest* request) {
  const forecast::Model& model =
      request->model.has_value() ? *request->model : request->family->base;
  std::uint64_t& length = request->job.batch.sequence_length;
  const bool image = model.image.has_value();
  length = image ? model.position_rows() : std::min(model.position_rows(), kSequenceUnlessChosen);
  GEMINID_RETURN_IF_ERROR(ReadCount("--context", flags.sequence, &length));
  if (image && length != model.position_rows()) {
    return WrongFlag("--context", flags.sequence,
                     absl::StrCat("an image of this model is ", model.position_rows(),
                                  " patches and tokens; leave it out"));
  }
  if (length > model.position_rows() && model.position_table_rows() > 0) {
    return WrongFlag(
        "--context", flags.sequence,
        absl::StrCat("the model's table of positions ends at ", model.position_rows()));
  }
  if (length > model.position_rows()) {
    request->notes.push_back(absl::StrCat("Sequences of ", length,
                                          " tokens are longer than those that the model was made "
                                          "for, ",
                                          model.position_rows(), "."));
  } else if (flags.sequence.empty() && length < model.position_rows()) {
    request->notes.push_back(absl::StrCat("Sequences have ", length,
                                          " tokens; the model takes up to ", model.position_rows(),
                                          ", and --context chooses."));
  }
  return absl::OkStatus();
}

absl::Status ReadOptimizer(const PlanFlags& flags, forecast::Job* job) {
  GEMINID_ASSIGN_OR_RETURN(
      job->optimizer,
      forecast::FindOptimizer(flags.optimizer.empty() ? job->optimizer.name() : flags.optimizer,
                              flags.momentum));
  if (flags.state_dtype.empty() || flags.state_dtype == "fp32") return absl::OkStatus();
  if (flags.state_dtype != "bf16") {
    return WrongFlag("--state-dtype", flags.state_dtype, "it must be fp32 or bf16");
  }
  if (kernels::StateArrays(job->optimizer.options) == 0) {
    return WrongFlag("--state-dtype", flags.state_dtype,
                     absl::StrCat(job->optimizer.name(), " without a momentum keeps no state"));
  }
  job->optimizer.small_state = true;
  return absl::OkStatus();
}

absl::Status ReadRanksPerNode(const PlanFlags& flags, forecast::Job* job) {
  if (flags.ranks_per_node.empty()) return absl::OkStatus();
  std::uint32_t each = 0;
  GEMINID_RETURN_IF_ERROR(ReadCount("--ranks-per-node", flags.ranks_per_node, &each));
  const std::uint64_t ranks = std::uint64_t{each} * job->nodes;
  if (ranks > UINT32_MAX) {
    return WrongFlag("--ranks-per-node", flags.ranks_per_node, "that is more than any cluster has");
  }
  job->ranks = static_cast<std::uint32_t>(ranks);
  return absl::OkStatus();
}

// --batch is of all ranks, as in geminid-train; a job's batch is of one rank.
absl::Status ReadBatch(const PlanFlags& flags, forecast::Job* job) {
  std::uint64_t all = job->ranks;
  GEMINID_RETURN_IF_ERROR(ReadCount("--batch", flags.batch, &all));
  if (all % job->ranks != 0) {
    return WrongFlag("--batch", flags.batch,
                     absl::StrCat("it counts the sequences of all ranks, and must be a multiple of "
                                  "their number, ",
                                  job->ranks));
  }
  job->batch.sequences = all / job->ranks;
  return absl::OkStatus();
}

absl::Status ReadActivations(const PlanFlags& flags, PlanRequest* request) {
  using forecast::Activations;
  forecast::Job& job = request->job;
  if (flags.activations.empty()) return absl::OkStatus();
  if (flags.activations == "recompute") {
    job.activations = Activations::kRecompute;
    return absl::OkStatus();
  }
  if (flags.activations == "keep") {
    job.activations = Activations::kKeep;
    return absl::OkStatus();
  }
  if (flags.activations != "offload") {
    return WrongFlag("--activations", flags.activations, "it must be recompute, keep or offload");
  }
  job.activations = Activations::kOffload;
  if (!flags.parallel.empty()) {
    return WrongFlag("--activations", flags.activations,
                     "meshes are planned with activations recomputed or kept");
  }
  if (!flags.save_trace.empty()) {
    return WrongFlag("--activations", flags.activations,
                     "a trace of --save-trace does not say which activations are offloaded");
  }
  return absl::OkStatus();
}

absl::Status ReadJob(const PlanFlags& flags, PlanRequest* request) {
  forecast::Job& job = request->job;
  GEMINID_RETURN_IF_ERROR(ReadCount("--ranks", flags.ranks, &job.ranks));
  GEMINID_RETURN_IF_ERROR(ReadCount("--nodes", flags.nodes, &job.nodes));
  GEMINID_RETURN_IF_ERROR(ReadRanksPerNode(flags, &job));
  GEMINID_RETURN_IF_ERROR(ReadCount("--accumulate", flags.accumulate, &request->micro_batches));
  GEMINID_RETURN_IF_ERROR(ReadBatch(flags, &job));
  GEMINID_RETURN_IF_ERROR(ReadSequence(flags, request));
  return ReadActivations(flags, request);
}

// Takes ranks, speeds, memory and the batch from the measured run.
absl::Status ReadPlace(const PlanFlags& flags, PlanRequest* request) {
  constexpr std::uint64_t kReportBytesMax = std::uint64_t{256} << 20;
  if (flags.parallel != "auto") {
    return WrongFlag("--place", flags.place, "a mesh is chosen for it: give --parallel auto");
  }
  const absl::StatusOr<std::string> json = base::ReadFile(flags.place, kReportBytesMax);
  if (!json.ok()) {
    return absl::Status(json.status().code(), absl::StrCat("--place: ", json.status().message()));
  }
  absl::StatusOr<parallel::PlacedRun> run = parallel::ReadPlacedRun(*json);
  if (!run.ok()) return NamedFlag(absl::StrCat("--place ", flags.place), run.status());
  GEMINID_ASSIGN_OR_RETURN(request->job, parallel::JobOf(*run));
  request->placed = *std::move(run);
  request->host_is_given = true;
  request->notes.push_back(
      "Ranks, memory, speeds and batch are those that the run of --place measured and had; of the "
      "meshes those that it would train.");
  return absl::OkStatus();
}

absl::Status ReadTrace(const PlanFlags& flags, PlanRequest* request) {
  GEMINID_ASSIGN_OR_RETURN(const v1::TraceFile file, forecast::LoadTraceFile(flags.trace));
  absl::StatusOr<forecast::RecordedTrace> trace = forecast::FromMessage(file);
  if (!trace.ok()) return NamedFlag(flags.trace, trace.status());
  const char* const of_state = flags.momentum               ? "--momentum"
                               : !flags.optimizer.empty()   ? "--optimizer"
                               : !flags.state_dtype.empty() ? "--state-dtype"
                                                            : nullptr;
  if (!trace->optimizer.empty() && of_state != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        of_state,
        " and this --trace do not go together: its state was recorded; leave the flag out"));
  }
  if (trace->world_size % trace->ranks_on_node != 0) {
    return WrongFlag("--trace", flags.trace, "its nodes have different numbers of ranks");
  }
  forecast::Job& job = request->job;
  job.ranks = trace->world_size;
  job.nodes = trace->world_size / trace->ranks_on_node;
  job.batch = {.sequences = 1, .sequence_length = std::max<std::uint64_t>(trace->tokens, 1)};
  request->trace = *std::move(trace);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PlanRequest> ParsePlanFlags(const PlanFlags& flags, const ThisMachine& machine) {
  GEMINID_RETURN_IF_ERROR(CheckFlagsCombine(flags));
  if (flags.model.empty() && flags.config.empty() && flags.trace.empty()) {
    return absl::InvalidArgumentError(
        "say what to plan by one of --model, --config and --trace; 'geminictl plan --list-models' "
        "lists the models");
  }
  PlanRequest request;
  if (!flags.place.empty()) {
    GEMINID_RETURN_IF_ERROR(ReadModel(flags, &request));
    GEMINID_RETURN_IF_ERROR(ReadPlace(flags, &request));
    return request;
  }
  if (flags.trace.empty()) {
    GEMINID_RETURN_IF_ERROR(ReadModel(flags, &request));
    GEMINID_RETURN_IF_ERROR(ReadJob(flags, &request));
  } else {
    GEMINID_RETURN_IF_ERROR(ReadTrace(flags, &request));
  }
  GEMINID_RETURN_IF_ERROR(ReadOptimizer(flags, &request.job));
  GEMINID_RETURN_IF_ERROR(ReadPlanHardware(flags, machine, &request));
  GEMINID_RETURN_IF_ERROR(forecast::Validate(request.job));
  return request;
}

}  // namespace geminid::ctl
