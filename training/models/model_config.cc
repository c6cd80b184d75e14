#include "training/models/model_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/pages.h"
#include "kernels/model/attention/attention.h"
#include "training/models/parameters.h"

namespace geminid::trainer {
namespace {

// Bounds that keep every product of sizes far from overflow; no published model comes near them.
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
};

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

// Families whose heads share the stream.
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
    absl::Status status =
        CheckDivides("the number of heads", config.heads, "the hidden size", config.hidden);
    if (!status.ok()) return status;
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
  if (absl::Status status = CheckRotaryShare(config, from); !status.ok()) return status;
  if (absl::Status status = CheckBlock(config); !status.ok()) return status;
  return CheckEvenHeads(config);
}

absl::Status CheckExperts(const ModelConfig& config) {
  if (!config.routed()) {
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
  if (absl::Status status = CheckRange("the number of experts for each token",
                                       config.experts_per_token, config.experts);
      !status.ok()) {
    return status;
  }
  if (!(config.balance_loss >= 0 && std::isfinite(config.balance_loss))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the weight of the balance loss is ", config.balance_loss,
                     "; it must be 0 or more, such as ", kUsualBalanceLoss));
  }
  if (!(config.expert_capacity >= 0 && std::isfinite(config.expert_capacity))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the capacity of an expert is ", config.expert_capacity,
                     " times its even share; it must be 0, for all that come, or more, such as "
                     "1.25"));
  }
  if (config.lora_rank == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "adapters beside experts are not there yet; leave out --lora-rank, or use the llama family");
}

}  // namespace

const char* Name(Family family) {
  switch (family) {
    case Family::kGpt2:
      return "gpt2";
    case Family::kLlama:
      return "llama";
    case Family::kMixtral:
      return "mixtral";
    case Family::kMistral:
      return "mistral";
    case Family::kQwen2:
      return "qwen2";
    case Family::kQwen3:
      return "qwen3";
    case Family::kOpt:
      return "opt";
    case Family::kGptNeox:
      return "gpt_neox";
  }
  return "";
}

const char* Name(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "gelu_new";
    case Activation::kRelu:
      return "relu";
    case Activation::kGeluErf:
      return "gelu";
  }
  return "";
}

absl::StatusOr<Family> ParseFamily(const std::string& name) {
  for (const Family family : {Family::kGpt2, Family::kLlama, Family::kMixtral, Family::kMistral,
                              Family::kQwen2, Family::kQwen3, Family::kOpt, Family::kGptNeox}) {
    if (name == Name(family)) return family;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no model family '", name,
                   "'; use gpt2, gpt_neox, llama, mistral, mixtral, opt, qwen2 or qwen3"));
}

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
  for (const Range& range : {Range{"the number of layers", config.layers, kLayersMax},
                             Range{"the hidden size", config.hidden, kHiddenMax},
                             Range{"the number of heads", config.heads, kHiddenMax},
                             Range{"the number of key/value heads", config.kv_heads, config.heads},
                             Range{"the width of the MLP", config.intermediate, kIntermediateMax},
                             Range{"the context", config.context, kContextMax},
                             Range{"the number of positions", config.position_rows(), kContextMax},
                             Range{"the vocabulary", config.vocabulary, kVocabularyMax}}) {
    if (absl::Status status = CheckRange(range.name, range.value, range.max); !status.ok()) {
      return status;
    }
  }
  if (absl::Status status = CheckDivides("the number of key/value heads", config.kv_heads,
                                         "the number of heads", config.heads);
      !status.ok()) {
    return status;
  }
  if (absl::Status status = CheckHeads(config); !status.ok()) return status;
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
  if (absl::Status status = Validate(config.rotary_scaling); !status.ok()) return status;
  return CheckExperts(config);
}

double FlopsPerToken(const ModelConfig& config) {
  constexpr double kPerWeight = 6;
  constexpr double kPerScore = 12;
  const uint64_t attention = 2 * config.hidden * (config.query_columns() + config.kv_columns());
  const uint64_t mlp =
      config.hidden * config.intermediate * (config.gated_mlp() ? 3 : 2) * config.mlps_per_token() +
      config.hidden * config.experts;  // and the router
  const uint64_t weights =
      config.layers * (attention + mlp) + config.hidden * config.vocabulary;  // and the output
  const uint64_t window = config.attention_window();
  const uint64_t scores =
      config.layers * config.query_columns() * (window == 0 ? config.context : window);
  return kPerWeight * static_cast<double>(weights) + kPerScore * static_cast<double>(scores);
}

uint64_t CountParameters(const ModelConfig& config) {
  uint64_t count = 0;
  for (const ParameterSpec& spec : MakeParameters(config).specs) count += spec.elements();
  return count;
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
