// What a tensor-parallel linear layer moves, keeps and whom it talks to, in closed form: what plans
// count with, and what the layers' own counters are tested against.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_TRAFFIC_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_TRAFFIC_H_

#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

// Of one rank, without the bias. Elements are of whole matrices, so they need not be integers.
struct LinearTraffic {
  double forward_elements = 0;   // received
  double backward_elements = 0;  // received
  double saved_elements = 0;     // of X, for the backward
  double weight_elements = 0;    // of W
  int partners = 0;              // distinct ranks it receives from
};

// The formulas of parallel_linear.h, for collectives that receive 2 (P-1)/P of an all-reduce.
LinearTraffic TrafficOf(const TensorGrid& grid, LinearRole role, const LinearShape& shape);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_TRAFFIC_H_
