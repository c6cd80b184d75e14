// Computes the first value of each parameter. It depends on the seed, the parameter's name and the
// element's index alone. So the number of ranks, the chunk size and the order do not change it.
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
