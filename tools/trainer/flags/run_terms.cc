#include "tools/trainer/flags/run_terms.h"

#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/trainer/flags/optimizer_flags.h"
#include "tools/trainer/flags/schedule_flags.h"

namespace geminid::trainer {
namespace {

// The meaning of a difference between the checkpoint's run and this one.
enum class Change {
  kRefused,
  // A change between zero and another number changes the state; other changes only the course.
  kRefusedFromZero,
  kTaken,    // the run takes another course, which is reported
  kIsUsual,  // not reported
};

// When a flag that is not given takes the checkpoint's value.
enum class Fill {
  kNever,
  kAlways,
  kUnlessShape,       // --model and --family name a shape of their own
  kWithTheOptimizer,  // unless another optimizer is chosen
  kWithTheSchedule,
  kWithTheRank,     // of the adapters
  kUnlessBackward,  // --update auto chooses `backward` wherever the other flags allow it
};

std::string Text(uint64_t number) { return absl::StrCat(number); }
std::string Text(const char* word) { return word; }
// Few digits if they give the same double, else as many digits as needed.
std::string Text(double number) {
  std::string few = absl::StrCat(number);
  double read = 0;
  if (absl::SimpleAtod(few, &read) && read == number) return few;
  char all[32];
  const auto [end, error] = std::to_chars(std::begin(all), std::end(all), number);
  return error == std::errc() ? std::string(all, end) : few;
}

std::string IfAny(double number) { return number == 0 ? "" : Text(number); }
std::string IfAny(uint64_t number) { return number == 0 ? "" : Text(number); }

// Only the values that the kind of scaling uses.
std::string Text(const RotaryScaling& scaling) {
  if (scaling.kind == RotaryScaling::Kind::kNone) return "";
  std::string text = absl::StrCat(Name(scaling.kind), " ", Text(scaling.factor));
  if (scaling.kind == RotaryScaling::Kind::kLinear) return text;
  absl::StrAppend(&text, " of ", scaling.original_positions);
  const bool yarn = scaling.kind == RotaryScaling::Kind::kYarn;
  absl::StrAppend(&text, ", ", Text(yarn ? scaling.beta_slow : scaling.slow_turns), " to ",
                  Text(yarn ? scaling.beta_fast : scaling.fast_turns));
  if (!yarn) return text;
  return absl::StrCat(text, scaling.rounds_ramp ? ", times " : " not rounded, times ",
                      Text(scaling.attention_factor));
}

std::string LossScaleOf(const TrainOptions& options) {
  const std::optional<LossScalerOptions>& scale = options.zero.loss_scale;
  if (!scale.has_value()) return "none";
  return scale->growth_factor == 1 ? Text(scale->initial_scale) : "dynamic";
}

bool Falls(const Schedule& schedule) {
  return schedule.shape != ScheduleShape::kConstant && schedule.shape != ScheduleShape::kMultiStep;
}

std::string AccumulateOf(const TrainOptions& options) {
  const std::optional<AccumulateRange>& range = options.follows_noise;
  if (!range.has_value()) return Text(static_cast<uint64_t>(options.zero.accumulate));
  return absl::StrCat("auto:", range->least, ":", range->most);
}

using O = const TrainOptions&;

struct Term {
  const char* name;  // of its flag, if it has one, without the dashes
  std::string Flags::*flag;
  Change change;
  Fill fill;
  bool is_shape;
  std::string (*value)(O);

