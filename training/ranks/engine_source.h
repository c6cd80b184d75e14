// The ZeRO engine as the source of a model's parameters (training/nn/parameter_source.h).
#ifndef GEMINID_TRAINING_RANKS_ENGINE_SOURCE_H_
#define GEMINID_TRAINING_RANKS_ENGINE_SOURCE_H_

#include <memory>

#include "geminid/session.h"
#include "geminid/stream.h"
#include "geminid/zero.h"
#include "training/nn/parameter_source.h"

namespace geminid::trainer {

// For a trainer that computes on the host: addresses are the host's. `engine` and its `session`
// outlive the source.
std::unique_ptr<ParameterSource> MakeEngineSource(zero::Engine* engine, const Session* session);

// For work that is queued on `stream`: addresses are the device's. The stream lives until the
// engine has been synchronised.
std::unique_ptr<ParameterSource> MakeStreamSource(zero::Engine* engine, StreamHandle stream);

// The engine's `stack`, which outlives the result, with the addresses of such a source: the host's
// in the arena of `session`; without a session the device's.
std::unique_ptr<zero::ActivationStack> MakeSourceStack(zero::ActivationStack* stack,
                                                       const Session* session);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_RANKS_ENGINE_SOURCE_H_
