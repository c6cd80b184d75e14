// The number of micro-batches of a run's steps, as the gradient noise scale has it: decided step by
// step, from nothing but what the steps measured. Pure.
#ifndef GEMINID_TRAINING_GOODPUT_FOLLOW_NOISE_H_
#define GEMINID_TRAINING_GOODPUT_FOLLOW_NOISE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "training/goodput/goodput.h"
#include "training/goodput/noise_scale.h"

namespace geminid::trainer {

// What a run is told.
struct FollowRules {
  uint64_t batch = 0;  // sequences of a micro-batch
  uint64_t least = 1;  // micro-batches of a step; the learning rate is that of so many
  uint64_t most = 1;
  RateRule rule = RateRule::kSquareRoot;

  uint64_t base() const { return batch * least; }  // sequences of the smallest step
};

// All that decisions depend on, beside the rules. Sizes are in sequences, so that a run may go on
// with other micro-batches.
struct FollowState {
  uint64_t sequences = 0;  // of a step
  // What an update costs: the time of so many sequences. 0: not known yet. It stays as it was
  // first measured, since a clock in later decisions would make each run another one.
  float update_cost = 0;
  NoiseMeter::Memory noise{};

  bool operator==(const FollowState&) const = default;
};

// 24 bytes, which are committed with a step. The last is never 0.
std::array<uint64_t, 3> WordsOf(const FollowState& state);
// Nothing: WordsOf makes no such words.
std::optional<FollowState> StateOf(const std::array<uint64_t, 3>& words);

// Of a step, within the bounds.
uint64_t MicroBatchesOf(const FollowRules& rules, const FollowState& state);
// What the learning rate of the smallest step is multiplied by for a step of `sequences`. 1 for the
// smallest.
double RateFactorOf(const FollowRules& rules, const FollowState& state, uint64_t sequences);

// A decision, with its reasons.
struct BatchChange {
  uint64_t step = 0;  // after which steps have `to` micro-batches
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t batch = 0;
  NoiseScale noise{};
  double gain = 0;         // of goodput, at that end of the noise scale's range where it is less
  double rate_factor = 1;  // from now on, beside the smallest step
  RateRule rule = RateRule::kSquareRoot;
};

// The number of micro-batches is reviewed after each step whose number this divides.
inline constexpr uint64_t kReviewEvery = 16;
// A smaller gain changes nothing.
inline constexpr double kLeastFollowedGain = 0.05;

// Whether the decision after step `step` waits for the first measurement of an update's cost.
bool NeedsUpdateCost(const FollowState& state, uint64_t step);

struct Followed {
  FollowState state{};
  std::optional<BatchChange> change{};
};
// After step `step`, which counts from 1, and measured `sample`. `update_cost`: asked for by
// NeedsUpdateCost; nothing: not known yet.
//
// A review takes the number of micro-batches between half and twice the present one, and within the
// bounds, whose goodput is surest to be higher: at both ends of the noise scale's range by at least
// kLeastFollowedGain. So a range that is too wide to tell changes nothing.
Followed Follow(const FollowRules& rules, FollowState state, uint64_t step,
                const NoiseSample& sample, std::optional<double> update_cost);

// What a report says of a run that follows its noise.
struct BatchFollowing {
  FollowRules rules{};
  FollowState state{};
  uint64_t steps = 0;                          // of the whole run, if nothing changes any more
  uint64_t sequences_done = 0;                 // of all steps
  std::vector<uint64_t> step_micro_batches{};  // one per step of this start
  std::vector<BatchChange> changes{};          // of this start
};

// A line for people.
std::string ChangeWords(const BatchChange& change);
// The value of one key.
void WriteFollowing(base::JsonWriter& json, const BatchFollowing& following);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_FOLLOW_NOISE_H_
