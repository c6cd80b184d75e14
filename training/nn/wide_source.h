// Presents parameters of a 16-bit type as fp32, for layers that compute in fp32.
#ifndef GEMINID_TRAINING_NN_WIDE_SOURCE_H_
#define GEMINID_TRAINING_NN_WIDE_SOURCE_H_

#include <memory>
#include <vector>

#include "training/models/parameters.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// `narrow` with weights and gradients as fp32, on the host. Each use of an operator widens its
// weights to the source's workspace, where a gradient takes its weight's place; it is rounded when
// it has been written. `specs` are by id: those whose type is fp32 are as they are, the others
// bf16.
std::unique_ptr<ParameterSource> MakeWideSource(std::unique_ptr<ParameterSource> narrow,
                                                std::vector<ParameterSpec> specs);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_WIDE_SOURCE_H_
