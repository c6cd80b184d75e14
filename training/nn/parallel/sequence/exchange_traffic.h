// What HeadExchange and RingAttention move, in closed form: what plans count with, and what their
// counters are tested against.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_EXCHANGE_TRAFFIC_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_EXCHANGE_TRAFFIC_H_

#include <cstddef>

namespace geminid::collectives {

// Of a tensor of so many elements over P ranks, those that a rank receives of one way, to heads or
// to tokens: (P-1)/P of its part. Each rank receives from all others.
inline double HeadExchangeElements(double elements, int ranks) {
  return elements / ranks * (ranks - 1) / ranks;
}

// Of keys over P ranks, that many elements in all, and as many values: those that a rank receives
// from one other while it attends, and in the backward pass, where their gradients go all the way
// home.
inline double RingForwardElements(double elements, int ranks) {
  return 2 * (ranks - 1) * elements / ranks;
}
inline double RingBackwardElements(double elements, int ranks) {
  return RingForwardElements(elements, ranks) + 2 * elements;
}

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_EXCHANGE_TRAFFIC_H_
