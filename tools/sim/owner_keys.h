// The owners of device memory, as pictures show them: weights at the bottom, activations at the top
// of the arena.
#ifndef GEMINID_TOOLS_SIM_OWNER_KEYS_H_
#define GEMINID_TOOLS_SIM_OWNER_KEYS_H_

#include "daemon/planner/picture/memory_keys.h"
#include "tools/sim/observer.h"

namespace geminid::sim {

inline constexpr Owner kOwnersFromBelow[] = {Owner::kWeights, Owner::kLoading, Owner::kLeaving,
                                             Owner::kActivations};
// The keys of these owners, in the same order.
inline constexpr base::SvgKey kOwnerKeys[] = {planner::kWeightsKey, planner::kArrivingKey,
                                              planner::kLeavingKey, planner::kActivationsKey};

}  // namespace geminid::sim

#endif  // GEMINID_TOOLS_SIM_OWNER_KEYS_H_
