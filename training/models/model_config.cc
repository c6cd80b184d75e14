#include "training/models/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "kernels/model/attention/attention.h"
#include "training/models/parameters.h"

namespace geminid::trainer {
namespace {

// Limits that keep every product of sizes far from overflow. All published models are far below.
constexpr uint64_t kLayersMax = 1024;
constexpr uint64_t kHiddenMax = 1 << 17;
constexpr uint64_t kIntermediateMax = 1 << 19;
constexpr uint64_t kContextMax = 1 << 20;
constexpr uint64_t kVocabularyMax = 1 << 20;
constexpr uint64_t kExpertsMax = 1024;

constexpr uint64_t kLlamaIntermediateMultiple = 64;

constexpr ModelConfig Gpt2(uint64_t layers, uint64_t hidden, uint64_t heads, uint64_t context) {
  return {.family = Family::kGpt2,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = heads,
          .intermediate = 4 * hidden,
          .context = context};
}

constexpr ModelConfig GptNeox(ModelConfig gpt2) {
  gpt2.family = Family::kGptNeox;
  return gpt2;
}

constexpr ModelConfig Llama(uint64_t layers, uint64_t hidden, uint64_t heads, uint64_t kv_heads,
                            uint64_t intermediate, uint64_t context) {
  return {.family = Family::kLlama,
          .layers = layers,
          .hidden = hidden,
          .heads = heads,
          .kv_heads = kv_heads,
          .intermediate = intermediate,
          .context = context};
}

constexpr ModelConfig Mixtral(ModelConfig llama, uint64_t experts, uint64_t experts_per_token) {
  llama.family = Family::kMixtral;
  llama.experts = experts;
  llama.experts_per_token = experts_per_token;
  llama.balance_loss = kUsualBalanceLoss;
  return llama;
}

constexpr ModelConfig Mistral(ModelConfig llama, uint64_t window) {
  llama.family = Family::kMistral;
  llama.window = window;
  return llama;
}

constexpr ModelConfig Qwen3(ModelConfig llama, uint64_t head_width) {
  llama.family = Family::kQwen3;
  llama.head_width = head_width;
  llama.tied = true;
  return llama;
}

// The mask token's number follows those of the bytes. The epsilon is that of the published
// checkpoints.
constexpr ModelConfig Bert(ModelConfig gpt2) {
  gpt2.family = Family::kBert;
  gpt2.norm_epsilon = 1e-12;
  gpt2.vocabulary = kByteVocabulary + 1;
  gpt2.masking = Masking{.mask_token = kByteVocabulary};
  return gpt2;
}

// The epsilon is that of the published checkpoints.
constexpr ModelConfig Vit(uint64_t layers, uint64_t hidden, uint64_t heads, ImageShape image,
                          uint64_t classes) {
  const uint64_t across = image.side / image.patch;
  ModelConfig config = Gpt2(layers, hidden, heads, across * across + 1);
  config.family = Family::kVit;
  config.norm_epsilon = 1e-12;
  config.vocabulary = 0;
  config.image = image;
  config.classes = classes;
  return config;
}

constexpr std::array kPresets = {
    Preset{"gpt2-tiny", Gpt2(2, 64, 4, 64)},
    Preset{"gpt2-3m", Gpt2(4, 256, 4, 128)},
    Preset{"gpt2-20m", Gpt2(12, 384, 6, 256)},
    Preset{"gpt2-small", Gpt2(12, 768, 12, 1024)},
    Preset{"gpt2-medium", Gpt2(24, 1024, 16, 1024)},
    Preset{"gpt2-large", Gpt2(36, 1280, 20, 1024)},
    Preset{"gpt2-xl", Gpt2(48, 1600, 25, 1024)},
    Preset{"llama-tiny", Llama(2, 64, 4, 2, 192, 64)},
    Preset{"llama-3m", Llama(4, 256, 4, 4, 704, 128)},
    Preset{"llama-20m", Llama(12, 384, 6, 6, 1024, 256)},
    Preset{"llama-125m", Llama(12, 768, 12, 12, 2048, 1024)},
    Preset{"llama-1b", Llama(22, 2048, 32, 4, 5632, 2048)},  // the shape of TinyLlama
    Preset{"llama-7b", Llama(32, 4096, 32, 32, 11008, 2048)},
    Preset{"mistral-tiny", Mistral(Llama(2, 64, 4, 2, 192, 64), 24)},
    Preset{"qwen3-tiny", Qwen3(Llama(2, 64, 4, 2, 192, 64), 32)},
    Preset{"mixtral-tiny", Mixtral(Llama(2, 64, 4, 2, 128, 64), 4, 2)},
    Preset{"mixtral-20m", Mixtral(Llama(6, 256, 4, 2, 512, 256), 8, 2)},
    Preset{"mixtral-8x7b", Mixtral(Llama(32, 4096, 32, 8, 14336, 2048), 8, 2)},
    Preset{"pythia-tiny", GptNeox(Gpt2(2, 64, 4, 64))},
    Preset{"pythia-160m", GptNeox(Gpt2(12, 768, 12, 2048))},
    Preset{"bert-tiny", Bert(Gpt2(2, 64, 4, 64))},
    Preset{"bert-base", Bert(Gpt2(12, 768, 12, 512))},
    Preset{"vit-tiny", Vit(2, 64, 4, {.side = 32, .patch = 8}, 10)},
    Preset{"vit-base", Vit(12, 768, 12, {.side = 224}, 1000)},
};

uint64_t CountElements(const ModelConfig& config, const ModelPart& part) {
  uint64_t count = 0;
  for (const ParameterSpec& spec : MakeParameters(config, part).specs) count += spec.elements();
  return count;
}

absl::Status CheckRange(const char* name, uint64_t value, uint64_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; it must be from 1 to ", max));
}

absl::Status CheckDivides(const char* what, uint64_t part, const char* of, uint64_t whole) {
  if (whole % part == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " (", part, ") must divide ", of, " (",
                                                 whole, "); the remainder is ", whole % part));
}

// Checks the families whose heads divide the residual stream equally.
absl::Status CheckEvenHeads(const ModelConfig& config) {
  if (!config.layer_norms()) return absl::OkStatus();
  if (config.kv_heads != config.heads) {
    return absl::InvalidArgumentError(
        "GPT-2, OPT and GPT-NeoX have as many key/value heads as heads; use the llama family for "
        "fewer");
  }
  if (!config.head_width && config.window == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "GPT-2, OPT and GPT-NeoX have neither heads of their own width nor a sliding window; use the "
      "mistral family");
}

absl::Status CheckRotaryShare(const ModelConfig& config, const std::string& from) {
  if (!config.rotary()) return absl::OkStatus();
  const double share = config.turned_share();
  if (!(share > 0 && share <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the share of a head that rotary positions turn is ", share,
                     "; it must be above 0 and at "
                     "most 1"));
  }
  const uint64_t turned = config.rotary_columns();
  if (turned == config.head_dim() && turned % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("rotary positions need an even head width, but it is ", turned, from));
  }
  if (turned > 0 && turned % 2 == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rotary positions turn ", turned, " of the ", config.head_dim(), " columns of a head", from,
      "; the number must be even and above 0: use fewer heads, or "
      "another 'rotary_pct' in the config.json"));
}

