// What is said when an operator's memory does not fit: how much is lacking. Of the run, whose other
// operators may lack more, nothing is known here.
#ifndef GEMINID_CLIENT_ZERO_CORE_SHORTAGE_H_
#define GEMINID_CLIENT_ZERO_CORE_SHORTAGE_H_

#include <cstdint>
#include <string>

namespace geminid::zero {

// Of a device arena when an operator runs that must have all of it at once.
struct Shortage {
  uint64_t operation = 0;         // in this micro-batch
  std::string parameters{};       // whose chunks may not leave, in words; empty: there are none
  uint64_t chunk_bytes = 0;       // gathered weights and gradients of these
  uint64_t activation_bytes = 0;  // what was asked for included
  uint64_t state_bytes = 0;       // optimizer's, which lives there
  uint64_t arena_bytes = 0;
};

// The sum, and by how much it is too much; or, when it is not, that the free room is in pieces.
std::string Describe(const Shortage& shortage);

}  // namespace geminid::zero

#endif  // GEMINID_CLIENT_ZERO_CORE_SHORTAGE_H_
