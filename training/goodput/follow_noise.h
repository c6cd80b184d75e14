// Chooses the number of micro-batches of a run's steps from the gradient noise scale. Each decision
// depends on measurements of the steps alone. Pure.
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

// The settings of the run.
struct FollowRules {
  uint64_t batch = 0;  // sequences of a micro-batch
  uint64_t least = 1;  // micro-batches of a step; --learning-rate is meant for this number
  uint64_t most = 1;
  RateRule rule = RateRule::kSquareRoot;

  uint64_t base() const { return batch * least; }  // sequences of the smallest step
};

// Decisions depend on this state and on the rules alone. Sizes are in sequences, so that a resumed
// run may have micro-batches of another size.
struct FollowState {
  uint64_t sequences = 0;  // of a step
  // The cost of an update, as the number of sequences that take the same time. 0: not known yet.
  // The first measurement stays, because later ones would make runs differ by their clocks.
  float update_cost = 0;
  NoiseMeter::Memory noise{};

  bool operator==(const FollowState&) const = default;
};

// The state as 24 bytes, which are committed with a step. The last word is never 0.
std::array<uint64_t, 3> WordsOf(const FollowState& state);
// The inverse. Nothing: WordsOf never returns these words.
std::optional<FollowState> StateOf(const std::array<uint64_t, 3>& words);

// The number of a step, within the bounds of the rules.
uint64_t MicroBatchesOf(const FollowRules& rules, const FollowState& state);
// The factor between the learning rate of a step of `sequences` and that of the smallest step. 1
// for the smallest.
double RateFactorOf(const FollowRules& rules, const FollowState& state, uint64_t sequences);

// A decision, with its reasons.
struct BatchChange {
  uint64_t step = 0;  // the steps after this one have `to` micro-batches
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t batch = 0;
  NoiseScale noise{};
  double gain = 0;         // in goodput: the smaller one of the two ends of the noise scale's range
  double rate_factor = 1;  // from now on, relative to the smallest step
  RateRule rule = RateRule::kSquareRoot;
};

// A review of the number of micro-batches follows each step whose number this divides.
inline constexpr uint64_t kReviewEvery = 16;
// A smaller gain changes nothing.
inline constexpr double kLeastFollowedGain = 0.05;

// Whether the decision after step `step` needs the first measurement of an update's cost.
bool NeedsUpdateCost(const FollowState& state, uint64_t step);

struct BatchDecision {
  FollowState state{};
  std::optional<BatchChange> change{};
};
// The decision after step `step` (counted from 1), which measured `sample`. `update_cost` is needed
// if NeedsUpdateCost says so; nothing: not known yet.
//
// A review considers the numbers from half to twice the present one, within the bounds. It takes
// the one with the largest gain at the worse end of the noise scale's range, if that gain is at
// least kLeastFollowedGain. So a range that is too wide to decide changes nothing.
BatchDecision Follow(const FollowRules& rules, FollowState state, uint64_t step,
                     const NoiseSample& sample, std::optional<double> update_cost);

// The report's figures of a run with --accumulate auto.
struct AutoBatchReport {
  FollowRules rules{};
  FollowState state{};
  uint64_t steps = 0;                          // of the whole run, at the present batch
  uint64_t sequences_done = 0;                 // of all steps
  std::vector<uint64_t> step_micro_batches{};  // one per step of this start
  std::vector<BatchChange> changes{};          // of this start
};

// A line for people.
std::string ChangeWords(const BatchChange& change);
// Writes a JSON object, as the value of a key.
void WriteAutoBatchReport(base::JsonWriter& json, const AutoBatchReport& following);

}  // namespace geminid::trainer

#endif  // GEMINID_TRAINING_GOODPUT_FOLLOW_NOISE_H_
