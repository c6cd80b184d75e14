#include "training/models/parameters.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

// Radford et al. 2019: N(0, 0.02), and layers that add to the residual stream scaled by one over
// the root of their number.
constexpr double kDeviation = 0.02;

double ResidualDeviation(const ModelConfig& config) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

// What differs by family beside the layers.
struct Names {
  const char* tokens;
  const char* positions;
  const char* layers;
  const char* final_norm;
  const char* output = "lm_head";
};

Names NamesOf(Family family) {
  if (family == Family::kGpt2) {
    return {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.",
            "transformer.ln_f"};
  }
  if (family == Family::kOpt) {
    return {"model.decoder.embed_tokens.weight", "model.decoder.embed_positions.weight",
            "model.decoder.layers.", "model.decoder.final_layer_norm"};
  }
  if (family == Family::kGptNeox) {
    return {"gpt_neox.embed_in.weight", "", "gpt_neox.layers.", "gpt_neox.final_layer_norm",
            "embed_out"};
  }
  return {"model.embed_tokens.weight", "", "model.layers.", "model.norm"};
}

class Builder {
 public:
  Builder(const ModelConfig& config, const ModelPart& part)
      : config_(config), names_(NamesOf(config.family)) {
    model_.part = part;
  }

  ModelParameters Build() {
    const ModelPart& part = model_.part;
    if (part.embeds) Embedding();
    taken_ = model_.specs.size();
    for (uint64_t layer = part.first_layer; layer < part.first_layer + part.layers; ++layer) {
      const std::string prefix = absl::StrCat(names_.layers, layer, ".");
      if (config_.family == Family::kGpt2) {
        Gpt2Layer(prefix);
      } else if (config_.family == Family::kOpt) {
        OptLayer(prefix);
      } else if (config_.family == Family::kGptNeox) {
        GptNeoxLayer(prefix);
      } else {
        LlamaLayer(prefix);
      }
    }
    if (part.outputs) Output();
    if (config_.lora_rank > 0) {
      for (ParameterSpec& spec : model_.specs) spec.trainable = spec.separate_gradient;
    }
    return std::move(model_);
  }

 private:
  ParameterId Add(std::string name, std::vector<uint64_t> shape, ParameterSpec::Init init,
                  double deviation = 0) {
    model_.specs.push_back({.name = std::move(name),
                            .shape = {shape.begin(), shape.end()},
                            .init = init,
                            .deviation = deviation});
    return static_cast<ParameterId>(model_.specs.size() - 1);
  }
  ParameterId AddNormal(std::string name, std::vector<uint64_t> shape,
                        double deviation = kDeviation) {
    return Add(std::move(name), std::move(shape), ParameterSpec::Init::kNormal, deviation);
  }

  ParameterId AddToNorm(std::string name, uint64_t columns, ParameterSpec::Init init) {
    const ParameterId id = Add(std::move(name), {columns}, init);
    if (config_.fp32_norms) model_.specs.back().data_type = zero::DataType::kFloat32;
    return id;
  }

  NormPlace Norm(const std::string& name, bool shift) {
    NormPlace norm;
    norm.gain = AddToNorm(name + ".weight", config_.hidden, ParameterSpec::Init::kOnes);
    if (shift) norm.shift = AddToNorm(name + ".bias", config_.hidden, ParameterSpec::Init::kZeros);
    return norm;
  }
  NormPlace HeadNorm(const std::string& name) {
    NormPlace norm;
    norm.gain = AddToNorm(name + ".weight", config_.head_dim(), ParameterSpec::Init::kOnes);
    return norm;
  }

  // GPT-2: [in, out] with a bias.
  LinearPlace Conv1d(const std::string& name, uint64_t in, uint64_t out, double deviation) {
    LinearPlace place = {.layout = Layout::kInOut, .in = in, .out = out, .stride = out};
    place.weight = AddNormal(name + ".weight", {in, out}, deviation);
    place.bias = Add(name + ".bias", {out}, ParameterSpec::Init::kZeros);
    Adapt(name, &place);
    return place;
  }

  // LLaMA: [out, in], as a rule without a bias.
  LinearPlace Linear(const std::string& name, uint64_t in, uint64_t out,
                     double deviation = kDeviation, bool bias = false) {
    LinearPlace place = {.layout = Layout::kOutIn, .in = in, .out = out, .stride = in};
    place.weight = AddNormal(name + ".weight", {out, in}, deviation);
    if (bias) place.bias = Add(name + ".bias", {out}, ParameterSpec::Init::kZeros);
    if (name != names_.output) Adapt(name, &place);
    return place;
  }

