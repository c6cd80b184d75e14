// Reads and writes models in the format of Hugging Face's transformers: config.json and the names
// of tensors.
#ifndef GEMINID_TRAINING_MODELS_HUGGINGFACE_H_
#define GEMINID_TRAINING_MODELS_HUGGINGFACE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json.h"
#include "training/models/model_config.h"

namespace geminid::trainer {

// The longest sequence of a loaded model unless --context is given.
inline constexpr uint64_t kLoadedContextMax = 1024;

// Keys of config.json in checkpoints with unmerged adapters. They are not transformers' own.
inline constexpr char kLoraRankKey[] = "geminid_lora_rank";
inline constexpr char kLoraAlphaKey[] = "geminid_lora_alpha";

// Parses the text of a config.json. INVALID_ARGUMENT names the line.
absl::StatusOr<base::JsonValue> ParseConfig(const std::string& text);

// The model that a config.json describes, and whether the trainer can train the model.
struct DescribedModel {
  ModelConfig model;
  absl::Status trains = {};  // INVALID_ARGUMENT names the key
};
// `family` has a reader. Ignores keys that change nothing, because checkpoints have dozens of them.
// INVALID_ARGUMENT names a key that changes a size and has an unsupported value.
absl::StatusOr<DescribedModel> Describe(Family family, const base::JsonValue& root);

// Reads a config.json of a family that is trained, from `folder` or from the newest checkpoint in
// the folder. NOT_FOUND without a file. INVALID_ARGUMENT names the file, the key and the reason why
// the model cannot run, such as an unknown activation or scaling.
absl::StatusOr<ModelConfig> ReadHuggingFaceConfig(const std::string& folder);

// Writes the text of config.json. `data_type` is the type of the tensors beside it: "float32".
std::string HuggingFaceConfig(const ModelConfig& model, const std::string& data_type);

// The prefix of a language model's tensor names. The names of the base model alone lack this
// prefix.
std::string_view LanguageModelPrefix(Family family);

// For bytes of --text. INVALID_ARGUMENT if a tokenizer beside the values of --load, `load`, says
// that the model's tokens are no bytes. `notes` receives a remark where only the vocabulary is
// larger.
absl::Status CheckTextForLoaded(const std::string& load, const ModelConfig& model,
                                std::vector<std::string>* notes);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_HUGGINGFACE_H_
