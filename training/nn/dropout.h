// Dropout (Srivastava et al. 2014): in training each element becomes zero with a given probability,
// and the others are scaled so that the mean stays. The choice of elements depends on the seed, the
// sample, the place in the model and the element alone. So it is the same for any number of ranks,
// in recomputation and after a restart.
#ifndef GEMINID_TRAINING_NN_DROPOUT_H_
#define GEMINID_TRAINING_NN_DROPOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/model/dropout/dropout.h"

namespace geminid::trainer {

struct Dropout {
  double share = 0;  // of the elements that are zero, in steps of 2^-16; 0: none are
  uint64_t seed = 0;
  uint64_t first_sample = 0;  // the number of the micro-batch's first sequence, over the whole run

  bool active() const { return share > 0; }
};

// Where in the model: the embedding, or the output of a half layer.
struct DropoutPlace {
  Dropout dropout{};
  uint64_t place = 0;
  size_t sequence_length = 0;
  size_t hidden = 0;
};

// Which of the run's elements dropout leaves there, and the number among them of the first element
// of a token of the micro-batch.
kernels::DropoutPattern DropoutPatternOf(const DropoutPlace& place);
uint64_t FirstElement(const DropoutPlace& place, size_t first_token);

// y = x times the factors, each 0 or 1 / (1 - share), for `tokens` rows of x and y, which may be
// the same, from token `first_token` on. Dense.
template <typename T>
void ApplyDropout(const DropoutPlace& place, size_t first_token, size_t tokens, const T* x, T* y);

// sum += x times the factors.
template <typename T>
void AddDropout(const DropoutPlace& place, size_t first_token, size_t tokens, const T* x, T* sum);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_DROPOUT_H_
