// A home is a place in the arena that a chunk never has to give up to another one. Pure.
#ifndef GEMINID_CLIENT_ZERO_CORE_HOMES_H_
#define GEMINID_CLIENT_ZERO_CORE_HOMES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "geminid/plan.h"

namespace geminid::zero {

// A home for each chunk of the trace, as offsets in its arena. None, unless all of the chunks and
// the most workspace of any moment fit beside each other: with homes for only some chunks, those
// that operators hold would leave the rest of the arena in pieces.
std::optional<std::vector<uint64_t>> HomesOf(const Trace& trace);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_HOMES_H_
