// What a rank receives for one product of a layer, or for one turn of attention, and along which
// groups of the mesh. The elements are those of training/nn/parallel/tensor/tensor_traffic.h and
// training/nn/parallel/sequence/exchange_traffic.h; here they are sorted by group. Pure.
#ifndef GEMINID_TRAINING_MESHES_EXCHANGE_H_
#define GEMINID_TRAINING_MESHES_EXCHANGE_H_

#include <vector>

#include "training/meshes/links.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::parallel {

// Along one group.
struct Exchange {
  struct Turn {
    double elements = 0;  // received
    int messages = 0;     // received one after another
    int calls = 0;        // collectives
  };
  GroupShape group;
  Turn forward = {}, backward = {};
};

// Of a linear layer without its bias. The forward elements of all groups add up to those of
// collectives::TrafficOf, and so do the backward ones. Empty for a grid of one rank.
//
// Messages: an all-reduce of n ranks 2 (n - 1), a gather or a scatter n - 1; of the q broadcasts of
// a SUMMA product a rank receives q - 1, and as many in the q reductions.
std::vector<Exchange> ExchangesOf(const collectives::TensorGrid& grid, collectives::LinearRole role,
                                  const collectives::LinearShape& shape);

// Of attention whose queries, keys, values and outcome change between tokens and heads, one
// exchange each, in either turn. `elements` is of all four together, on all ranks of `parts`.
Exchange HeadExchangesOf(double elements, const GroupShape& parts);

// Of attention whose keys go round the parts of a sequence, with the values, and in the backward
// pass with their gradients. `keys`: elements, on all ranks of `parts`.
Exchange RingExchangesOf(double keys, const GroupShape& parts);

// What a tensor-parallel linear layer needs while it runs, beside its blocks of X, W and Y
// (training/nn/parallel/tensor/linear_scratch.h). In elements of one rank.
double ScratchElements(const collectives::TensorGrid& grid, collectives::LinearRole role,
                       const collectives::LinearShape& shape);

}  // namespace geminid::parallel

#endif  // GEMINID_TRAINING_MESHES_EXCHANGE_H_
