#include "training/nn/parallel/tensor/fused_outputs.h"

#include "base/status_macros.h"
#include "training/nn/parallel/tensor/tensor_layout.h"

namespace geminid::collectives {

absl::StatusOr<FusedOutputs> FusedOutputs::Make(const TensorGrid& grid,
                                                std::vector<size_t> sections) {
  const Axes cut = LayoutOfX(grid.mode(), LinearRole::kSecond).features;
  size_t outputs = 0;
  for (const size_t section : sections) {
    GEMINID_RETURN_IF_ERROR(PieceOf(grid, cut, "features", section, 0).status());
    outputs += section;
  }
  return FusedOutputs(std::move(sections), outputs, static_cast<size_t>(Pieces(grid, cut)));
}

size_t FusedOutputs::FeatureOf(size_t index) const {
  const size_t part = index / (outputs_ / parts_);
  size_t within = index % (outputs_ / parts_);
  size_t begin = 0;  // of the section
  for (const size_t section : sections_) {
    const size_t own = section / parts_;
    if (within < own) return begin + part * own + within;
    within -= own;
    begin += section;
  }
  return outputs_;
}

Range FusedOutputs::PartOf(size_t section) const {
  Range part;
  for (size_t before = 0; before < section; ++before) part.begin += sections_[before] / parts_;
  part.count = sections_[section] / parts_;
  return part;
}

}  // namespace geminid::collectives
