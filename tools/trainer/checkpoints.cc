#include "tools/trainer/checkpoints.h"

#include <unistd.h>

#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "tools/trainer/fine_tuning.h"
#include "tools/trainer/huggingface.h"

namespace geminid::trainer {
namespace {

// What the trainer says of a run beside its state: the types that it was trained with, which the
// tensors, fp32 in any case, do not show.
constexpr char kTypesName[] = "types.json";
constexpr size_t kTypesBytesMax = 4096;

std::string TypesText(const TrainOptions& options) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("dtype").Value(Name(options.zero.data_type));
  json.Key("norm_dtype").Value(Name(NormType(options)));
  json.EndObject();
  return json.text() + "\n";
}

// INVALID_ARGUMENT where the checkpoint's run had other types: its next steps would have other
// bits.
absl::Status CheckTypes(const std::string& folder, const TrainOptions& options) {
  const std::string path = absl::StrCat(folder, "/", kTypesName);
  const absl::StatusOr<std::string> text = base::ReadFile(path, kTypesBytesMax);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();  // another trainer's
  GEMINID_RETURN_IF_ERROR(text.status());
  if (*text == TypesText(options)) return absl::OkStatus();
  base::JsonValue root;
  base::JsonError error;
  std::string dtype, norms;
  if (base::ParseJson(*text, &root, &error)) {
    for (const base::JsonValue::Member& member : root.members) {
      if (member.key == "dtype") dtype = member.value.text;
      if (member.key == "norm_dtype") norms = member.value.text;
    }
  }
  if (dtype.empty() || norms.empty()) {
    return absl::DataLossError(
        absl::StrCat("'", path, "' does not say \"dtype\" and \"norm_dtype\""));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", folder, "' was trained with weights in ", dtype, " and norms in ", norms,
      ", and this run has ", Name(options.zero.data_type), " and ", Name(NormType(options)),
      "; give the same --dtype and --norm-precision, or begin anew with its values by --load and "
      "another folder to --save"));
}

}  // namespace

Checkpoints::Checkpoints(const TrainOptions& options, zero::ModelState* state,
                         collectives::Communicator* communicator,
                         std::vector<zero::Parameter> parameters)
    : options_(options),
      state_(state),
      communicator_(communicator),
      parameters_(std::move(parameters)) {}

absl::StatusOr<std::unique_ptr<Checkpoints>> Checkpoints::Create(
    const TrainOptions& options, zero::ModelState* state, collectives::Communicator* communicator,
    std::vector<zero::Parameter> parameters) {
  std::unique_ptr<Checkpoints> made(
      new Checkpoints(options, state, communicator, std::move(parameters)));
  if (options.save.empty()) return made;
  GEMINID_ASSIGN_OR_RETURN(
      made->saver_, checkpoint::Saver::Create(
                        state, communicator, made->parameters_,
                        {.folder = options.save,
                         .keep = options.keep,
                         .texts = {{"config.json", HuggingFaceConfig(options.model, "float32")},
                                   {kTypesName, TypesText(options)}}}));
  return made;
}

absl::Status LoadModelValues(const TrainOptions& options, zero::ModelState* state,
                             const std::vector<zero::Parameter>& parameters) {
  const auto load = [&](std::string_view without, bool adapters) {
    return checkpoint::LoadValues(options.load, state, parameters,
                                  [&](const zero::Parameter& parameter) {
                                    if (!adapters && IsAdapter(parameter)) return std::string();
                                    std::string_view name = parameter.name;
                                    if (name.starts_with(without)) {
                                      name.remove_prefix(without.size());
                                    }
                                    return std::string(name);
                                  });
  };
  // With the adapters of a checkpoint, if it has any.
  if (options.model.lora_rank > 0 && load("", true).ok()) return absl::OkStatus();
  absl::Status status = load("", false);
  // Files of the base model, as OpenAI's GPT-2 has them, leave out what the language model's add.
  if (status.ok() || load(LanguageModelPrefix(options.model.family), false).ok()) {
    return absl::OkStatus();
  }
  return status;
}