absl::Status CheckBlock(const ModelConfig& config) {
  if (config.like_gpt_neox()) return absl::OkStatus();
  if (!config.parallel() && config.rotary_columns() == config.head_dim()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the ", Name(config.family),
                   " family has neither a parallel block nor heads that are turned in part; use "
                   "the gpt_neox family"));
}

absl::Status CheckHeads(const ModelConfig& config) {
  if (!config.head_width) {
    GEMINID_RETURN_IF_ERROR(
        CheckDivides("the number of heads", config.heads, "the hidden size", config.hidden));
  } else if (*config.head_width == 0) {
    return absl::InvalidArgumentError("the width of a head is 0; it must be 1 or more");
  }
  const std::string from =
      config.head_width ? ""
                        : absl::StrCat(" (hidden ", config.hidden, " / ", config.heads, " heads)");
  if (config.head_dim() > kernels::kAttentionHeadDimMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("a head of ", config.head_dim(), " columns", from,
                     " is wider than the attention kernel's limit of ",
                     kernels::kAttentionHeadDimMax, config.head_width ? "" : "; use more heads"));
  }
  GEMINID_RETURN_IF_ERROR(CheckRotaryShare(config, from));
  GEMINID_RETURN_IF_ERROR(CheckBlock(config));
  return CheckEvenHeads(config);
}

