// The ZeRO engine as the source of a model's parameters (training/nn/parameter_source.h).
#ifndef GEMINID_TRAINING_RANKS_ENGINE_SOURCE_H_
#define GEMINID_TRAINING_RANKS_ENGINE_SOURCE_H_

#include <memory>

#include "geminid/session.h"
#include "geminid/stream.h"
#include "geminid/zero.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// Addresses are the host's, where the trainer computes. `engine`, and `session`, whose it is,
// outlive the source.
std::unique_ptr<ParameterSource> MakeEngineSource(zero::Engine* engine, const Session* session);

// Addresses are the device's, for what is queued on `stream`, which lives until the engine has been
// synchronised.
std::unique_ptr<ParameterSource> MakeStreamSource(zero::Engine* engine, StreamHandle stream);

// The engine's `stack`, which outlives it, at the addresses of such a source: the host's in the
// arena of `session`; null: the device's.
std::unique_ptr<zero::ActivationStack> MakeSourceStack(zero::ActivationStack* stack,
                                                       const Session* session);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_ENGINE_SOURCE_H_