absl::StatusOr<Checkpoints::Beginning> Checkpoints::Begin(
    const zero::ModelState::Fill& fill,
    const std::function<checkpoint::RunState(uint64_t)>& run_at) {
  Beginning beginning;
  if (const std::optional<zero::Resumed> left = state_->resumed(); left.has_value()) {
    if (checkpoint::RunState{left->data_position, left->random_state} != run_at(left->step)) {
      return absl::InternalError("what the ranks left in memory is another run's");
    }
    return Beginning{left->step, "memory"};
  }
  const absl::StatusOr<std::string> newest =
      options_.resume ? checkpoint::Newest(options_.save) : absl::NotFoundError("");
  if (newest.ok()) GEMINID_RETURN_IF_ERROR(CheckTypes(*newest, options_));
  if (!absl::IsNotFound(newest.status())) {
    GEMINID_ASSIGN_OR_RETURN(const checkpoint::Loaded loaded,
                             checkpoint::Load(options_.save, state_, communicator_, parameters_));
    if (loaded.run != run_at(loaded.progress.step)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", loaded.folder,
          "' was saved with another --seed, --batch or --accumulate, so its place in the text is "
          "not this run's; give the same, or another folder to --save"));
    }
    beginning = {loaded.progress.step, loaded.folder};
  } else if (!options_.load.empty()) {
    // Adapters that the folder does not have begin as they do.
    if (options_.model.lora_rank > 0) GEMINID_RETURN_IF_ERROR(state_->Initialize(fill));
    GEMINID_RETURN_IF_ERROR(LoadModelValues(options_, state_, parameters_));
    beginning.from = options_.load;
  } else {
    GEMINID_RETURN_IF_ERROR(state_->Initialize(fill));
  }
  return beginning;
}

absl::Status Checkpoints::AfterStep(uint64_t done, bool last, const checkpoint::RunState& run) {
  const bool due = options_.save_every > 0 && done % options_.save_every == 0;
  if (saver_ == nullptr || (!due && !last) || saved_ == done) return absl::OkStatus();
  GEMINID_RETURN_IF_ERROR(saver_->Save(run));
  saved_ = done;
  return absl::OkStatus();
}

absl::Status Checkpoints::AfterResume(uint64_t done, bool last, const checkpoint::RunState& run) {
  if (saver_ == nullptr || !state_->resumed().has_value()) return absl::OkStatus();
  std::vector<double> there = {0};
  if (communicator_->Rank() == 0) {
    const absl::StatusOr<std::string> newest = checkpoint::Newest(options_.save);
    uint64_t step = 0;
    const bool saved =
        newest.ok() && absl::SimpleAtoi(newest->substr(newest->rfind('-') + 1), &step);
    there[0] = saved && step >= done ? 1 : 0;
  }
  GEMINID_RETURN_IF_ERROR(communicator_->AllReduce(there, there, collectives::ReduceOp::kSum));
  return there[0] > 0 ? absl::OkStatus() : AfterStep(done, last, run);
}

absl::Status Checkpoints::Export() {
  if (options_.export_to.empty()) return absl::OkStatus();
  const char* const type = options_.export_type == checkpoint::ExportType::kFloat32    ? "float32"
                           : options_.export_type == checkpoint::ExportType::kBFloat16 ? "bfloat16"
                                                                                       : "float16";
  ModelConfig merged = options_.model;
  merged.lora_rank = 0;
  checkpoint::ExportOptions options = {.folder = options_.export_to,
                                       .type = options_.export_type,
                                       .texts = {{"config.json", HuggingFaceConfig(merged, type)}}};
  options.name_of = [](const zero::Parameter& parameter) {
    return IsAdapter(parameter) ? std::string() : parameter.name;
  };
  if (options_.model.lora_rank > 0) {
    options.adjust = [this](zero::ParameterId id, std::vector<float>* values) {
      return MergeAdapter(
          options_.model, id,
          [this](zero::ParameterId other) { return state_->ReadParameter(other); }, values);
    };
  }
  return checkpoint::ExportValues(options, state_, communicator_, parameters_);
}

absl::Status CheckExport(const TrainOptions& options) {
  if (options.export_to.empty() || ::access(options.export_to.c_str(), F_OK) != 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("'", options.export_to,
                                                 "' exists; give --export a folder that does not, "
                                                 "nothing is overwritten"));
}

absl::StatusOr<std::string> Checkpoints::Finish() {
  if (saver_ == nullptr) return std::string();
  return saver_->Wait();
}

}  // namespace geminid::trainer
