// One part of a model among several whose parameters one source has, as in a stage of an
// interleaved pipeline.
#ifndef GEMINID_TRAINING_NN_PART_SOURCE_H_
#define GEMINID_TRAINING_NN_PART_SOURCE_H_

#include <memory>
#include <vector>

#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// `all`, which outlives it, by the part's own ids: `ids` has by these those of `all`.
std::unique_ptr<ParameterSource> MakePartSource(ParameterSource* all,
                                                std::vector<zero::ParameterId> ids);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_PART_SOURCE_H_
