#include "training/models/huggingface.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "client/checkpoint/newest.h"
#include "training/models/config_reader.h"

namespace geminid::trainer {
namespace {

// The files of a tokenizer beside a model of Hugging Face.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "vocab.json",
                                           "vocab.txt", "spiece.model"};
constexpr char kConfigName[] = "/config.json";
constexpr size_t kConfigBytesMax = size_t{1} << 20;

absl::StatusOr<std::string> FindConfig(const std::string& folder) {
  const auto exists = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  if (exists(folder + kConfigName)) return folder + kConfigName;
  struct stat about = {};
  if (::stat(folder.c_str(), &about) == 0 && !S_ISDIR(about.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", folder,
        "' is not a folder; give the folder of a checkpoint or of a Hugging Face model"));
  }
  if (exists(folder)) {
    const absl::StatusOr<checkpoint::ChosenCheckpoint> chosen = checkpoint::ChooseNewest(folder);
    if (chosen.ok()) return chosen->path + kConfigName;
    if (!absl::IsNotFound(chosen.status())) return chosen.status();
  }
  return absl::NotFoundError(
      absl::StrCat("'", folder,
                   "' has neither config.json nor checkpoints; give --load the folder of a "
                   "checkpoint or of a Hugging Face model"));
}

// Always writes both keys, because transformers has its own defaults for absent ones.
void WriteSpecialTokens(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("bos_token_id");
  model.first_token ? json->Value(*model.first_token) : json->Null();
  json->Key("eos_token_id");
  if (model.end_tokens.empty()) {
    json->Null();
  } else if (model.end_tokens.size() == 1) {
    json->Value(model.end_tokens.front());
  } else {
    json->BeginArray();
    for (const uint64_t token : model.end_tokens) json->Value(token);
    json->EndArray();
  }
}

// Reads the text of the file alone.
absl::StatusOr<ModelConfig> ReadTrained(const std::string& text) {
  GEMINID_ASSIGN_OR_RETURN(const base::JsonValue root, ParseConfig(text));
  ConfigKeys keys(root);
  const std::string type = keys.Word("model_type", "");
  const std::optional<Family> family = FamilyOfType(type);
  if (!family || !TraitsOf(*family).trains()) {
    return absl::InvalidArgumentError(absl::StrCat("'model_type' is '", type, "'; ",
                                                   NamesOfTypes(/*trained=*/true), " are known"));
  }
  const bool is_quantized = std::ranges::any_of(root.members, [](const auto& member) {
    return member.key == "quantization_config" && member.value.type != base::JsonValue::Type::kNull;
  });
  if (is_quantized) {
    return absl::InvalidArgumentError(
        "'quantization_config': the weights are quantized, and are read as fp32, bf16 or fp16; "
        "give the folder that they were quantized from");
  }
  GEMINID_ASSIGN_OR_RETURN(DescribedModel described, Describe(*family, root));
  GEMINID_RETURN_IF_ERROR(described.trains);
  ModelConfig& model = described.model;
  model.lora_rank = keys.Count(kLoraRankKey, 0);
  model.lora_alpha = keys.Real(kLoraAlphaKey, static_cast<double>(model.lora_rank));
  GEMINID_RETURN_IF_ERROR(keys.status());
  // An image is all of its patches.
  model.context = model.image ? *model.positions : std::min(*model.positions, kLoadedContextMax);
  GEMINID_RETURN_IF_ERROR(Validate(model));
  return std::move(model);
}

}  // namespace

absl::StatusOr<base::JsonValue> ParseConfig(const std::string& text) {
  base::JsonValue root;
  base::JsonError error;
  if (!base::ParsePythonJson(text, &root, &error)) {
    return absl::InvalidArgumentError(absl::StrCat("line ", error.position.line, ", column ",
                                                   error.position.column, ": ", error.problem));
  }
  if (root.type == base::JsonValue::Type::kObject) return root;
  return absl::InvalidArgumentError("the file must hold one object, as config.json does");
}

absl::StatusOr<DescribedModel> Describe(Family family, const base::JsonValue& root) {
  DescribedModel described = {.model = {.family = family}};
  ConfigReader from(root);
  TraitsOf(family).read(from, &described.model);
  GEMINID_RETURN_IF_ERROR(from.sizes.status());
  described.trains = from.training.status();
  return described;
}

absl::StatusOr<ModelConfig> ReadHuggingFaceConfig(const std::string& folder) {
  GEMINID_ASSIGN_OR_RETURN(const std::string path, FindConfig(folder));
  GEMINID_ASSIGN_OR_RETURN(const std::string text, base::ReadFile(path, kConfigBytesMax));
  absl::StatusOr<ModelConfig> model = ReadTrained(text);
  if (model.ok()) {
    if (!model->masks() || model->masking) return model;
    const std::string beside = path.substr(0, path.size() - (sizeof(kConfigName) - 1));
    GEMINID_ASSIGN_OR_RETURN(model->masking, FindMasking(beside));
    if (const absl::Status valid = Validate(*model); !valid.ok()) return valid;
    return model;
  }
  return absl::InvalidArgumentError(absl::StrCat("'", path, "': ", model.status().message()));
}

// Writes the form that transformers reads.
std::string HuggingFaceConfig(const ModelConfig& model, const std::string& data_type) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("architectures").BeginArray().Value(model.traits().architecture).EndArray();
  json.Key("model_type").Value(Name(model.family));
  model.traits().write(model, &json);
  WriteSpecialTokens(model, &json);
  json.Key("torch_dtype").Value(data_type);
  if (model.lora_rank > 0) {
    json.Key(kLoraRankKey).Value(model.lora_rank).Key(kLoraAlphaKey).Real(model.lora_alpha);
  }
  json.EndObject();
  return json.text() + "\n";
}

std::string_view LanguageModelPrefix(Family family) {
  const std::string_view layers = TraitsOf(family).names.layers;
  return layers.substr(0, layers.find('.') + 1);
}

absl::Status CheckTextForLoaded(const std::string& load, const ModelConfig& model,
                                std::vector<std::string>* notes) {
  const uint64_t of_text = kByteVocabulary + (model.masks() ? 1 : 0);
  if (model.vocabulary <= of_text) return absl::OkStatus();
  const std::string words = absl::StrCat("--text is bytes, but the model of --load has ",
                                         model.vocabulary, " kinds of tokens");
  const absl::StatusOr<std::string> folder = checkpoint::FolderOfValues(load);
  if (!folder.ok()) return absl::OkStatus();  // reading the values reports why
  for (const char* const file : kTokenizerFiles) {
    if (::access(absl::StrCat(*folder, "/", file).c_str(), F_OK) != 0) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        words, ", made by '", *folder, "/", file,
        "'; give --shards the files that 'python -m geminid tokens shards' makes of the text"));
  }
  notes->push_back(absl::StrCat(words, "; if a tokenizer made them, give --shards its tokens"));
  return absl::OkStatus();
}

}  // namespace geminid::trainer
