// The traffic and partners of the tensor-parallel layers other than linear ones, in closed form:
// the formulas of their headers.
#ifndef GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_LAYER_TRAFFIC_H_
#define GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_LAYER_TRAFFIC_H_

#include "training/nn/parallel/tensor/parallel_cross_entropy.h"
#include "training/nn/parallel/tensor/parallel_embedding.h"
#include "training/nn/parallel/tensor/parallel_norm.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

// Of one rank, in fp32 elements.
struct LayerTraffic {
  double forward_elements = 0;
  double backward_elements = 0;
  int partners = 0;  // distinct ranks from which it receives
};

LayerTraffic TrafficOf(const TensorGrid& grid, const EmbeddingShape& shape);
LayerTraffic TrafficOf(const TensorGrid& grid, const LogitsShape& shape);
LayerTraffic TrafficOf(const TensorGrid& grid, const NormOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_TESTS_TRAINING_NN_PARALLEL_TENSOR_LAYER_TRAFFIC_H_
