// The elements that a rank receives for one product of a layer, or for one turn of attention, by
// group of the mesh. Their totals are those of training/nn/parallel/tensor/tensor_traffic.h and
// training/nn/parallel/sequence/exchange_traffic.h. Pure.
#ifndef GEMINID_TRAINING_MESHES_EXCHANGE_H_
#define GEMINID_TRAINING_MESHES_EXCHANGE_H_

#include <vector>

#include "training/meshes/links.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::parallel {

// The exchange along one group.
struct Exchange {
  struct PassTraffic {
    double elements = 0;  // received
    int messages = 0;     // received one after another
    int calls = 0;        // collectives
  };
  GroupShape group;
  PassTraffic forward = {}, backward = {};
};

// The exchanges of a linear layer without its bias. The sums over all groups are those of
// collectives::TrafficOf, forward and backward. Empty for a grid of one rank.
//
// Messages: an all-reduce of n ranks has 2 (n - 1), a gather or a scatter n - 1. A SUMMA product
// has q broadcasts, of which a rank receives q - 1, and likewise q reductions.
std::vector<Exchange> ExchangesOf(const collectives::TensorGrid& grid, collectives::LinearRole role,
                                  const collectives::LinearShape& shape);

// Ulysses: queries, keys, values and output change between tokens and heads, with one exchange
// each, forward and backward. `elements` is the sum of all four, over all ranks of `parts`.
Exchange HeadExchangesOf(double elements, const GroupShape& parts);

// Ring attention: keys and values, and in the backward pass their gradients, go round the slices of
// a sequence. `keys`: the elements of the keys, over all ranks of `parts`.
Exchange RingExchangesOf(double keys, const GroupShape& parts);

// The scratch memory of a tensor-parallel linear layer, beside its blocks of X, W and Y
// (training/nn/parallel/tensor/linear_scratch.h). In elements of one rank.
double ScratchElements(const collectives::TensorGrid& grid, collectives::LinearRole role,
                       const collectives::LinearShape& shape);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_EXCHANGE_H_
