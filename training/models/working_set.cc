#include "training/models/working_set.h"

#include <algorithm>
#include <span>
#include <vector>

namespace geminid::trainer {

uint64_t WorkingSetBytes(const ModelParameters& parameters, zero::DataType data_type,
                         uint64_t chunk_elements) {
  uint64_t largest = 0;
  const auto note = [&](std::span<const ParameterId> ids) {
    uint64_t elements = 0;
    for (const ParameterId id : ids) {
      const ParameterSpec& spec = parameters.specs[static_cast<size_t>(id)];
      if (!spec.data_type) elements += spec.elements();
    }
    largest = std::max(largest, elements);
  };
  // Parameters with a type of their own are small, and operators share their chunks: all of them
  // stay.
  uint64_t staying_bytes = 0;
  for (const ParameterSpec& spec : parameters.specs) {
    if (spec.data_type) staying_bytes += spec.elements() * zero::SizeOf(*spec.data_type);
  }
  for (const AttentionPlaces& sublayer : parameters.attention) note(sublayer.all);
  for (const MlpPlaces& sublayer : parameters.mlp) note(sublayer.all);
  for (const RoutedPlaces& sublayer : parameters.routed) {
    for (const ExpertPlaces& expert : sublayer.experts) {
      std::vector<ParameterId> together = sublayer.all;
      together.insert(together.end(), expert.all.begin(), expert.all.end());
      note(together);
    }
  }
  note(parameters.embedding);
  note(std::vector<ParameterId>{parameters.output.weight});
  // Chunks move whole, and an operator's parameters may begin and end inside a chunk.
  constexpr uint64_t kEnds = 2;
  return 2 * ((largest + kEnds * chunk_elements) * zero::SizeOf(data_type) + staying_bytes);
}

}  // namespace geminid::trainer
