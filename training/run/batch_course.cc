#include "training/run/batch_course.h"

#include <algorithm>
#include <array>

#include "training/run/batch_watch.h"

namespace geminid::trainer {
namespace {

FollowRules RulesOf(const TrainOptions& options) {
  const uint64_t least = SequencesPerStep(options) / options.batch;
  return {.batch = options.batch,
          .least = least,
          .most = options.follows_noise ? options.follows_noise->most : least,
          .rule = RuleOf(options.zero.optimizer)};
}

uint64_t DivideUp(uint64_t value, uint64_t by) { return (value + by - 1) / by; }

}  // namespace

BatchCourse::BatchCourse(const TrainOptions& options, int ranks)
    : options_(options),
      sequences_per_gradient_(static_cast<double>(options.batch) / ranks),
      rules_(RulesOf(options)) {
  state_.sequences = rules_.base();
  if (follows_noise()) state_.update_cost = static_cast<float>(options.follows_noise->update_cost);
}

// A run whose batch stays the same saves its place twice, and nothing that it decided. Another may
// go on from there and follow its noise, but not the other way round: its place is no longer that
// of so many equal steps.
bool BatchCourse::GoOn(uint64_t step, const checkpoint::RunState& saved) {
  const auto& words = saved.random_state;
  const uint64_t of_equal_steps = step * rules_.base();
  const bool is_plain =
      saved == checkpoint::RunState{of_equal_steps, {options_.seed, of_equal_steps, 0, 0}};
  if (!is_plain) {
    const std::optional<FollowState> state = StateOf({words[1], words[2], words[3]});
    if (!follows_noise() || words[0] != options_.seed || !state) return false;
    state_ = *state;
    if (const double cost = options_.follows_noise->update_cost; cost > 0) {
      state_.update_cost = static_cast<float>(cost);
    }
  }
  steps_done_ = step;
  sequences_done_ = saved.data_position;
  return true;
}

checkpoint::RunState BatchCourse::saved() const {
  if (!follows_noise()) return {sequences_done_, {options_.seed, sequences_done_, 0, 0}};
  const std::array<uint64_t, 3> words = WordsOf(state_);
  return {sequences_done_, {options_.seed, words[0], words[1], words[2]}};
}

uint64_t BatchCourse::sequences_left() const {
  const uint64_t all = options_.schedule.steps * rules_.base();
  return all - std::min(all, sequences_done_);
}

uint64_t BatchCourse::steps() const {
  return steps_done_ + DivideUp(sequences_left(), rules_.batch * MicroBatchesOf(rules_, state_));
}

uint64_t BatchCourse::micro_batches() const {
  const uint64_t left = std::max(DivideUp(sequences_left(), rules_.batch), uint64_t{1});
  return std::min(MicroBatchesOf(rules_, state_), left);
}

double BatchCourse::learning_rate() const {
  const uint64_t sequences = rules_.batch * micro_batches();
  const uint64_t last = sequences_done_ + sequences - 1;
  const double rate = options_.schedule.At(last / rules_.base());
  return sequences == rules_.base() ? rate : rate * RateFactorOf(rules_, state_, sequences);
}

bool BatchCourse::NeedsUpdateCost() const {
  return follows_noise() && trainer::NeedsUpdateCost(state_, steps_done_ + 1);
}

std::optional<BatchChange> BatchCourse::EndStep(const zero::StepGradients& gradients,
                                                std::optional<double> update_cost) {
  sequences_done_ += rules_.batch * micro_batches();
  ++steps_done_;
  if (!follows_noise()) return std::nullopt;
  BatchDecision followed = Follow(rules_, state_, steps_done_,
                                  {.gradients = gradients.count,
                                   .sequences = sequences_per_gradient_,
                                   .mean_square = gradients.mean_square,
                                   .square_of_mean = gradients.square_of_mean},
                                  update_cost);
  state_ = followed.state;
  return followed.change;
}

}  // namespace geminid::trainer
