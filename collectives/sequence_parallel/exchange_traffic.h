// What HeadExchange moves, in closed form: what plans count with, and what its counters are tested
// against.
#ifndef GEMINID_COLLECTIVES_SEQUENCE_PARALLEL_EXCHANGE_TRAFFIC_H_
#define GEMINID_COLLECTIVES_SEQUENCE_PARALLEL_EXCHANGE_TRAFFIC_H_

#include <cstddef>

namespace geminid::collectives {

// Of a tensor of so many elements over P ranks, those that a rank receives of one way, to heads or
// to tokens: (P-1)/P of its part. Each rank receives from all others.
inline double HeadExchangeElements(double elements, int ranks) {
  return elements / ranks * (ranks - 1) / ranks;
}

}  // namespace geminid::collectives

#endif  // GEMINID_COLLECTIVES_SEQUENCE_PARALLEL_EXCHANGE_TRAFFIC_H_
