// Partitions a model's layers into the stages of a pipeline, by the layers' costs and not by their
// number. Pure.
#ifndef GEMINID_TRAINING_SETTINGS_MODEL_PART_H_
#define GEMINID_TRAINING_SETTINGS_MODEL_PART_H_

#include <vector>

#include "training/models/parameters.h"

namespace geminid::trainer {

// One part for each stage, in order; each has a layer at least, so there are `stages` of them at
// most. The dearest stage is as cheap as can be, and of the cuts that give that, the one with the
// most layers beside the output layer; the embedding, which multiplies nothing, counts for nothing.
std::vector<ModelPart> SplitModel(const ModelConfig& config, int stages);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_SETTINGS_MODEL_PART_H_