  // A begins at random and B with zeros, so that the model begins as it was.
  void Adapt(const std::string& name, LinearPlace* place) {
    if (config_.lora_rank == 0) return;
    AdapterPlace adapter = {.rank = config_.lora_rank,
                            .scale = config_.lora_alpha / static_cast<double>(config_.lora_rank),
                            .in = place->in};
    adapter.a = AddNormal(name + ".lora_A.weight", {adapter.rank, place->in},
                          1 / std::sqrt(static_cast<double>(place->in)));
    adapter.b =
        Add(name + ".lora_B.weight", {place->out, adapter.rank}, ParameterSpec::Init::kZeros);
    for (const ParameterId id : {adapter.a, adapter.b}) {
      model_.specs[static_cast<size_t>(id)].separate_gradient = true;
    }
    place->adapter = adapter;
    model_.adapted.push_back(*place);
  }

  void TokenTable() {
    model_.token_table = AddNormal(names_.tokens, {config_.vocabulary, config_.hidden});
  }

  void Embedding() {
    TokenTable();
    if (config_.tied_output() && model_.part.outputs) model_.specs.back().backward_uses = 2;
    if (!config_.like_gpt2()) return;
    model_.position_table = AddNormal(
        names_.positions, {config_.first_position_row() + config_.position_rows(), config_.hidden});
  }

  void Gpt2Layer(const std::string& prefix) {
    const uint64_t hidden = config_.hidden;
    AttentionPlaces& attention = model_.attention.emplace_back();
    attention.norm = Norm(prefix + "ln_1", true);
    const LinearPlace qkv = Conv1d(prefix + "attn.c_attn", hidden, 3 * hidden, kDeviation);
    attention.q = attention.k = attention.v = qkv;
    attention.q.out = attention.k.out = attention.v.out = hidden;
    attention.k.first_output = hidden;
    attention.v.first_output = 2 * hidden;
    attention.output = Conv1d(prefix + "attn.c_proj", hidden, hidden, ResidualDeviation(config_));
    attention.all = TakeNew();

    MlpPlaces& mlp = model_.mlp.emplace_back();
    mlp.norm = Norm(prefix + "ln_2", true);
    mlp.input = Conv1d(prefix + "mlp.c_fc", hidden, config_.intermediate, kDeviation);
    mlp.output =
        Conv1d(prefix + "mlp.c_proj", config_.intermediate, hidden, ResidualDeviation(config_));
    mlp.all = TakeNew();
  }

  void OptLayer(const std::string& prefix) {
    const uint64_t hidden = config_.hidden;
    const auto linear = [&](const char* name, uint64_t in, uint64_t out, double deviation) {
      return Linear(absl::StrCat(prefix, name), in, out, deviation, /*bias=*/true);
    };
    AttentionPlaces& attention = model_.attention.emplace_back();
    attention.norm = Norm(prefix + "self_attn_layer_norm", true);
    attention.q = linear("self_attn.q_proj", hidden, hidden, kDeviation);
    attention.k = linear("self_attn.k_proj", hidden, hidden, kDeviation);
    attention.v = linear("self_attn.v_proj", hidden, hidden, kDeviation);
    attention.output = linear("self_attn.out_proj", hidden, hidden, ResidualDeviation(config_));
    attention.all = TakeNew();

    MlpPlaces& mlp = model_.mlp.emplace_back();
    mlp.activation = config_.activation();
    mlp.norm = Norm(prefix + "final_layer_norm", true);
    mlp.input = linear("fc1", hidden, config_.intermediate, kDeviation);
    mlp.output = linear("fc2", config_.intermediate, hidden, ResidualDeviation(config_));
    mlp.all = TakeNew();
  }

  void GptNeoxLayer(const std::string& prefix) {
    const uint64_t hidden = config_.hidden;
    const auto linear = [&](const char* name, uint64_t in, uint64_t out, double deviation,
                            bool bias) {
      return Linear(absl::StrCat(prefix, name), in, out, deviation, bias);
    };
    AttentionPlaces& attention = model_.attention.emplace_back();
    attention.norm = Norm(prefix + "input_layernorm", true);
    attention.qkv =
        linear("attention.query_key_value", hidden, 3 * hidden, kDeviation, config_.qkv_bias());
    attention.output = linear("attention.dense", hidden, hidden, ResidualDeviation(config_),
                              config_.output_bias());
    attention.all = TakeNew();

    MlpPlaces& mlp = model_.mlp.emplace_back();
    mlp.activation = config_.activation();
    mlp.norm = Norm(prefix + "post_attention_layernorm", true);
    mlp.input = linear("mlp.dense_h_to_4h", hidden, config_.intermediate, kDeviation, true);
    mlp.output =
        linear("mlp.dense_4h_to_h", config_.intermediate, hidden, ResidualDeviation(config_), true);
    mlp.all = TakeNew();
  }

