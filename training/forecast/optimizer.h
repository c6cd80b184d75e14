// The engine's optimizers and the bytes of state that each has per parameter. The kernels define
// both.
#ifndef GEMINID_TRAINING_FORECAST_OPTIMIZER_H_
#define GEMINID_TRAINING_FORECAST_OPTIMIZER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/optimizers/optimizer.h"
#include "training/forecast/model.h"

namespace geminid::forecast {

struct Optimizer {
  kernels::OptimizerOptions options;
  bool small_state = false;  // arrays in bf16: Options::state_type of the engine

  std::string name() const { return std::string(kernels::OptimizerName(options.kind)); }
  const char* state_dtype() const { return small_state ? "bf16" : "fp32"; }
  // "adamw", or "adamw with bf16 state".
  std::string words() const { return small_state ? name() + " with bf16 state" : name(); }
  // Bytes of the state arrays besides the master weight, which are sharded over the ranks.
  std::uint64_t moment_bytes_per_parameter() const {
    const std::uint64_t element = small_state ? sizeof(std::uint16_t) : sizeof(float);
    return element * static_cast<std::uint64_t>(kernels::StateArrays(options));
  }
  // The same for tensors that the optimizer steps as whole matrices (StepsWhole).
  std::uint64_t matrix_moment_bytes_per_parameter() const {
    const std::uint64_t element = small_state ? sizeof(std::uint16_t) : sizeof(float);
    return element * static_cast<std::uint64_t>(kernels::MatrixStateArrays(options));
  }
  bool StepsWhole(const Tensor& tensor) const {
    return options.kind == kernels::OptimizerKind::kMuon && IsLayerMatrix(tensor);
  }
  // Bytes that every rank stores whole for a tensor of this shape: its sums and its factors, in two
  // versions, of which a step reads one and writes the other.
  std::uint64_t tensor_state_bytes(std::uint64_t rows, std::uint64_t columns) const;
  // Bytes that kernels need for the tensor on the device, once, while any state lives there.
  std::uint64_t device_scale_bytes(std::uint64_t rows, std::uint64_t columns) const;
};

// An optimizer of the kernels, with the engine's hyperparameters. `momentum`: sgd and adafactor
// store one array that they have only with momentum. INVALID_ARGUMENT listing the names, or for a
// momentum where the optimizer offers no choice.
absl::StatusOr<Optimizer> FindOptimizer(const std::string& name, bool momentum = false);

}  // namespace geminid::forecast

#endif  // GEMINID_TRAINING_FORECAST_OPTIMIZER_H_
