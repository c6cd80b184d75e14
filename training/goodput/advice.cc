#include "training/goodput/advice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/counted.h"

namespace geminid::trainer {
namespace {

std::string WhyUnknown(const AdviceFacts& facts, const BatchAdvice& advice) {
  if (!facts.unmeasured.empty()) return facts.unmeasured;
  if (advice.samples < NoiseMeter::kLeastSamples) {
    return absl::StrCat("the gradient noise was measured in ",
                        base::Counted(advice.samples, "step"), ", and at least ",
                        NoiseMeter::kLeastSamples, " are needed");
  }
  if (!advice.noise) {
    return absl::StrCat("after ", base::Counted(advice.samples, "step"),
                        " the mean gradient does not stand out from its noise; train for "
                        "more steps, or with more sequences a step");
  }
  return advice.steps ? "" : "no step was timed after the first";
}

// "28 to 47", "at least 28".
std::string RangeWords(const NoiseScale& noise) {
  if (!noise.high) return absl::StrFormat("at least %.3g", noise.low);
  return absl::StrFormat("%.3g to %.3g", noise.low, *noise.high);
}

void WriteRow(base::JsonWriter& json, const BatchRow& row) {
  json.BeginObject();
  json.Key("sequences_per_step").Value(row.shape.total());
  json.Key("batch").Value(row.shape.sequences);
  json.Key("accumulate").Value(row.shape.micro_batches);
  json.Key("step_seconds").Value(row.step_seconds);
  json.Key("efficiency").Value(row.efficiency);
  json.Key("goodput").Value(row.goodput);
  json.EndObject();
}

void WriteNoise(base::JsonWriter& json, const BatchAdvice& advice) {
  json.Key("samples").Value(advice.samples);
  json.Key("gradient_square").Value(advice.gradient_square);
  json.Key("gradient_square_error").Value(advice.gradient_square_error);
  json.Key("gradient_variance").Value(advice.gradient_variance);
  json.Key("noise_scale");
  if (!advice.noise) {
    json.Null();
    return;
  }
  json.Value(advice.noise->sequences);
  json.Key("noise_scale_low").Value(advice.noise->low);
  json.Key("noise_scale_high");
  if (advice.noise->high) {
    json.Value(*advice.noise->high);
  } else {
    json.Null();
  }
}

void WriteSteps(base::JsonWriter& json, const BatchAdvice& advice) {
  if (!advice.steps) return;
  const auto sequences = static_cast<double>(advice.now.sequences);
  json.Key("micro_batch_seconds").Value(advice.steps->MicroBatchSeconds(sequences));
  json.Key("update_seconds").Value(advice.steps->update_seconds);
}

}  // namespace

BatchAdvice Advise(const AdviceFacts& facts, const NoiseMeter& noise,
                   std::optional<StepModel> steps) {
  BatchAdvice advice = {.unknown = "",
                        .now = facts.now,
                        .rule = facts.rule,
                        .samples = noise.samples(),
                        .gradient_square = noise.gradient_square(),
                        .gradient_square_error = noise.gradient_square_error(),
                        .gradient_variance = noise.gradient_variance(),
                        .noise = noise.Estimate(),
                        .steps = steps,
                        .rows = {},
                        .best = {}};
  advice.unknown = WhyUnknown(facts, advice);
  if (!advice.unknown.empty()) return advice;
  const BatchShape& now = facts.now;
  const BatchLimits limits = {.multiple = steps->fixed_known ? facts.ranks : now.sequences,
                              .most_sequences = now.sequences,
                              .most_total = kMostGrowth * now.total()};
  const double scale = advice.noise->sequences;
  advice.rows = BatchTable(*steps, scale, now, limits);
  advice.best = BestBatch(*steps, scale, now, limits);
  advice.gain = advice.best.goodput / RowOf(*steps, scale, now, now).goodput - 1;
  advice.rate_factor = RateFactor(facts.rule, scale, static_cast<double>(now.total()),
                                  static_cast<double>(advice.best.shape.total()));
  return advice;
}

std::string AdviceWords(const BatchAdvice& advice) {
  if (!advice.unknown.empty()) return "";
  std::string words = absl::StrFormat("gradient noise scale %.3g sequences (%s)",
                                      advice.noise->sequences, RangeWords(*advice.noise));
  if (advice.gain < kLeastGain && advice.now.micro_batches == 1) {
    return absl::StrCat(words, ": no step of more than ", advice.now.total(),
                        " sequences would learn faster");
  }
  if (advice.gain < kLeastGain) {
    return absl::StrCat(words, ": a step of ", advice.now.total(), " sequences learns fastest");
  }
  return absl::StrCat(
      words, ": a step of ", advice.best.shape.total(), " sequences instead of ",
      advice.now.total(), " would learn ",
      absl::StrFormat("%.0f%% faster (--batch %d --accumulate %d, and --lr times "
                      "%.3g by the %s rule)",
                      100 * advice.gain, advice.best.shape.sequences,
                      advice.best.shape.micro_batches, advice.rate_factor, Name(advice.rule)));
}

void WriteAdvice(base::JsonWriter& json, const BatchAdvice& advice) {
  json.BeginObject();
  json.Key("unknown").Value(advice.unknown);
  WriteNoise(json, advice);
  WriteSteps(json, advice);
  if (!advice.unknown.empty()) {
    json.EndObject();
    return;
  }
  json.Key("rows").BeginArray();
  for (const BatchRow& row : advice.rows) WriteRow(json, row);
  json.EndArray();
  json.Key("best");
  WriteRow(json, advice.best);
  json.Key("gain").Value(advice.gain);
  json.Key("learning_rate_factor").Value(advice.rate_factor);
  json.Key("learning_rate_rule").Value(Name(advice.rule));
  json.EndObject();
}

}  // namespace geminid::trainer
