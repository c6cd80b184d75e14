// The positions, within their sequence, of the tokens that a rank has.
#ifndef GEMINID_TRAINING_NN_POSITIONS_H_
#define GEMINID_TRAINING_NN_POSITIONS_H_

#include <cstddef>
#include <optional>
#include <vector>

namespace geminid::trainer {

struct Positions {
  size_t first = 0;  // of the first token
  // The position of the second half's first token, if the second half does not directly follow the
  // first half (training/nn/parallel/sequence/zigzag.h). In memory it still follows.
  std::optional<size_t> second_half = {};

  friend bool operator==(const Positions&, const Positions&) = default;

  // Tokens with consecutive positions.
  struct Run {
    size_t token = 0;  // among those that the rank has
    size_t position = 0;
    size_t count = 0;
  };
  // The runs of `length` tokens, in order. With a second half the length is even.
  std::vector<Run> RunsOf(size_t length) const {
    if (!second_half.has_value()) return {{.token = 0, .position = first, .count = length}};
    const size_t half = length / 2;
    return {{.token = 0, .position = first, .count = half},
            {.token = half, .position = *second_half, .count = half}};
  }
  // The position after the last of `length` tokens.
  size_t EndOf(size_t length) const {
    const Run last = RunsOf(length).back();
    return last.position + last.count;
  }
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_NN_POSITIONS_H_
