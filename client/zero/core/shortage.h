// Describes how much memory an operator lacks. Other operators of the run may lack more; this file
// knows nothing of them.
#ifndef GEMINID_CLIENT_ZERO_CORE_SHORTAGE_H_
#define GEMINID_CLIENT_ZERO_CORE_SHORTAGE_H_

#include <cstdint>
#include <string>

namespace geminid::zero {

// The device arena when an operator runs that needs all of the listed memory at once.
struct Shortage {
  uint64_t operation = 0;         // in this micro-batch
  std::string parameters{};       // whose chunks cannot be evicted, by name; empty: none
  uint64_t chunk_bytes = 0;       // gathered weights and gradients of these parameters
  uint64_t activation_bytes = 0;  // including the request that failed
  uint64_t state_bytes = 0;       // of the optimizer's state on the device
  uint64_t arena_bytes = 0;
};

// By how much the sum exceeds the arena; if it does not, that the free room is in pieces.
std::string Describe(const Shortage& shortage);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_SHORTAGE_H_
