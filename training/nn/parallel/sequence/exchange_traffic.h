// The traffic of HeadExchange and RingAttention in closed form, for plans and for tests of the
// counters.
#ifndef GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_EXCHANGE_TRAFFIC_H_
#define GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_EXCHANGE_TRAFFIC_H_

namespace geminid::collectives {

// The elements that a rank receives in one exchange, to heads or to tokens, of a tensor of
// `elements` elements over P ranks: (P-1)/P of the rank's part. Each rank receives from all others.
inline double HeadExchangeElements(double elements, int ranks) {
  return elements / ranks * (ranks - 1) / ranks;
}

// The elements that a rank receives from its neighbour, for `elements` elements of keys and as many
// of values over P ranks. In the backward pass the gradients also travel back to their owners.
inline double RingForwardElements(double elements, int ranks) {
  return 2 * (ranks - 1) * elements / ranks;
}
inline double RingBackwardElements(double elements, int ranks) {
  return RingForwardElements(elements, ranks) + 2 * elements;
}

}  // namespace geminid::collectives

#endif  // GEMINID_TRAINING_NN_PARALLEL_SEQUENCE_EXCHANGE_TRAFFIC_H_
