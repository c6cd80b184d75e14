// Dropout (Srivastava et al. 2014): training zeroes each element with a given probability, and
// scales the others so that the mean does not change. The choice of elements depends only on the
// seed, the sample, the position in the model and the element. So it is the same for any number of
// ranks, in recomputation and after a restart.
#ifndef GEMINID_TRAINING_NN_DROPOUT_H_
#define GEMINID_TRAINING_NN_DROPOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/dropout/dropout.h"

namespace geminid::trainer {

struct Dropout {
  double share = 0;  // the share of zeroed elements, in steps of 2^-16; 0: no dropout
  uint64_t seed = 0;
  uint64_t first_sample = 0;  // the run-wide number of the micro-batch's first sequence

  bool active() const { return share > 0; }
};

// A position in the model: the embedding, or the output of a sublayer.
struct DropoutPlace {
  Dropout dropout{};
  uint64_t place = 0;
  size_t sequence_length = 0;
  size_t hidden = 0;
};

// The pattern says which elements of the run dropout keeps at this position. FirstElement is the
// number, in the pattern, of the first element of a token of the micro-batch.
kernels::DropoutPattern DropoutPatternOf(const DropoutPlace& place);
uint64_t FirstElement(const DropoutPlace& place, size_t first_token);

// y = x times the factors, each 0 or 1 / (1 - share), for `tokens` dense rows from token
// `first_token` on. `y` may be `x`.
template <typename T>
void ApplyDropout(const DropoutPlace& place, size_t first_token, size_t tokens, const T* x, T* y);

// sum += x times the factors.
template <typename T>
void AddDropout(const DropoutPlace& place, size_t first_token, size_t tokens, const T* x, T* sum);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_DROPOUT_H_
