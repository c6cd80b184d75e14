// The parameters of a model: names, shapes and first values, and the place of each operator's
// parameters among them. Names and memory layouts are those of the Hugging Face checkpoints of
// each family that is trained; parameters of others have no names of a checkpoint.
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
  double deviation = 0;  // of kNormal
  // Of weight and gradient, in place of the model's.
  std::optional<zero::DataType> data_type = std::nullopt;
  std::optional<uint32_t> unit = std::nullopt;  // the half of a layer that it belongs to
  bool trainable = true;
  // The gradient has a place of its own, so that the weight can be read beside it.
  bool separate_gradient = false;
  int backward_uses = 1;  // 2 for a token table that is also the output layer
  Operator used_by = Operator::kEmbedding;
  uint64_t layer = 0;  // of a part of a layer

  uint64_t elements() const;
  // Matrices decay; biases and gains do not.
  bool decay() const { return shape.size() > 1; }
  // Those of layers, which Muon makes orthogonal: not the tables, and not an output layer.
  bool is_layer_matrix() const { return decay() && unit.has_value(); }
};

// The two thin matrices beside a layer's: A [rank, in] and B [out, rank], as PEFT keeps them.
struct AdapterPlace {
  ParameterId a{};
  ParameterId b{};
  uint64_t rank = 0;
  double scale = 0;
  uint64_t in = 0;
};

// A linear layer in -> out. Several may be parts of one parameter: GPT-2 keeps q, k and v together.
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
  std::optional<ParameterId> shift;  // LayerNorm; without it: RMSNorm
};

struct AttentionPlaces {
  NormPlace norm;
  LinearPlace q, k, v, output;
  // In place of q, k and v: of each key/value head in turn the queries that read it, its key and
  // its value (GPT-NeoX). What of it some heads need is one piece of its outputs.
  std::optional<LinearPlace> qkv;
  std::optional<NormPlace> q_norm, k_norm;  // of each head (ModelConfig::norms_heads)
  std::vector<ParameterId> all;
};

// The matrices of an MLP.
struct MlpMatrices {
  Activation activation = Activation::kGelu;  // without `up`
  // GPT-2: c_fc. OPT: fc1. GPT-NeoX: dense_h_to_4h. LLaMA: gate_proj. Mixtral: w1
  LinearPlace input;
  std::optional<LinearPlace> up;  // LLaMA. Mixtral: w3
  LinearPlace output;
};

struct MlpPlaces : MlpMatrices {
  NormPlace norm;
  std::vector<ParameterId> all;
};

// An operator of its own, so that its chunks come and go for it alone.
struct ExpertPlaces : MlpMatrices {
  std::vector<ParameterId> all;
};

// In place of an MLP: a router and what it chooses among.
struct RoutedPlaces {
  NormPlace norm;
  LinearPlace router;            // hidden -> experts
  std::vector<ParameterId> all;  // without the experts'
  std::vector<ExpertPlaces> experts;
};

// Which of a model's operators: all of them, or those of one stage of a pipeline.
struct ModelPart {
  uint64_t first_layer = 0;
  uint64_t layers = 0;
  bool embeds = true;   // it begins with the embedding
  bool outputs = true;  // it ends with the output layer and the loss
  // Of the experts of each layer; 0: all of them.
  uint64_t first_expert = 0;
  uint64_t experts = 0;

  bool whole() const { return embeds && outputs; }
  friend bool operator==(const ModelPart&, const ModelPart&) = default;
};
ModelPart WholeModel(const ModelConfig& config);

// Between the last norm and the table that foretells: norm(activation(x W + b)).
struct HeadPlaces {
  LinearPlace dense;
  Activation activation = Activation::kGelu;
  NormPlace norm;
};

struct ModelParameters {
  ModelPart part;
  // In order of first use; an id is an index. Norms are with what follows them, but those of
  // outputs and of an encoder's end with what they follow.
  std::vector<ParameterSpec> specs;
  ParameterId token_table{};  // where the part embeds, or its output layer is the table
  std::optional<ParameterId> position_table;
  std::optional<ParameterId> type_table;
  std::vector<LinearPlace> adapted;        // whole layers with an adapter
  std::vector<AttentionPlaces> attention;  // one per layer of the part, or two with cross attention
  std::vector<MlpPlaces> mlp;              // one per layer of the part, or none: these
  std::vector<RoutedPlaces> routed;
  NormPlace final_norm;            // where the part outputs
  std::optional<HeadPlaces> head;  // likewise, of a masked language model
  LinearPlace output;              // hidden -> vocabulary; likewise
};

// `config` can be trained or forecast, and `part` is within it. A part's parameters have the names
// that they have in the whole model. A token table that is also the output layer is in the first
// and in the last part.
ModelParameters MakeParameters(const ModelConfig& config);
ModelParameters MakeParameters(const ModelConfig& config, const ModelPart& part);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_PARAMETERS_H_
