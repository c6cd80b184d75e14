// What the families' readers of config.json share. Where the transformers library takes a default
// of its own, so do they.
#ifndef GEMINID_TRAINING_MODELS_CONFIG_READER_H_
#define GEMINID_TRAINING_MODELS_CONFIG_READER_H_

#include <cstdint>
#include <optional>

#include "training/models/config_keys.h"
#include "training/models/model_config.h"

namespace geminid::trainer {

struct ConfigReader {
  explicit ConfigReader(const base::JsonValue& root) : sizes(root), training(root) {}

  // Keys that memory and time depend on. A wrong one is an error for the trainer and for forecasts.
  ConfigKeys sizes;
  // The other keys that training needs. A wrong one, or a value that the trainer does not support,
  // is an error for the trainer alone.
  ConfigKeys training;
};

// A vocabulary of bytes has no special tokens unless the file names them. A token that is outside
// of the vocabulary, as transformers' defaults are for small ones, can end nothing.
void ReadSpecialTokens(ConfigReader& from, std::optional<uint64_t> usual_first,
                       std::optional<uint64_t> usual_end, ModelConfig* model);

// Layers as in the encoders of 2018: LayerNorm, biases, and as many keys as queries.
void ReadEncoder(ConfigKeys& keys, ModelConfig* model);
// How many a classifier has: by name, by number, or the two of a configuration that says neither.
uint64_t ReadClasses(ConfigKeys& keys);

// Newer versions of transformers keep all of it in 'rope_parameters', older ones in `theta`, for
// most families 'rope_theta', and 'rope_scaling', which wins where both are there.
void ReadRotary(ConfigReader& from, const char* theta, double usual_theta, ModelConfig* model);
void WriteRotary(const ModelConfig& model, const char* theta, base::JsonWriter* json);

inline constexpr char kRotaryShareKey[] = "partial_rotary_factor";

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_CONFIG_READER_H_