absl::Status CheckExperts(const ModelConfig& config) {
  if (config.family != Family::kMixtral) {
    if (config.experts == 0 && config.experts_per_token == 0 && config.balance_loss == 0 &&
        config.expert_capacity == 0) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("the ", Name(config.family),
                     " family has one MLP in each layer; use the mixtral family for experts"));
  }
  if (config.experts < 2 || config.experts > kExpertsMax) {
    return absl::InvalidArgumentError(absl::StrCat("the number of experts is ", config.experts,
                                                   "; it must be from 2 to ", kExpertsMax));
  }
  GEMINID_RETURN_IF_ERROR(
      CheckRange("the number of experts for each token", config.experts_per_token, config.experts));
  if (!(config.balance_loss >= 0 && std::isfinite(config.balance_loss))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight of the balance loss is ", config.balance_loss,
                     "; it must be 0 or more, such as ", kUsualBalanceLoss));
  }
  if (!(config.expert_capacity >= 0 && std::isfinite(config.expert_capacity))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the capacity of an expert is ", config.expert_capacity,
                     " times its even share; it must be 0, for no limit, or more, such as 1.25"));
  }
  if (config.lora_rank == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "adapters do not support models with experts yet; leave out --lora-rank, or use the llama "
      "family");
}

// The numbers of config.json that kernels compute with.
absl::Status CheckNumbers(const ModelConfig& config) {
  if (!(config.norm_epsilon >= 0 && std::isfinite(config.norm_epsilon))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the epsilon of the norms is ", config.norm_epsilon,
                     "; it must be 0 or more, such as 1e-5 ('rms_norm_eps' or 'layer_norm_eps' in "
                     "config.json)"));
  }
  if (config.rotary_theta > 0 && std::isfinite(config.rotary_theta)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the base of the rotary embedding is ", config.rotary_theta,
                   "; it must be more than 0, such as 10000 ('rope_theta' in config.json)"));
}

absl::Status CheckImage(const ModelConfig& config) {
  constexpr uint64_t kSideMax = 1 << 16;
  if (!config.classifies() && !config.image) {
    return CheckRange("the vocabulary", config.vocabulary, kVocabularyMax);
  }
  if (!config.classifies() || !config.image) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", Name(config.family), " family is a model of ",
        config.classifies() ? "images; give --image-size their side in pixels"
                            : "tokens, and has no image size; take the vit family for images"));
  }
  const ImageShape& image = *config.image;
  GEMINID_RETURN_IF_ERROR(CheckRange("the image size", image.side, kSideMax));
  GEMINID_RETURN_IF_ERROR(CheckRange("the patch size", image.patch, image.side));
  GEMINID_RETURN_IF_ERROR(CheckRange("the number of channels", image.channels, kSideMax));
  GEMINID_RETURN_IF_ERROR(
      CheckDivides("the patch size", image.patch, "the image size", image.side));
  GEMINID_RETURN_IF_ERROR(
      CheckRange("the number of elements of a patch", image.patch_elements(), kIntermediateMax));
  GEMINID_RETURN_IF_ERROR(CheckRange("the number of classes", config.classes, kVocabularyMax));
  if (config.vocabulary != 0 || config.context != image.tokens()) {
    return absl::InvalidArgumentError(
        absl::StrCat("an image of ", image.side, " x ", image.side, " pixels is ", image.patches(),
                     " patches and a token of its class, so that its context is ", image.tokens(),
                     "; there is neither another one nor a vocabulary"));
  }
  if (config.lora_rank == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "adapters do not support a classifier yet, which they would leave untrained; leave out "
      "--lora-rank, or give --freeze what is not to change, such as 'vit.*'");
}

absl::Status CheckMasking(const ModelConfig& config) {
  if (!config.masking || config.masking->mask_token < config.vocabulary) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the mask token is ", config.masking->mask_token, ", but the vocabulary has ",
      config.vocabulary, " tokens; give a larger --vocabulary, or another --mask-token"));
}

}  // namespace

uint64_t DefaultIntermediate(Family family, uint64_t hidden) {
  if (ModelConfig{.family = family}.layer_norms()) return 4 * hidden;
  const uint64_t width = family == Family::kMixtral ? (7 * hidden + 1) / 2 : (8 * hidden + 2) / 3;
  return base::RoundUp(width, kLlamaIntermediateMultiple);
}