  void LlamaAttention(const std::string& prefix) {
    const uint64_t hidden = config_.hidden, queries = config_.query_columns();
    AttentionPlaces& attention = model_.attention.emplace_back();
    attention.norm = Norm(prefix + "input_layernorm", false);
    const auto project = [&](const char* name, uint64_t columns) {
      return Linear(absl::StrCat(prefix, "self_attn.", name), hidden, columns, kDeviation,
                    config_.qkv_bias());
    };
    attention.q = project("q_proj", queries);
    attention.k = project("k_proj", config_.kv_columns());
    attention.v = project("v_proj", config_.kv_columns());
    if (config_.norms_heads()) {
      attention.q_norm = HeadNorm(prefix + "self_attn.q_norm");
      attention.k_norm = HeadNorm(prefix + "self_attn.k_norm");
    }
    attention.output = Linear(prefix + "self_attn.o_proj", queries, hidden,
                              ResidualDeviation(config_), config_.output_bias());
    attention.all = TakeNew();
  }

  void LlamaLayer(const std::string& prefix) {
    const uint64_t hidden = config_.hidden;
    LlamaAttention(prefix);
    if (config_.routed()) return Experts(prefix);
    MlpPlaces& mlp = model_.mlp.emplace_back();
    mlp.norm = Norm(prefix + "post_attention_layernorm", false);
    mlp.input = Linear(prefix + "mlp.gate_proj", hidden, config_.intermediate);
    mlp.up = Linear(prefix + "mlp.up_proj", hidden, config_.intermediate);
    mlp.output =
        Linear(prefix + "mlp.down_proj", config_.intermediate, hidden, ResidualDeviation(config_));
    mlp.all = TakeNew();
  }

  void Experts(const std::string& prefix) {
    RoutedPlaces& routed = model_.routed.emplace_back();
    routed.norm = Norm(prefix + "post_attention_layernorm", false);
    const std::string block = prefix + "block_sparse_moe.";
    routed.router = Linear(block + "gate", config_.hidden, config_.experts);
    routed.all = TakeNew();
    const ModelPart& part = model_.part;
    const uint64_t count = part.experts == 0 ? config_.experts : part.experts;
    for (uint64_t i = part.first_expert; i < part.first_expert + count; ++i) {
      const std::string name = absl::StrCat(block, "experts.", i, ".");
      ExpertPlaces& expert = routed.experts.emplace_back();
      expert.input = Linear(name + "w1", config_.hidden, config_.intermediate);
      expert.up = Linear(name + "w3", config_.hidden, config_.intermediate);
      expert.output =
          Linear(name + "w2", config_.intermediate, config_.hidden, ResidualDeviation(config_));
      expert.all = TakeNew();
    }
  }

  void Output() {
    model_.final_norm = Norm(names_.final_norm, config_.layer_norms());
    if (!config_.tied_output()) {
      model_.output = Linear(names_.output, config_.hidden, config_.vocabulary);
      return;
    }
    if (!model_.part.embeds) TokenTable();
    model_.output = {.weight = model_.token_table,
                     .bias = std::nullopt,
                     .layout = Layout::kOutIn,
                     .in = config_.hidden,
                     .out = config_.vocabulary,
                     .stride = config_.hidden};
  }

  // The parameters added since the last operator took its own, which are used together alone.
  std::vector<ParameterId> TakeNew() {
    std::vector<ParameterId> ids;
    for (; taken_ < model_.specs.size(); ++taken_) {
      model_.specs[taken_].unit = units_;
      ids.push_back(static_cast<ParameterId>(taken_));
    }
    ++units_;
    return ids;
  }

  const ModelConfig config_;
  const Names names_;
  ModelParameters model_;
  size_t taken_ = 0;
  uint32_t units_ = 0;
};

}  // namespace

uint64_t ParameterSpec::elements() const {
  uint64_t count = 1;
  for (const int64_t size : shape) count *= static_cast<uint64_t>(size);
  return count;
}

ModelPart WholeModel(const ModelConfig& config) { return {.layers = config.layers}; }

ModelParameters MakeParameters(const ModelConfig& config) {
  return MakeParameters(config, WholeModel(config));
}

ModelParameters MakeParameters(const ModelConfig& config, const ModelPart& part) {
  return Builder(config, part).Build();
}

}  // namespace geminid::trainer
