#include "training/models/parameters.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

// Radford et al. 2019: N(0, 0.02), and layers that add to the residual stream scaled by one over
// the root of their number.
constexpr double kDeviation = 0.02;

constexpr char kOutputLayer[] = "lm_head";

double ResidualDeviation(const ModelConfig& config) {
  return kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

class Builder {
 public:
  Builder(const ModelConfig& config, const ModelPart& part) : config_(config) {
    model_.part = part;
  }

  ModelParameters Build() {
    const bool gpt2 = config_.family == Family::kGpt2;
    const ModelPart& part = model_.part;
    if (part.embeds) Embedding(gpt2);
    taken_ = model_.specs.size();
    for (uint64_t layer = part.first_layer; layer < part.first_layer + part.layers; ++layer) {
      if (gpt2) {
        Gpt2Layer(absl::StrCat("transformer.h.", layer, "."));
      } else {
        LlamaLayer(absl::StrCat("model.layers.", layer, "."));
      }
    }
    if (part.outputs) Output(gpt2);
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

  ParameterId AddToNorm(std::string name, ParameterSpec::Init init) {
    const ParameterId id = Add(std::move(name), {config_.hidden}, init);
    if (config_.fp32_norms) model_.specs.back().data_type = zero::DataType::kFloat32;
    return id;
  }

  NormPlace Norm(const std::string& name, bool shift) {
    NormPlace norm;
    norm.gain = AddToNorm(name + ".weight", ParameterSpec::Init::kOnes);
    if (shift) norm.shift = AddToNorm(name + ".bias", ParameterSpec::Init::kZeros);
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

  // LLaMA: [out, in] without a bias.
  LinearPlace Linear(const std::string& name, uint64_t in, uint64_t out,
                     double deviation = kDeviation) {
    LinearPlace place = {.layout = Layout::kOutIn, .in = in, .out = out, .stride = in};
    place.weight = AddNormal(name + ".weight", {out, in}, deviation);
    if (name != kOutputLayer) Adapt(name, &place);
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

  void TokenTable(bool gpt2) {
    model_.token_table = AddNormal(gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight",
                                   {config_.vocabulary, config_.hidden});
  }

  void Embedding(bool gpt2) {
    TokenTable(gpt2);
    if (config_.tied_output() && model_.part.outputs) model_.specs.back().backward_uses = 2;
    if (!gpt2) return;
    model_.position_table =
        AddNormal("transformer.wpe.weight", {config_.position_rows(), config_.hidden});
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

  void LlamaLayer(const std::string& prefix) {
    const uint64_t hidden = config_.hidden;
    const uint64_t kv_width = config_.kv_heads * config_.head_dim();
    AttentionPlaces& attention = model_.attention.emplace_back();
    attention.norm = Norm(prefix + "input_layernorm", false);
    attention.q = Linear(prefix + "self_attn.q_proj", hidden, hidden);
    attention.k = Linear(prefix + "self_attn.k_proj", hidden, kv_width);
    attention.v = Linear(prefix + "self_attn.v_proj", hidden, kv_width);
    attention.output =
        Linear(prefix + "self_attn.o_proj", hidden, hidden, ResidualDeviation(config_));
    attention.all = TakeNew();

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

  void Output(bool gpt2) {
    model_.final_norm = Norm(gpt2 ? "transformer.ln_f" : "model.norm", gpt2);
    if (!config_.tied_output()) {
      model_.output = Linear(kOutputLayer, config_.hidden, config_.vocabulary);
      return;
    }
    if (!model_.part.embeds) TokenTable(gpt2);
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
