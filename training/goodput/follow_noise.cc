#include "training/goodput/follow_noise.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_format.h"

namespace geminid::trainer {
namespace {

constexpr int kHalf = 32;
constexpr int kSampleBits = 16;
constexpr uint64_t kLowHalf = 0xffffffff;
// An update is never free: 0 says that its cost is not known.
constexpr double kLeastUpdateCost = 1e-3;

uint64_t Pair(float low, float high) {
  return std::bit_cast<uint32_t>(low) | uint64_t{std::bit_cast<uint32_t>(high)} << kHalf;
}
float Low(uint64_t pair) { return std::bit_cast<float>(static_cast<uint32_t>(pair & kLowHalf)); }
float High(uint64_t pair) { return std::bit_cast<float>(static_cast<uint32_t>(pair >> kHalf)); }

// Of goodput, with `to` micro-batches in place of `from`.
double Gain(const FollowRules& rules, double update_cost, double noise_scale, uint64_t from,
            uint64_t to) {
  const StepModel in_sequences = {.seconds_per_sequence = 1, .update_seconds = update_cost};
  const BatchShape now = {rules.batch, from};
  return RowOf(in_sequences, noise_scale, now, {rules.batch, to}).goodput /
             RowOf(in_sequences, noise_scale, now, now).goodput -
         1;
}

// The gain grows with the noise scale where `to` is larger, and falls where it is smaller: so it is
// least at one of the ends.
double SureGain(const FollowRules& rules, double update_cost, const NoiseScale& noise,
                uint64_t from, uint64_t to) {
  return std::min(Gain(rules, update_cost, noise.low, from, to),
                  Gain(rules, update_cost, *noise.high, from, to));
}

std::optional<BatchChange> Review(const FollowRules& rules, const FollowState& state,
                                  uint64_t step) {
  const std::optional<NoiseScale> noise = NoiseMeter(state.noise).Estimate();
  if (!noise || !noise->high || state.update_cost == 0) return std::nullopt;
  const uint64_t from = MicroBatchesOf(rules, state);
  BatchChange best = {.step = step,
                      .from = from,
                      .to = from,
                      .batch = rules.batch,
                      .noise = *noise,
                      .rule = rules.rule};
  const uint64_t first = std::max(rules.least, (from + 1) / 2);
  const uint64_t last = std::min(rules.most, 2 * from);
  for (uint64_t to = first; to <= last; ++to) {
    const double gain = SureGain(rules, state.update_cost, *noise, from, to);
    if (to == from || gain < kLeastFollowedGain || gain <= best.gain) continue;
    best.to = to;
    best.gain = gain;
  }
  if (best.to == from) return std::nullopt;
  best.rate_factor = RateFactorOf(rules, state, rules.batch * best.to);
  return best;
}

void WriteChange(base::JsonWriter& json, const BatchChange& change) {
  json.BeginObject();
  json.Key("step").Value(change.step);
  json.Key("from").Value(change.from).Key("to").Value(change.to);
  json.Key("sequences_per_step").Value(change.batch * change.to);
  json.Key("noise_scale").Value(change.noise.sequences);
  json.Key("noise_scale_low").Value(change.noise.low);
  json.Key("noise_scale_high").Value(*change.noise.high);
  json.Key("gain").Value(change.gain);
  json.Key("learning_rate_factor").Value(change.rate_factor);
  json.EndObject();
}

}  // namespace

std::array<uint64_t, 3> WordsOf(const FollowState& state) {
  return {Pair(state.noise.gradient_square, state.noise.spread),
          Pair(state.noise.gradient_variance, state.update_cost),
          state.noise.samples | state.sequences << kSampleBits};
}

std::optional<FollowState> StateOf(const std::array<uint64_t, 3>& words) {
  const FollowState state = {.sequences = words[2] >> kSampleBits,
                             .update_cost = High(words[1]),
                             .noise = {.samples = words[2] & NoiseMeter::kMostSamples,
                                       .gradient_square = Low(words[0]),
                                       .spread = High(words[0]),
                                       .gradient_variance = Low(words[1])}};
  if (state.sequences == 0 || !(state.update_cost >= 0)) return std::nullopt;
  return state;
}

uint64_t MicroBatchesOf(const FollowRules& rules, const FollowState& state) {
  return std::clamp((state.sequences + rules.batch / 2) / rules.batch, rules.least, rules.most);
}

double RateFactorOf(const FollowRules& rules, const FollowState& state, uint64_t sequences) {
  const auto base = static_cast<double>(rules.base());
  const auto batch = static_cast<double>(sequences);
  if (rules.rule == RateRule::kSquareRoot) return RateFactor(rules.rule, 0, base, batch);
  // Of a gradient that is all noise, AdaScale's gain is the batch's growth.
  if (!(state.noise.gradient_square > 0)) return batch / base;
  const double variance = std::max(state.noise.gradient_variance, 0.0f);
  return RateFactor(rules.rule, variance / state.noise.gradient_square, base, batch);
}

bool NeedsUpdateCost(const FollowState& state, uint64_t step) {
  return step % kReviewEvery == 0 && state.update_cost == 0;
}

BatchDecision Follow(const FollowRules& rules, FollowState state, uint64_t step,
                     const NoiseSample& sample, std::optional<double> update_cost) {
  NoiseMeter meter(state.noise);
  meter.Add(sample);
  state.noise = meter.memory();
  if (NeedsUpdateCost(state, step) && update_cost) {
    state.update_cost = static_cast<float>(std::max(*update_cost, kLeastUpdateCost));
  }
  BatchDecision followed = {.state = state, .change = std::nullopt};
  if (step % kReviewEvery != 0) return followed;
  followed.change = Review(rules, state, step);
  if (followed.change) followed.state.sequences = rules.batch * followed.change->to;
  return followed;
}

std::string ChangeWords(const BatchChange& change) {
  return absl::StrFormat(
      "after step %d: steps of %d x %d sequences instead of %d x %d, which learn %.0f%% faster or "
      "more: the gradient noise scale is %.3g sequences (%.3g to %.3g); --lr times %.3g by the %s "
      "rule",
      change.step, change.to, change.batch, change.from, change.batch, 100 * change.gain,
      change.noise.sequences, change.noise.low, *change.noise.high, change.rate_factor,
      Name(change.rule));
}

void WriteAutoBatchReport(base::JsonWriter& json, const AutoBatchReport& following) {
  const FollowRules& rules = following.rules;
  const uint64_t micro_batches = MicroBatchesOf(rules, following.state);
  json.BeginObject();
  json.Key("least").Value(rules.least).Key("most").Value(rules.most);
  json.Key("micro_batches").Value(micro_batches);
  json.Key("update_cost").Value(double{following.state.update_cost});
  json.Key("learning_rate_factor")
      .Value(RateFactorOf(rules, following.state, rules.batch * micro_batches));
  json.Key("learning_rate_rule").Value(Name(rules.rule));
  json.Key("sequences_done").Value(following.sequences_done);
  json.Key("step_micro_batches").BeginArray();
  for (const uint64_t count : following.step_micro_batches) json.Value(count);
  json.EndArray();
  json.Key("changes").BeginArray();
  for (const BatchChange& change : following.changes) WriteChange(json, change);
  json.EndArray();
  json.EndObject();
}

}  // namespace geminid::trainer
