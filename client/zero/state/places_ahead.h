// The number of places for state that is fetched ahead of its update.
#ifndef GEMINID_CLIENT_ZERO_STATE_PLACES_AHEAD_H_
#define GEMINID_CLIENT_ZERO_STATE_PLACES_AHEAD_H_

#include <cstddef>

namespace geminid::zero {

// One place receives state, in one the state is updated, and one sends state back.
inline constexpr size_t kPlacesAhead = 3;

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_PLACES_AHEAD_H_
