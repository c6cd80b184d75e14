// The parameters of one part of a model, taken from a source of several parts. A stage of an
// interleaved pipeline has such a source.
#ifndef GEMINID_TRAINING_NN_PART_SOURCE_H_
#define GEMINID_TRAINING_NN_PART_SOURCE_H_

#include <memory>
#include <vector>

#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// `ids[i]` is the id in `all` of the part's parameter i. `all` outlives the result.
std::unique_ptr<ParameterSource> MakePartSource(ParameterSource* all,
                                                std::vector<zero::ParameterId> ids);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_PART_SOURCE_H_
