// A first layer with several outputs of the same X, such as queries, keys and values. It needs one
// product, and one exchange of X and of its gradient, instead of several.
#ifndef GEMINID_TRAINING_NN_PARALLEL_TENSOR_FUSED_OUTPUTS_H_
#define GEMINID_TRAINING_NN_PARALLEL_TENSOR_FUSED_OUTPUTS_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "training/nn/parallel/tensor/tensor_grid.h"

namespace geminid::collectives {

// The order of the fused layer's outputs. Each rank along the axis that partitions the outputs has
// its part of every section in one block. So the order is: part 0 of the first section, part 0 of
// the second, ..., then the parts 1.
class FusedOutputs {
 public:
  // `sections`: the features of each section. INVALID_ARGUMENT if a section is not evenly
  // divisible.
  static absl::StatusOr<FusedOutputs> Make(const TensorGrid& grid, std::vector<size_t> sections);

  // The outputs of all sections.
  size_t outputs() const { return outputs_; }

  // The feature of output `index`, counted over all sections one after another. Row `index` of the
  // fused W is row FeatureOf(index) of the separate layers' stacked W. The same holds for the bias.
  size_t FeatureOf(size_t index) const;

  // The range of a section among a rank's own outputs.
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
