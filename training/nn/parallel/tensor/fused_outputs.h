// A first layer that makes several things of the same X, such as queries, keys and values: one
// product, and one exchange of X and of its gradient, instead of several.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_FUSED_OUTPUTS_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_FUSED_OUTPUTS_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

// The outputs of the fused layer, so ordered that each rank along the axis that cuts them has its
// part of every section, and has it together: part 0 of the first section, part 0 of the second,
// ..., then the parts 1.
class FusedOutputs {
 public:
  // `sections` holds the features of each. INVALID_ARGUMENT for one that cannot be cut evenly.
  static absl::StatusOr<FusedOutputs> Make(const TensorGrid& grid, std::vector<size_t> sections);

  // Of all sections.
  size_t outputs() const { return outputs_; }

  // Which feature output `index` is, of the sections laid one after the other: row `index` of the
  // fused W is row FeatureOf(index) of what the layers apart would have, and so are elements of the
  // bias.
  size_t FeatureOf(size_t index) const;

  // Where a rank has its part of a section, among its own outputs.
  Range PartOf(size_t section) const;

 private:
  FusedOutputs(std::vector<size_t> sections, size_t outputs, size_t parts)
      : sections_(std::move(sections)), outputs_(outputs), parts_(parts) {}

  std::vector<size_t> sections_;
  size_t outputs_;
  size_t parts_;
};

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_TENSOR_FUSED_OUTPUTS_H_
