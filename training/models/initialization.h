// The first value of each parameter. It depends on the seed, the parameter's name and the element's
// index alone, so it is the same for every number of ranks, every chunk size and every order of
// initialization.
#ifndef GEMINID_TRAINING_MODELS_INITIALIZATION_H_
#define GEMINID_TRAINING_MODELS_INITIALIZATION_H_

#include <cstdint>
#include <span>

#include "training/models/parameters.h"

namespace geminid::trainer {

// Writes values[i] = element first_element + i of the parameter.
void Fill(const ParameterSpec& spec, uint64_t seed, uint64_t first_element,
          std::span<float> values);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_INITIALIZATION_H_
