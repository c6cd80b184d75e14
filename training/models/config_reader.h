// Functions that the families' readers of config.json share. Their defaults are those of the
// transformers library.
#ifndef GEMINID_TRAINING_MODELS_CONFIG_READER_H_
#define GEMINID_TRAINING_MODELS_CONFIG_READER_H_

#include <cstdint>
#include <optional>

#include "training/models/config_keys.h"
#include "training/models/model_config.h"

namespace geminid::trainer {

struct ConfigReader {
  explicit ConfigReader(const base::JsonValue& root) : sizes(root), training(root) {}

  // The keys that determine memory and time. An error here stops both the trainer and forecasts.
  ConfigKeys sizes;
  // The other keys that training needs. An error here, or a value that the trainer does not
  // support, stops the trainer alone.
  ConfigKeys training;
};

// A vocabulary of bytes has no special tokens unless the file names them. A token outside the
// vocabulary is ignored: transformers' defaults are too large for small vocabularies.
void ReadSpecialTokens(ConfigReader& from, std::optional<uint64_t> usual_first,
                       std::optional<uint64_t> usual_end, ModelConfig* model);

// Reads the sizes of an encoder of 2018: LayerNorm, biases, and equal numbers of keys and queries.
void ReadEncoder(ConfigKeys& keys, ModelConfig* model);
// Of 'hidden_act': gelu, gelu_new, gelu_pytorch_tanh or relu.
Activation ReadActivation(ConfigKeys& keys);
// How many a classifier has: by name, by number, or the two of a configuration that says neither.
uint64_t ReadClasses(ConfigKeys& keys);

// Newer versions of transformers write 'rope_parameters'. Older ones write `theta` ('rope_theta' in
// most families) and 'rope_scaling'; if a file has both forms, 'rope_scaling' wins.
void ReadRotary(ConfigReader& from, const char* theta, double usual_theta, ModelConfig* model);
void WriteRotary(const ModelConfig& model, const char* theta, base::JsonWriter* json);

inline constexpr char kRotaryShareKey[] = "partial_rotary_factor";

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_CONFIG_READER_H_
