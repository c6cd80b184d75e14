// The parameters of a model: names, shapes and first values, and which of them belong to each
// operator. For families that are trained, names and memory layouts are those of Hugging Face
// checkpoints. Parameters of other families have made-up names.
#ifndef GEMINID_TRAINING_MODELS_PARAMETERS_H_
#define GEMINID_TRAINING_MODELS_PARAMETERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "geminid/zero.h"
#include "training/models/model_config.h"

namespace geminid::trainer {

using zero::ParameterId;

struct ParameterSpec {
  enum class Init { kZeros, kOnes, kNormal };
  std::string name;
  std::vector<int64_t> shape;
  Init init = Init::kZeros;
  double deviation = 0;  // for kNormal
  // The type of weight and gradient, if it differs from the model's.
  std::optional<zero::DataType> data_type = std::nullopt;
  std::optional<uint32_t> unit = std::nullopt;  // the sublayer to which the parameter belongs
  bool trainable = true;
  // The gradient has its own memory, so that the weight stays readable beside it.
  bool separate_gradient = false;
  int backward_uses = 1;  // 2 for a token table that is also the output layer
  Operator used_by = Operator::kEmbedding;
  uint64_t layer = 0;  // if `used_by` is an operator of a layer

  uint64_t elements() const;
  // Weight decay applies to matrices, not to biases and gains.
  bool decay() const { return shape.size() > 1; }
  // Muon orthogonalizes the matrices of layers, but not the tables or an output layer.
  bool is_layer_matrix() const { return decay() && unit.has_value(); }
};

// An adapter's two thin matrices beside a layer's matrix: A [rank, in] and B [out, rank], as in
// PEFT.
struct AdapterPlace {
  ParameterId a{};
  ParameterId b{};
  uint64_t rank = 0;
  double scale = 0;
  uint64_t in = 0;
};

// A linear layer in -> out. Several layers may share one parameter: GPT-2 stores q, k and v
// together.
struct LinearPlace {
  ParameterId weight{};
  std::optional<ParameterId> bias = std::nullopt;
  Layout layout = Layout::kOutIn;
  uint64_t in = 0;
  uint64_t out = 0;
  uint64_t stride = 0;        // elements between rows of the whole parameter
  uint64_t first_output = 0;  // within the whole parameter
  std::optional<AdapterPlace> adapter = std::nullopt;
};

struct NormPlace {
  ParameterId gain{};
  std::optional<ParameterId> shift;  // LayerNorm; RMSNorm has none
};

struct AttentionPlaces {
  NormPlace norm;
  LinearPlace q, k, v, output;
  // Replaces q, k and v (GPT-NeoX). For each key/value head in turn it gives the queries that read
  // the head, its key and its value. So the outputs for consecutive heads are consecutive, too.
  std::optional<LinearPlace> qkv;
  std::optional<NormPlace> q_norm, k_norm;  // of each head (ModelConfig::norms_heads)
  std::vector<ParameterId> all;
};

// The matrices of an MLP.
struct MlpMatrices {
  Activation activation = Activation::kGelu;  // if there is no `up`
  // GPT-2: c_fc. OPT: fc1. GPT-NeoX: dense_h_to_4h. LLaMA: gate_proj. Mixtral: w1
  LinearPlace input;
  std::optional<LinearPlace> up;  // LLaMA. Mixtral: w3
  LinearPlace output;
};

struct MlpPlaces : MlpMatrices {
  NormPlace norm;
  std::vector<ParameterId> all;
};

// Each expert is an operator of its own, so that its chunks are fetched and evicted separately.
struct ExpertPlaces : MlpMatrices {
  std::vector<ParameterId> all;
};

// Replaces an MLP: a router and the experts among which it chooses.
struct RoutedPlaces {
  NormPlace norm;
  LinearPlace router;            // hidden -> experts
  std::vector<ParameterId> all;  // the norm and the router, without the experts
  std::vector<ExpertPlaces> experts;
};

// The operators of a whole model, or of one stage of a pipeline.
struct ModelPart {
  uint64_t first_layer = 0;
  uint64_t layers = 0;
  bool embeds = true;   // the part begins with the embedding
  bool outputs = true;  // the part ends with the output layer and the loss
  // The experts of each layer that the part has; 0: all of them.
  uint64_t first_expert = 0;
  uint64_t experts = 0;

  bool whole() const { return embeds && outputs; }
  friend bool operator==(const ModelPart&, const ModelPart&) = default;
};
ModelPart WholeModel(const ModelConfig& config);

// The layer between the last norm and the output table: norm(activation(x W + b)).
struct HeadPlaces {
  LinearPlace dense;
  Activation activation = Activation::kGelu;
  NormPlace norm;
};

// In place of a token table: what an image's patches become tokens by, and the token before them.
struct ImagePlaces {
  LinearPlace patches;
  ParameterId class_token{};
};

struct ModelParameters {
  ModelPart part;
  // In order of first use; an id is an index. A norm is with the operator that follows it. Norms of
  // outputs, and the norm at an encoder's end, are with the operator before them.
  std::vector<ParameterSpec> specs;
  std::vector<ParameterId> embedding;  // all parameters of it, where the part embeds
  // Where the part embeds, or its output layer is the table; not of a model of images.
  ParameterId token_table{};
  std::optional<ImagePlaces> image;  // where the part of one embeds
  std::optional<ParameterId> position_table;
  std::optional<ParameterId> type_table;
  std::vector<LinearPlace> adapted;        // layers with an adapter, whole
  std::vector<AttentionPlaces> attention;  // one per layer of the part, or two with cross attention
  std::vector<MlpPlaces> mlp;  // one per layer of the part; models with experts use `routed`
  std::vector<RoutedPlaces> routed;
  NormPlace final_norm;            // where the part outputs
  std::optional<HeadPlaces> head;  // likewise, of a masked language model
  LinearPlace output;              // hidden -> vocabulary, or classes; where the part outputs
};

// `config` can be trained or forecast, and `part` is within it. A part's parameters have the names
// of the whole model. If the token table is also the output layer, the first and the last part have
// the table.
ModelParameters MakeParameters(const ModelConfig& config);
ModelParameters MakeParameters(const ModelConfig& config, const ModelPart& part);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_PARAMETERS_H_
