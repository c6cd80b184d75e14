#include "tools/trainer/flags/resumed_run.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "base/json.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/checkpoint/folder.h"
#include "client/checkpoint/newest.h"
#include "client/checkpoint/run_record.h"
#include "tools/trainer/flags/run_terms.h"
#include "training/data/sampling.h"
#include "training/models/huggingface.h"

namespace geminid::trainer {
namespace {

using base::JsonValue;

constexpr uint64_t kFormat = 1;
constexpr size_t kBytesMax = size_t{1} << 20;
// Versions before run.json wrote only this file.
constexpr char kTypesName[] = "types.json";

const JsonValue* Member(const JsonValue& object, const std::string& key) {
  for (const JsonValue::Member& member : object.members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

absl::StatusOr<JsonValue> Parse(const std::string& text) {
  JsonValue root;
  base::JsonError error;
  if (base::ParseJson(text, &root, &error)) return root;
  return absl::DataLossError(absl::StrCat("line ", error.position.line, ", column ",
                                          error.position.column, ": ", error.problem));
}

absl::StatusOr<RunDescription> ReadTypes(const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const JsonValue root, Parse(text));
  const JsonValue* const weights = Member(root, "dtype");
  const JsonValue* const norms = Member(root, "norm_dtype");
  if (weights == nullptr || norms == nullptr) {
    return absl::DataLossError("it does not say \"dtype\" and \"norm_dtype\"");
  }
  return RunDescription{
      .id = "",
      .terms = {{"dtype", weights->text},
                {"norm-precision", norms->text == "fp32" ? "fp32" : "as-weights"}}};
}

bool IsFolder(const std::string& path) {
  struct stat about = {};
  return ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

std::string RunText(const RunDescription& run) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("format").Value(kFormat);
  json.Key("id").Value(run.id);
  json.Key("run").BeginObject();
  for (const auto& [name, value] : run.terms) json.Key(name).Value(value);
  json.EndObject().EndObject();
  return json.text() + "\n";
}

absl::StatusOr<RunDescription> ReadRunText(const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const JsonValue root, Parse(text));
  const JsonValue* const format = Member(root, "format");
  const JsonValue* const id = Member(root, "id");
  const JsonValue* const terms = Member(root, "run");
  if (format == nullptr || id == nullptr || terms == nullptr) {
    return absl::DataLossError("it does not say \"format\", \"id\" and \"run\"");
  }
  if (format->text != absl::StrCat(kFormat)) {
    return absl::DataLossError(
        absl::StrCat("it has format ", format->text, "; this program reads ", kFormat));
  }
  RunDescription run = {.id = id->text, .terms = {}};
  for (const JsonValue::Member& term : terms->members) run.terms[term.key] = term.value.text;
  // The name that versions without --sampling gave to their only kind of sampling.
  const auto sampling = run.terms.find("sampling");
  if (sampling != run.terms.end() && sampling->second == "uniform by seed and number") {
    sampling->second = Name(Sampling::kReplacement);
  }
  return run;
}

absl::StatusOr<RunDescription> ReadRunOf(const std::string& checkpoint) {
  for (const auto& [name, read] :
       {std::pair(kRunName, &ReadRunText), std::pair(+kTypesName, &ReadTypes)}) {
    const std::string path = absl::StrCat(checkpoint, "/", name);
    const absl::StatusOr<std::string> text = base::ReadFile(path, kBytesMax);
    if (absl::IsNotFound(text.status())) continue;
    GEMINID_RETURN_IF_ERROR(text.status());
    absl::StatusOr<RunDescription> run = read(*text);
    if (run.ok()) return run;
    return absl::Status(run.status().code(),
                        absl::StrCat("'", path, "': ", std::string(run.status().message())));
  }
  return RunDescription();
}

absl::StatusOr<std::optional<ResumedRun>> FindResumed(const std::string& save) {
  if (!IsFolder(save)) return std::nullopt;
  absl::StatusOr<checkpoint::ChosenCheckpoint> chosen = checkpoint::ChooseNewest(save);
  if (absl::IsNotFound(chosen.status())) return std::nullopt;
  GEMINID_RETURN_IF_ERROR(chosen.status());
  ResumedRun resumed;
  resumed.checkpoint = chosen->path;
  resumed.passed_over = chosen->passed_over;
  resumed.without_record = chosen->without_record;
  absl::StatusOr<RunDescription> run = ReadRunOf(chosen->path);
  if (!run.ok()) return WithOlderOne(chosen->path, run.status());
  resumed.run = *std::move(run);
  // If a checkpoint's record cannot be read, loading the checkpoint reports why.
  const absl::StatusOr<std::string> text =
      base::ReadFile(absl::StrCat(chosen->path, "/", checkpoint::kRecordName), kBytesMax);
  const absl::StatusOr<checkpoint::RunRecord> record =
      text.ok() ? checkpoint::ReadRecord(*text) : text.status();
  if (record.ok()) resumed.step = record->step;
  return resumed;
}

absl::Status WithOlderOne(const std::string& checkpoint, const absl::Status& why) {
  if (!absl::IsDataLoss(why) && !absl::IsNotFound(why)) return why;
  const std::string older = checkpoint::WholeOneBefore(checkpoint);
  if (older.empty()) return why;
  return absl::Status(why.code(), absl::StrCat(std::string(why.message()), "; remove '", checkpoint,
                                               "' to go on from '", older, "'"));
}

absl::Status CheckTerms(const std::string& checkpoint, const RunTerms& was, const RunTerms& is,
                        std::vector<std::string>* taken) {
  TermChanges changes = CompareTerms(was, is);
  taken->insert(taken->end(), changes.taken.begin(), changes.taken.end());
  if (changes.refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--resume cannot go on from '", checkpoint,
                                                 "': ", absl::StrJoin(changes.refused, "; "),
                                                 ". Give what the checkpoint has, or begin "
                                                 "another run with its values: --load ",
                                                 checkpoint, ", and another --save"));
}

absl::Status CheckLoadedShape(const std::string& folder, const ModelConfig& model) {
  const absl::StatusOr<ModelConfig> loaded = ReadHuggingFaceConfig(folder);
  if (absl::IsNotFound(loaded.status())) return absl::OkStatus();  // the folder has only tensors
  GEMINID_RETURN_IF_ERROR(loaded.status());
  RunTerms was = ShapeTermsOf(*loaded);
  // New adapters are allowed.
  if (loaded->lora_rank == 0) {
    was.erase("lora-rank");
    was.erase("lora-alpha");
  }
  const TermChanges changes = CompareTerms(was, ShapeTermsOf(model));
  if (changes.refused.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--load ", folder, ": another model: ", absl::StrJoin(changes.refused, "; "),
                   ". Leave these flags and --model out: the folder describes the model"));
}

absl::StatusOr<std::vector<std::string>> CheckpointsOfRun(const std::string& save,
                                                          const std::string& id) {
  GEMINID_ASSIGN_OR_RETURN(std::vector<std::string> names, checkpoint::FinishedIn(save));
  std::erase_if(names, [&](const std::string& name) {
    const absl::StatusOr<RunDescription> run = ReadRunOf(absl::StrCat(save, "/", name));
    return !run.ok() || run->id != id;
  });
  return names;
}

}  // namespace geminid::trainer