  constexpr Term Filled(Fill when) const { return {name, flag, change, when, is_shape, value}; }
};

constexpr std::string Flags::*kNoFlag = nullptr;

// A term of the model, which a folder of values has too.
constexpr Term Shape(const char* name, std::string Flags::*flag, std::string (*value)(O)) {
  return {name, flag, Change::kRefused, Fill::kNever, true, value};
}
constexpr Term Refused(const char* name, std::string Flags::*flag, std::string (*value)(O)) {
  return {name,  flag, Change::kRefused, flag == kNoFlag ? Fill::kNever : Fill::kAlways,
          false, value};
}
constexpr Term Taken(const char* name, std::string Flags::*flag, std::string (*value)(O)) {
  return {name, flag, Change::kTaken, flag == kNoFlag ? Fill::kNever : Fill::kAlways, false, value};
}
constexpr Term Usual(const char* name, std::string Flags::*flag, std::string (*value)(O)) {
  return {name, flag, Change::kIsUsual, Fill::kAlways, false, value};
}

constexpr Term kTerms[] = {
    Shape("family", &Flags::family, [](O o) { return Text(Name(o.model.family)); }),
    Shape("layers", &Flags::layers, [](O o) { return Text(o.model.layers); }),
    Shape("hidden", &Flags::hidden, [](O o) { return Text(o.model.hidden); }),
    Shape("heads", &Flags::heads, [](O o) { return Text(o.model.heads); }),
    Shape("kv_heads", kNoFlag, [](O o) { return Text(o.model.kv_heads); }),
    Shape("head_dim", kNoFlag, [](O o) { return IfAny(o.model.head_width.value_or(0)); }),
    Shape("attention_bias", kNoFlag,
          [](O o) {
            const bool usual = o.model.layer_norms();
            return Text(o.model.output_bias() == usual ? "" : usual ? "off" : "on");
          }),
    Shape("parallel_block", kNoFlag,
          [](O o) { return Text(o.model.parallel() == o.model.like_gpt_neox() ? "" : "off"); }),
    Shape("activation", kNoFlag,
          [](O o) {
            const bool usual = o.model.activation() == o.model.usual_activation();
            return Text(usual ? "" : Name(o.model.activation()));
          }),
    Shape("rotary_pct", kNoFlag,
          [](O o) { return o.model.like_gpt_neox() ? Text(o.model.turned_share()) : ""; }),
    Shape("sliding_window", kNoFlag, [](O o) { return IfAny(o.model.window); }),
    Shape("intermediate", kNoFlag, [](O o) { return Text(o.model.intermediate); }),
    Shape("vocabulary", &Flags::vocabulary, [](O o) { return Text(o.model.vocabulary); }),
    Shape("image-size", &Flags::image_size,
          [](O o) { return o.model.image ? Text(o.model.image->side) : ""; }),
    Shape("patch-size", &Flags::patch_size,
          [](O o) { return o.model.image ? Text(o.model.image->patch) : ""; }),
    Shape("channels", &Flags::channels,
          [](O o) { return o.model.image ? Text(o.model.image->channels) : ""; }),
    Refused("classes", &Flags::classes, [](O o) { return IfAny(o.model.classes); })
        .Filled(Fill::kUnlessShape),
    Refused("mask-token", &Flags::mask_token,
            [](O o) { return o.model.masking ? Text(o.model.masking->mask_token) : ""; })
        .Filled(Fill::kUnlessShape),
    Shape("tied_output", kNoFlag, [](O o) { return Text(o.model.tied_output() ? "on" : "off"); }),
    Shape("norm_epsilon", kNoFlag, [](O o) { return Text(o.model.norm_epsilon); }),
    Shape("rotary_theta", kNoFlag,
          [](O o) { return o.model.rotary() ? Text(o.model.rotary_theta) : ""; }),
    Shape("rope_scaling", kNoFlag, [](O o) { return Text(o.model.rotary_scaling); }),
    Shape("positions", kNoFlag,
          [](O o) { return o.model.rotary() ? "" : Text(o.model.position_rows()); }),
    Shape("experts", &Flags::experts, [](O o) { return IfAny(o.model.experts); }),
    Shape("experts-per-token", &Flags::experts_per_token,
          [](O o) { return IfAny(o.model.experts_per_token); }),
    Shape("lora-rank", &Flags::lora_rank, [](O o) { return IfAny(o.model.lora_rank); })
        .Filled(Fill::kAlways),
    Shape("lora-alpha", &Flags::lora_alpha,
          [](O o) { return o.model.lora_rank == 0 ? "" : Text(o.model.lora_alpha); })
        .Filled(Fill::kWithTheRank),
    Refused("context", &Flags::context,
            [](O o) { return o.model.image ? "" : Text(o.model.context); })
        .Filled(Fill::kUnlessShape),
    Taken("balance-loss", &Flags::balance_loss,
          [](O o) { return o.model.routed() ? Text(o.model.balance_loss) : ""; })
        .Filled(Fill::kUnlessShape),
    Taken("expert-capacity", &Flags::expert_capacity,
          [](O o) { return IfAny(o.model.expert_capacity); })
        .Filled(Fill::kUnlessShape),
    Refused("freeze", &Flags::freeze, [](O o) { return absl::StrJoin(o.frozen, ","); }),
    Refused("dtype", &Flags::dtype, [](O o) { return Text(Name(o.zero.data_type)); }),
    Refused(
        "norm-precision", &Flags::norm_precision,
        [](O o) { return Text(NormType(o) == zero::DataType::kFloat32 ? "fp32" : "as-weights"); }),
    Taken("dropout", &Flags::dropout, [](O o) { return Text(o.dropout); }),
    Refused("optimizer", &Flags::optimizer, [](O o) { return Text(Name(o.zero.optimizer)); }),
    Refused("state-dtype", &Flags::state_dtype, [](O o) { return Text(Name(o.zero.state_type)); }),
    Taken("clip-norm", &Flags::clip_norm, [](O o) { return Text(o.zero.clip_norm); }),
    Taken("loss-scale", &Flags::loss_scale, LossScaleOf),
    Taken("update", &Flags::update, [](O o) { return Text(Name(o.zero.update)); })
        .Filled(Fill::kUnlessBackward),
    Usual("steps", &Flags::steps, [](O o) { return Text(o.schedule.steps); }),
    Usual("epochs", &Flags::epochs, [](O o) { return IfAny(o.epochs); }),
    Taken("schedule", &Flags::schedule, [](O o) { return Text(Name(o.schedule.shape)); }),
    Taken("steps of the schedule", kNoFlag,
          [](O o) { return Falls(o.schedule) ? Text(o.schedule.steps) : ""; }),
    Taken("lr", &Flags::lr, [](O o) { return Text(o.schedule.peak); }),
    Taken("warmup-steps", &Flags::warmup_steps, [](O o) { return Text(o.schedule.warmup_steps); })
        .Filled(Fill::kWithTheSchedule),
    // Fewer sequences in more micro-batches give the same samples.
    Usual("batch", &Flags::batch, [](O o) { return Text(o.batch); }),
    Taken("accumulate", &Flags::accumulate, AccumulateOf),
    Taken("update-cost", &Flags::update_cost,
          [](O o) { return o.follows_noise ? IfAny(o.follows_noise->update_cost) : ""; }),
    Refused("sequences per step (--batch times --accumulate)", kNoFlag,
            [](O o) { return Text(SequencesPerStep(o)); }),
    Refused("seed", &Flags::seed, [](O o) { return Text(o.seed); }),
    Refused("validation", &Flags::validation, [](O o) { return IfAny(o.validation_share); }),
    Refused("sampling", &Flags::sampling, [](O o) { return Text(Name(o.sampling)); }),
    Refused(kDataTerm, kNoFlag, nullptr),
    Taken(kMeshTerm, kNoFlag, nullptr),
};

// The learning rate's shapes and the optimizers have their own tables.
std::vector<Term> AllTerms() {
  std::vector<Term> terms(std::begin(kTerms), std::end(kTerms));
  for (const OwnedFlag& flag : ShapeFlags()) {
    terms.push_back(
        Taken(flag.spec.name + 2, flag.spec.value, nullptr).Filled(Fill::kWithTheSchedule));
  }
  for (const FlagSpec& flag : OptimizerFlags()) {
    if (!IsHyperparameter(flag)) continue;
    Term term = Taken(flag.name + 2, flag.value, nullptr).Filled(Fill::kWithTheOptimizer);
    const bool has_state = flag.value == &Flags::momentum || flag.value == &Flags::beta1;
    if (has_state) term.change = Change::kRefusedFromZero;
    terms.push_back(term);
  }
  return terms;
}

const std::string* Find(const RunTerms& terms, const char* name) {
  const auto found = terms.find(name);
  return found == terms.end() ? nullptr : &found->second;
}

std::string Words(const std::string& value) { return value.empty() ? "none" : value; }

bool IsRefused(Change change, const std::string& was, const std::string& is) {
  if (change == Change::kRefusedFromZero) return was == "0" || is == "0";
  return change == Change::kRefused;
}

void AddShapeValues(const Schedule& schedule, RunTerms* terms) {
  const auto add = [&](std::string Flags::*flag, const std::string& value) {
    for (const OwnedFlag& owned : ShapeFlags()) {
      const bool has = (owned.kinds >> static_cast<uint32_t>(schedule.shape) & 1) != 0;
      if (owned.spec.value == flag && has) (*terms)[owned.spec.name + 2] = value;
    }
  };
  add(&Flags::lr_floor, Text(schedule.final_share));
  add(&Flags::lr_first, Text(schedule.first_share));
  add(&Flags::lr_power, Text(schedule.power));
  add(&Flags::lr_milestones, absl::StrJoin(schedule.milestones, ","));
  add(&Flags::lr_decay, Text(schedule.decay));
}

}  // namespace

RunTerms TermsOf(const TrainOptions& options) {
  RunTerms terms;
  for (const Term& term : kTerms) {
    if (term.value != nullptr) terms[term.name] = term.value(options);
  }
  AddShapeValues(options.schedule, &terms);
  for (const OptimizerValue& value : OptimizerValues(options.zero.optimizer)) {
    terms[value.flag + 2] =
        value.is_switch ? (value.number != 0 ? "on" : "off") : Text(value.number);
  }
  return terms;
}

RunTerms ShapeTermsOf(const ModelConfig& model) {
  TrainOptions options;
  options.model = model;
  RunTerms terms;
  for (const Term& term : kTerms) {
    if (term.is_shape) terms[term.name] = term.value(options);
  }
  return terms;
}

TermChanges CompareTerms(const RunTerms& was, const RunTerms& is) {
  TermChanges changes;
  for (const Term& term : AllTerms()) {
    const std::string* const before = Find(was, term.name);
    const std::string* const now = Find(is, term.name);
    if (before == nullptr || now == nullptr || *before == *now) continue;
    std::string words = absl::StrCat(term.flag == kNoFlag ? "" : "--", term.name, " was ",
                                     Words(*before), " and is ", Words(*now));
    if (IsRefused(term.change, *before, *now)) {
      changes.refused.push_back(std::move(words));
    } else if (term.change != Change::kIsUsual) {
      changes.taken.push_back(std::move(words));
    }
  }
  return changes;
}

void FillFlags(const RunTerms& was, const std::function<bool(const std::string& flag)>& given,
               Flags* flags) {
  const auto is_same = [&](const char* name, const std::string& now) {
    const std::string* const before = Find(was, name);
    return !given(absl::StrCat("--", name)) || (before != nullptr && *before == now);
  };
  const auto suits = [&](Fill fill, const std::string& before) {
    switch (fill) {
      case Fill::kNever:
        return false;
      case Fill::kAlways:
        return true;
      case Fill::kUnlessShape:
        return !given("--model") && !given("--family");
      case Fill::kWithTheOptimizer:
        return is_same("optimizer", flags->optimizer);
      case Fill::kWithTheSchedule:
        return is_same("schedule", flags->schedule);
      case Fill::kWithTheRank:
        return is_same("lora-rank", flags->lora_rank);
      case Fill::kUnlessBackward:
        return before != Name(zero::UpdateTime::kInBackward);
    }
    return false;
  };
  for (const Term& term : AllTerms()) {
    const std::string* const before = Find(was, term.name);
    if (before == nullptr || before->empty() || !suits(term.fill, *before)) continue;
    if (!given(absl::StrCat("--", term.name))) flags->*term.flag = *before;
  }
}

}  // namespace geminid::trainer
