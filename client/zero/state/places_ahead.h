// How far ahead of its update state that lies elsewhere is fetched.
#ifndef GEMINID_CLIENT_ZERO_STATE_PLACES_AHEAD_H_
#define GEMINID_CLIENT_ZERO_STATE_PLACES_AHEAD_H_

#include <cstddef>

namespace geminid::zero {

// Places that state passes through: in one it comes, in one it is updated, from one it leaves.
inline constexpr size_t kPlacesAhead = 3;

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_STATE_PLACES_AHEAD_H_
