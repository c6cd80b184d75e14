// Reads and writes models in the form of Hugging Face's transformers: config.json and the names of
// tensors.
#ifndef GEMINID_TRAINING_MODELS_HUGGINGFACE_H_
#define GEMINID_TRAINING_MODELS_HUGGINGFACE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/json.h"
#include "training/models/model_config.h"

namespace geminid::trainer {

// Sequences of a loaded model are no longer than this unless --context says so.
inline constexpr uint64_t kLoadedContextMax = 1024;

// Keys of config.json in checkpoints whose adapters are not merged; not transformers' own.
inline constexpr char kLoraRankKey[] = "geminid_lora_rank";
inline constexpr char kLoraAlphaKey[] = "geminid_lora_alpha";

// The object that the text of a config.json holds. INVALID_ARGUMENT names the line.
absl::StatusOr<base::JsonValue> ParseConfig(const std::string& text);

// The model that a config.json describes, and whether the trainer trains it.
struct DescribedModel {
  ModelConfig model;
  absl::Status trains = {};  // INVALID_ARGUMENT naming the key
};
// `family` has a reader. Keys that change nothing are passed over, as the checkpoints have dozens;
// a key that changes a size and that has a value we cannot honour is an error. INVALID_ARGUMENT
// naming the key.
absl::StatusOr<DescribedModel> Describe(Family family, const base::JsonValue& root);

// The model that config.json describes, of one of the families that are trained. It is looked for
// in the folder, and in the newest checkpoint there. NOT_FOUND without one; INVALID_ARGUMENT names
// the file, the key and why the model cannot be run, as for an activation or a scaling that is not
// known.
absl::StatusOr<ModelConfig> ReadHuggingFaceConfig(const std::string& folder);

// The text of config.json. `data_type` is of the tensors beside it: "float32".
std::string HuggingFaceConfig(const ModelConfig& model, const std::string& data_type);

// What the names of the tensors of a language model begin with, and those of the base model alone
// do not.
std::string_view LanguageModelPrefix(Family family);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_HUGGINGFACE_H_
