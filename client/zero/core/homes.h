// A home is a place in the arena that a chunk never gives up to another chunk. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_HOMES_H_
#define GEMINID_CLIENT_ZERO_CORE_HOMES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "geminid/plan.h"

namespace geminid::zero {

// Homes of the trace's chunks, as offsets in its arena. nullopt unless all chunks and the largest
// workspace of any moment fit beside each other. Homes for only some chunks would fragment the rest
// of the arena, because operators hold chunks at their homes.
std::optional<std::vector<uint64_t>> HomesOf(const Trace& trace);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_HOMES_H_
