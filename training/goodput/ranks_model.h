// What a run would do with other numbers of ranks, by the numbers that it has had. Pure.
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

// `measured`: seconds that a sequence took, by the number of ranks. A number that was measured has
// what was measured. Others follow seconds = serial + parallel / ranks (Amdahl's law), by least
// squares; where one number was measured, serial is 0.
//
// The batch stays whatever the number of ranks is. So a sequence is worth the same in all rows, and
// the gradient noise scale decides nothing here.
std::vector<RanksGoodput> GoodputByRanks(const std::map<int, double>& measured,
                                         std::span<const int> numbers);

// Seconds of a sequence with the present ranks, by the newest steps.
class SequenceTimer {
 public:
  // Of a step as a whole.
  void Add(double sequences, double seconds);
  // The median; nothing before the ninth step, of which the first plans.
  std::optional<double> Median() const;

 private:
  static constexpr std::size_t kNewest = 64;
  static constexpr std::size_t kLeast = 8;
  std::vector<double> times_;  // a ring
  std::size_t steps_ = 0;
};

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_RANKS_MODEL_H_
