// Predicts a run's goodput with other numbers of ranks from the numbers that it has had. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_RANKS_MODEL_H_
#define GEMINID_TRAINING_GOODPUT_RANKS_MODEL_H_

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace geminid::trainer {

struct RanksGoodput {
  int ranks = 0;
  double goodput = 0;  // sequences a second
};

// `measured`: the seconds per sequence, by the number of ranks. A measured number has its own
// value. Others follow seconds = serial + parallel / ranks (Amdahl's law), by least squares; if
// only one number was measured, serial is 0.
//
// The batch does not depend on the number of ranks. So the statistical efficiency is the same in
// all rows, and the gradient noise scale is not needed.
std::vector<RanksGoodput> GoodputByRanks(const std::map<int, double>& measured,
                                         std::span<const int> numbers);

// The seconds per sequence with the present ranks, from the newest steps.
class SequenceTimer {
 public:
  // Adds a step: its sequences, and the time of the whole step.
  void Add(double sequences, double seconds);
  // The median; nothing before the ninth step. The first step, which plans, does not count.
  std::optional<double> Median() const;

 private:
  static constexpr std::size_t kNewest = 64;
  static constexpr std::size_t kLeast = 8;
  std::vector<double> times_;  // a ring
  std::size_t steps_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_RANKS_MODEL_H_
