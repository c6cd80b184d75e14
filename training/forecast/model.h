// A model that is planned: its description with a name, and its tensors by operator.
#ifndef GEMINID_TRAINING_FORECAST_MODEL_H_
#define GEMINID_TRAINING_FORECAST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "training/models/model_config.h"

namespace geminid::forecast {

using trainer::CountActiveParameters;
using trainer::CountParameters;
using trainer::Head;
using trainer::IsAttention;
using trainer::IsPartOfLayer;
using trainer::MatrixElements;
using trainer::Operator;
using trainer::PartsOfLayer;

struct Model : trainer::ModelConfig {
  std::string name;
};

// Whether the model can be planned; the trainer may not train it. INVALID_ARGUMENT names the number
// that is wrong and what would be right.
absl::Status Validate(const Model& model);

struct Tensor {
  // For a matrix, its outputs and inputs; vectors have one row.
  std::uint64_t rows = 1;
  std::uint64_t columns = 0;
  Operator used_by = Operator::kEmbedding;
  std::uint64_t layer = 0;   // of a sublayer
  bool also_output = false;  // a tied token table: kEmbedding and kOutput use it

  std::uint64_t elements() const { return rows * columns; }
};

// Whether Muon makes the tensor orthogonal: not tables, and not an output layer.
inline bool IsLayerMatrix(const Tensor& tensor) {
  return IsPartOfLayer(tensor.used_by) && tensor.rows > 1 && tensor.columns > 1;
}

// The tensors, in order of first use in the forward pass. `model` is valid.
std::vector<Tensor> Tensors(const Model& model);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_MODEL_H_
