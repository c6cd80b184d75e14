// The parameters of one part of a model, from a source that has those of several parts, as in a
// stage of an interleaved pipeline.
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
