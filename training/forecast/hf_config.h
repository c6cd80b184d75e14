// Reads a model's shape from the config.json of a Hugging Face checkpoint.
#ifndef GEMINID_TRAINING_FORECAST_HF_CONFIG_H_
#define GEMINID_TRAINING_FORECAST_HF_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "training/forecast/model.h"

namespace geminid::forecast {

// `json` is the text of the file. Known model types: gpt2, opt, llama, mistral, mixtral, qwen2,
// qwen3, gemma, gemma2, gemma3_text, phi3, gpt_neox, falcon, bert, t5 and vit. Keys that do not
// change a size are passed over, as the checkpoints have dozens; a key that does and that has a
// value we cannot honour is an error. INVALID_ARGUMENT naming the key and what to do instead.
absl::StatusOr<Model> ModelFromHuggingFace(const std::string& json);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_HF_CONFIG_H_
