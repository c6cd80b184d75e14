// What the tensor-parallel layers beside the linear ones receive, and from how many, in closed
// form: the formulas of their headers.
#ifndef GEMINID_COLLECTIVES_TENSOR_PARALLEL_LAYER_TRAFFIC_H_
#define GEMINID_COLLECTIVES_TENSOR_PARALLEL_LAYER_TRAFFIC_H_

#include "collectives/tensor_parallel/parallel_cross_entropy.h"
#include "collectives/tensor_parallel/parallel_embedding.h"
#include "collectives/tensor_parallel/parallel_norm.h"
#include "collectives/tensor_parallel/tensor_grid.h"

namespace geminid::collectives {

// Of one rank, in elements of fp32.
struct LayerTraffic {
  double forward_elements = 0;
  double backward_elements = 0;
  int partners = 0;  // distinct ranks it receives from
};

LayerTraffic TrafficOf(const TensorGrid& grid, const EmbeddingShape& shape);
LayerTraffic TrafficOf(const TensorGrid& grid, const LogitsShape& shape);
LayerTraffic TrafficOf(const TensorGrid& grid, const NormOptions& options);

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_TENSOR_PARALLEL_LAYER_TRAFFIC_H_
