#include "training/models/parameters.h"

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace geminid::trainer {
namespace {

// Radford et al. 2019: N(0, 0.02). Layers that add to the residual stream are scaled by one over
// the root of their number.
constexpr double kDeviation = 0.02;

double ResidualDeviation(const ModelConfig& config) {
  if (config.norms_after()) return kDeviation;  // a norm follows each sum, so no scaling is needed
  return kDeviation / std::sqrt(2.0 * static_cast<double>(config.layers));
}

class Builder {
 public:
  Builder(const ModelConfig& config, const ModelPart& part)
      : config_(config), traits_(config.traits()), names_(traits_.names), hidden_(config.hidden) {
    model_.part = part;
  }

  ModelParameters Build() {
    const ModelPart& part = model_.part;
    if (part.embeds) Embedding();
    taken_ = model_.specs.size();
    for (layer_ = part.first_layer; layer_ < part.first_layer + part.layers; ++layer_) Layer();
    layer_ = 0;
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
                            .deviation = deviation,
                            .used_by = operator_,
                            .layer = layer_});
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

  NormPlace Norm(const std::string& name, uint64_t columns) {
    NormPlace norm;
    norm.gain = AddToNorm(name + ".weight", columns, ParameterSpec::Init::kOnes);
    if (config_.layer_norms()) {
      norm.shift = AddToNorm(name + ".bias", columns, ParameterSpec::Init::kZeros);
    }
    return norm;
  }
  NormPlace Norm(const std::string& name) { return Norm(name, hidden_); }

  // The norm of the input of layer `layer`'s attention, or of the output after the last layer.
  NormPlace NormBefore(uint64_t layer, const std::string& own) {
    if (!config_.norms_after()) return Norm(own);
    if (layer == 0) return Norm(names_.embedding_norm);
    return Norm(absl::StrCat(names_.layers, layer - 1, ".", names_.attention_norm));
  }

  LinearPlace Linear(const std::string& name, uint64_t in, uint64_t out, bool bias = false,
                     double deviation = kDeviation, Layout layout = Layout::kOutIn) {
    const bool out_in = layout == Layout::kOutIn;
    LinearPlace place = {.layout = layout, .in = in, .out = out, .stride = out_in ? in : out};
    place.weight = AddNormal(name + ".weight", {out_in ? out : in, place.stride}, deviation);
    if (bias) place.bias = Add(name + ".bias", {out}, ParameterSpec::Init::kZeros);
    return place;
  }

  // A linear layer of a transformer layer, which may have an adapter.
  LinearPlace LayerLinear(const std::string& name, uint64_t in, uint64_t out, bool bias,
                          double deviation = kDeviation) {
    LinearPlace place = Linear(name, in, out, bias, deviation, traits_.layout);
    Adapt(name, &place);
    return place;
  }

  // A starts random and B zero, so that the model's first output does not change.
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
    model_.token_table = AddNormal(names_.tokens, {config_.vocabulary, config_.table_columns()});
  }

  void Embedding() {
    operator_ = Operator::kEmbedding;
    if (config_.vocabulary > 0) {
      TokenTable();
      if (config_.tied_output() && model_.part.outputs) model_.specs.back().backward_uses = 2;
    }
    const ForecastOnlyShape& more = config_.forecast_only;
    if (config_.image) Image(*config_.image);
    if (more.embedding_width > 0) Linear("project_in", more.embedding_width, hidden_);
    if (const uint64_t rows = config_.position_table_rows(); rows > 0) {
      // transformers has a batch of one image's.
      const std::vector<uint64_t> shape = {rows, hidden_}, of_image = {1, rows, hidden_};
      model_.position_table = AddNormal(names_.positions, config_.image ? of_image : shape);
    }
    if (const uint64_t types = config_.token_type_rows(); types > 0) {
      model_.type_table = AddNormal(names_.token_types, {types, hidden_});
    }
    for (size_t i = 0; i < model_.specs.size(); ++i) {
      model_.embedding.push_back(static_cast<ParameterId>(i));
    }
  }

  // A convolution whose stride is its width is a linear layer of the elements of a patch.
  void Image(const ImageShape& image) {
    const LinearPlace patches = Linear(names_.patches, image.patch_elements(), hidden_, true);
    ParameterSpec& kernel = model_.specs[static_cast<size_t>(patches.weight)];
    const auto side = static_cast<int64_t>(image.patch);
    kernel.shape = {kernel.shape[0], static_cast<int64_t>(image.channels), side, side};
    model_.image = {.patches = patches,
                    .class_token = AddNormal(names_.class_token, {1, 1, hidden_})};
  }

  void Layer() {
    const std::string prefix = absl::StrCat(names_.layers, layer_, ".");
    for (const Operator op : PartsOfLayer(config_, layer_)) {
      operator_ = op;
      if (op != Operator::kMlp) {
        Attention(prefix);
      } else if (config_.routed()) {
        Experts(prefix);
      } else {
        Mlp(prefix);
      }
    }
    const bool ends_encoder = config_.has_both() && !config_.is_encoder(layer_ + 1);
    if (ends_encoder && config_.is_encoder(layer_) && config_.last_norm()) Norm("encoder_norm");
  }

  void Attention(const std::string& prefix) {
    const uint64_t queries = config_.query_columns(), keys = config_.kv_columns();
    AttentionPlaces& attention = model_.attention.emplace_back();
    attention.norm = NormBefore(layer_, prefix + names_.attention_norm);
    const auto project = [&](const char* name, uint64_t columns) {
      return LayerLinear(prefix + name, hidden_, columns, config_.qkv_bias());
    };
    if (traits_.projection == Projection::kApart) {
      attention.q = project(names_.query, queries);
      attention.k = project(names_.key, keys);
      attention.v = project(names_.value, keys);
    } else if (const LinearPlace qkv = project(names_.qkv, queries + 2 * keys);
               traits_.projection == Projection::kByHead) {
      attention.qkv = qkv;
    } else {
      attention.q = attention.k = attention.v = qkv;
      attention.q.out = attention.k.first_output = queries;
      attention.k.out = attention.v.out = keys;
      attention.v.first_output = queries + keys;
    }
    if (config_.norms_heads()) {
      attention.q_norm = Norm(prefix + "self_attn.q_norm", config_.head_dim());
      attention.k_norm = Norm(prefix + "self_attn.k_norm", config_.head_dim());
    }
    attention.output = LayerLinear(prefix + names_.attention_output, queries, hidden_,
                                   config_.output_bias(), ResidualDeviation(config_));
    // The first layer of each stack has the distance biases; the other layers use the same biases.
    const ForecastOnlyShape& more = config_.forecast_only;
    const bool first = layer_ == 0 || layer_ == config_.encoder_layers();
    if (first && more.relative_buckets > 0 && operator_ != Operator::kCrossAttention) {
      AddNormal(prefix + "distances", {more.relative_buckets, config_.heads});
    }
    if (traits_.norms.outputs) Norm(prefix + "attention_output_norm");
    attention.all = TakeNew();
  }

  NormPlace MlpNorm(const std::string& prefix) {
    return config_.norms_per_layer() > 1 ? Norm(prefix + names_.mlp_norm) : NormPlace();
  }

  MlpMatrices Matrices(const std::string& input, const std::string& up, const std::string& output) {
    const uint64_t width = config_.intermediate;
    const bool bias = config_.has_mlp_bias();
    MlpMatrices mlp;
    mlp.activation = config_.activation();
    mlp.input = LayerLinear(input, hidden_, (traits_.fused_gate ? 2 : 1) * width, bias);
    if (config_.gated_mlp() && !traits_.fused_gate) mlp.up = LayerLinear(up, hidden_, width, bias);
    mlp.output = LayerLinear(output, width, hidden_, bias, ResidualDeviation(config_));
    return mlp;
  }

  void Mlp(const std::string& prefix) {
    const NormPlace norm = MlpNorm(prefix);
    MlpPlaces& mlp = model_.mlp.emplace_back(MlpPlaces{
        Matrices(prefix + names_.mlp_input, prefix + names_.mlp_up, prefix + names_.mlp_output),
        norm,
        {}});
    if (traits_.norms.outputs) Norm(prefix + "mlp_output_norm");
    mlp.all = TakeNew();
  }

  void Experts(const std::string& prefix) {
    RoutedPlaces& routed = model_.routed.emplace_back();
    routed.norm = MlpNorm(prefix);
    const std::string block = prefix + "block_sparse_moe.";
    routed.router = LayerLinear(block + "gate", hidden_, config_.experts, false);
    routed.all = TakeNew();
    const ModelPart& part = model_.part;
    const uint64_t count = part.experts == 0 ? config_.experts : part.experts;
    for (uint64_t i = part.first_expert; i < part.first_expert + count; ++i) {
      const std::string name = absl::StrCat(block, "experts.", i, ".");
      ExpertPlaces& expert = routed.experts.emplace_back(
          ExpertPlaces{Matrices(name + "w1", name + "w3", name + "w2"), {}});
      expert.all = TakeNew();
    }
  }

  void Output() {
    operator_ = Operator::kOutput;
    if (config_.last_norm()) model_.final_norm = NormBefore(config_.layers, names_.final_norm);
    if (config_.head() == Head::kPooledClassifier) Linear("dense", hidden_, hidden_, true);
    if (config_.masks()) {
      HeadPlaces head = {.dense = Linear(names_.head_dense, hidden_, hidden_, true),
                         .activation = config_.activation(),
                         .norm = {}};
      head.norm = Norm(names_.head_norm);
      model_.head = head;
    }
    if (config_.classifies()) {
      model_.output = Linear(names_.output, hidden_, config_.classes, true);
      return;
    }
    const uint64_t columns = config_.table_columns();
    if (columns != hidden_) Linear("project_out", hidden_, columns);
    std::optional<ParameterId> bias;
    if (config_.masks()) {
      bias = Add(names_.output_bias, {config_.vocabulary}, ParameterSpec::Init::kZeros);
    }
    OutputTable(columns);
    model_.output.bias = bias;
  }

  void OutputTable(uint64_t columns) {
    if (!config_.tied_output()) {
      model_.output = Linear(names_.output, columns, config_.vocabulary);
      return;
    }
    if (!model_.part.embeds) TokenTable();
    model_.output = {.weight = model_.token_table,
                     .bias = std::nullopt,
                     .layout = Layout::kOutIn,
                     .in = columns,
                     .out = config_.vocabulary,
                     .stride = columns};
  }

  // The parameters added since the last call. They form one operator, and no other operator uses
  // them.
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
  const FamilyTraits& traits_;
  const ParameterNames& names_;
  const uint64_t hidden_;
  ModelParameters model_;
  Operator operator_ = Operator::kEmbedding;  // of the parameters that are added; layer_ too
  uint64_t layer_ = 0;
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
