// The positions in the sequence of the tokens that a rank has of it.
#ifndef GEMINID_TRAINING_NN_POSITIONS_H_
#define GEMINID_TRAINING_NN_POSITIONS_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace geminid::trainer {

struct Positions {
  size_t first = 0;  // of the first token
  // Of the first token of the second half, where that does not stand right behind the first half
  // (training/nn/parallel/sequence/zigzag.h); behind it all the same.
  std::optional<size_t> second_half = {};

  friend bool operator==(const Positions&, const Positions&) = default;

  // Consecutive ones.
  struct Run {
    size_t token = 0;  // of those that the rank has
    size_t position = 0;
    size_t count = 0;
  };
  // Of `length` tokens, in their order. With a second half the length is even.
  std::vector<Run> RunsOf(size_t length) const {
    if (!second_half.has_value()) return {{.token = 0, .position = first, .count = length}};
    const size_t half = length / 2;
    return {{.token = 0, .position = first, .count = half},
            {.token = half, .position = *second_half, .count = half}};
  }
  // All of `length` tokens stand before this.
  size_t EndOf(size_t length) const {
    const Run last = RunsOf(length).back();
    return last.position + last.count;
  }
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_POSITIONS_H_
