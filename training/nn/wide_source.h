// Presents parameters of a 16-bit type as fp32, for layers that compute in fp32.
#ifndef GEMINID_TRAINING_NN_WIDE_SOURCE_H_
#define GEMINID_TRAINING_NN_WIDE_SOURCE_H_

#include <memory>
#include <vector>

#include "training/models/parameters.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// Presents the weights and gradients of `narrow` as fp32, on the host. Each use of an operator
// widens its weights into the source's workspace. There a gradient overwrites its weight; it is
// rounded when it has been written. `specs` are by id: parameters of type fp32 pass through
// unchanged, and the others are bf16.
std::unique_ptr<ParameterSource> MakeWideSource(std::unique_ptr<ParameterSource> narrow,
                                                std::vector<ParameterSpec> specs);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_WIDE_SOURCE_H_
