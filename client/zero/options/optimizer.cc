#include "geminid/optimizer.h"

#include <iterator>

namespace geminid::zero {

const char* Name(const Optimizer& optimizer) {
  constexpr const char* kNames[] = {"adamw",   "adam", "lamb",      "lars", "sgd",
                                    "adagrad", "lion", "adafactor", "came", "muon"};
  static_assert(std::size(kNames) == std::variant_size_v<Optimizer>);
  return kNames[optimizer.index()];
}

}  // namespace geminid::zero
