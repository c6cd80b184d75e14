// The traffic, the stored elements and the partners of a tensor-parallel linear layer in closed
// form, for plans and for tests of the layers' counters.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_TRAFFIC_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_TRAFFIC_H_

#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

// Of one rank, without the bias. Elements are fractions of whole matrices, so need not be integers.
struct LinearTraffic {
  double forward_elements = 0;   // received
  double backward_elements = 0;  // received
  double forward_sums = 0;       // of these, what is added up, in fp32; the others are operands
  double backward_sums = 0;
  double saved_elements = 0;     // of X, for the backward
  double weight_elements = 0;    // of W
  int partners = 0;              // distinct ranks from which it receives
};

// The formulas of parallel_linear.h, with all-reduces that receive 2 (P-1)/P of their size.
LinearTraffic TrafficOf(const TensorGrid& grid, LinearRole role, const LinearShape& shape);

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_TENSOR_TRAFFIC_H_
