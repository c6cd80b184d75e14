// The part of a model that must be on the device at once.
#ifndef GEMINID_TRAINING_MODELS_WORKING_SET_H_
#define GEMINID_TRAINING_MODELS_WORKING_SET_H_

#include <cstdint>

#include "geminid/zero.h"
#include "training/models/parameters.h"

namespace geminid::trainer {

// Twice the largest operator with its chunks, because one operator computes while its neighbour is
// reduced or gathered. Adds twice all parameters with a type of their own, such as norms.
uint64_t WorkingSetBytes(const ModelParameters& parameters, zero::DataType data_type,
                         uint64_t chunk_elements);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_MODELS_WORKING_SET_H_