absl::Status Validate(const ModelConfig& config) {
  struct Range {
    const char* name;
    uint64_t value;
    uint64_t max;
  };
  for (const Range& range :
       {Range{"the number of layers", config.layers, kLayersMax},
        Range{"the hidden size", config.hidden, kHiddenMax},
        Range{"the number of heads", config.heads, kHiddenMax},
        Range{"the number of key/value heads", config.kv_heads, config.heads},
        Range{"the width of the MLP", config.intermediate, kIntermediateMax},
        Range{"the context", config.context, kContextMax},
        Range{"the number of positions", config.position_rows(), kContextMax}}) {
    GEMINID_RETURN_IF_ERROR(CheckRange(range.name, range.value, range.max));
  }
  GEMINID_RETURN_IF_ERROR(CheckImage(config));
  GEMINID_RETURN_IF_ERROR(CheckDivides("the number of key/value heads", config.kv_heads,
                                       "the number of heads", config.heads));
  GEMINID_RETURN_IF_ERROR(CheckHeads(config));
  if (config.lora_rank > std::min(config.hidden, config.intermediate)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a LoRA rank of ", config.lora_rank, " is more than a matrix has, ",
                     std::min(config.hidden, config.intermediate), "; lower --lora-rank"));
  }
  if (config.context > config.position_rows()) {
    return absl::InvalidArgumentError(absl::StrCat("the context (", config.context,
                                                   ") is more than the ", config.position_rows(),
                                                   " positions that the model knows"));
  }
  GEMINID_RETURN_IF_ERROR(CheckNumbers(config));
  GEMINID_RETURN_IF_ERROR(Validate(config.rotary_scaling));
  GEMINID_RETURN_IF_ERROR(CheckMasking(config));
  return CheckExperts(config);
}

std::vector<Operator> PartsOfLayer(const ModelConfig& model, uint64_t layer) {
  if (model.is_encoder(layer)) return {Operator::kEncoderAttention, Operator::kMlp};
  if (!model.has_both()) return {Operator::kAttention, Operator::kMlp};
  return {Operator::kAttention, Operator::kCrossAttention, Operator::kMlp};
}

uint64_t MatrixElements(const ModelConfig& m, Operator op, uint64_t mlps) {
  const uint64_t projection = m.table_columns() == m.hidden ? 0 : m.table_columns() * m.hidden;
  const bool dense = m.masks() || m.head() == Head::kPooledClassifier;
  switch (op) {
    case Operator::kEmbedding:
      return projection + (m.image ? m.image->patch_elements() * m.hidden : 0);
    case Operator::kEncoderAttention:
    case Operator::kAttention:
    case Operator::kCrossAttention:
      return m.hidden * (2 * m.query_columns() + 2 * m.kv_columns());
    case Operator::kMlp:
      return (m.routed() ? m.experts * m.hidden : 0) +
             mlps * (m.mlp_inputs() + 1) * m.hidden * m.intermediate;
    case Operator::kOutput:
      return (dense ? m.hidden * m.hidden : 0) +
             (m.classifies() ? m.hidden * m.classes
                             : m.vocabulary * m.table_columns() + projection);
  }
  return 0;
}

double LayerFlopsPerToken(const ModelConfig& config) {
  const uint64_t weights = MatrixElements(config, Operator::kAttention, 0) +
                           MatrixElements(config, Operator::kMlp, config.mlps_per_token());
  const uint64_t window = config.attention_window();
  const uint64_t scores = config.query_columns() * (window == 0 ? config.context : window);
  return 6 * static_cast<double>(weights) + 12 * static_cast<double>(scores);
}

double OutputFlopsPerToken(const ModelConfig& config) {
  const double all = 6 * static_cast<double>(MatrixElements(config, Operator::kOutput, 0));
  if (!config.chooses_rows()) return all;
  return all * static_cast<double>(config.targets_of(config.context)) /
         static_cast<double>(config.context);
}

double FlopsPerToken(const ModelConfig& config) {
  double embedding = 0;
  if (config.image) {  // the patches have no gradient
    embedding = 4 * static_cast<double>(MatrixElements(config, Operator::kEmbedding, 0)) *
                static_cast<double>(config.image->patches()) / static_cast<double>(config.context);
  }
  return static_cast<double>(config.layers) * LayerFlopsPerToken(config) +
         OutputFlopsPerToken(config) + embedding;
}

uint64_t CountParameters(const ModelConfig& config) {
  return CountElements(config, WholeModel(config));
}

uint64_t CountActiveParameters(const ModelConfig& config) {
  ModelPart part = WholeModel(config);
  if (config.routed()) part.experts = config.experts_per_token;
  return CountElements(config, part);
}

std::span<const Preset> Presets() { return kPresets; }

absl::StatusOr<ModelConfig> FindPreset(const std::string& name) {
  std::string names;
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return preset.config;
    absl::StrAppend(&names, names.empty() ? "" : ", ", preset.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no model '", name, "'; the models are: ", names));
}

}  // namespace geminid::trainer
