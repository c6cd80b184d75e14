#include "tools/trainer/flags/optimizer_flags.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "client/zero/options/hyperparameters.h"
#include "training/settings/flag_words.h"

namespace geminid::trainer {
namespace {

constexpr double kHyperparameterMax = 1e9;

constexpr FlagSpec kOptimizerFlags[] = {
    {"--optimizer", &Flags::optimizer, "NAME",
     "adamw, adam, lamb, lars, sgd, adagrad, lion, adafactor, came or muon"},
    {"--state-dtype", &Flags::state_dtype, "TYPE",
     "Type of the optimizer's state: fp32, or bf16 with random rounding in half the bytes"},
    {"--weight-decay", &Flags::weight_decay, "X",
     "Weight decay of matrices [0.1 with adamw, 0.01 with lamb]"},
    {"--beta1", &Flags::beta1, "X", "Decay of the first moment"},
    {"--beta2", &Flags::beta2, "X", "Decay of the second moment"},
    {"--beta3", &Flags::beta3, "X", "came: decay of the confidence"},
    {"--epsilon", &Flags::epsilon, "X", "Added to the divisor of an update"},
    {"--epsilon1", &Flags::epsilon1, "X", "adafactor, came: added to squares of gradients"},
    {"--epsilon2", &Flags::epsilon2, "X",
     "adafactor: least RMS of weights; came: added to squares of residuals"},
    {"--momentum", &Flags::momentum, "X", "lars, sgd, muon: momentum"},
    {"--dampening", &Flags::dampening, "X", "sgd: dampening of the gradient in the momentum"},
    {"--nesterov", &Flags::nesterov, "on|off", "sgd, muon: look ahead"},
    {"--decay-after-momentum", &Flags::decay_after_momentum, "on|off",
     "sgd: weight decay does not enter the momentum"},
    {"--trust-coefficient", &Flags::trust_coefficient, "X", "lars: scale of its rate per tensor"},
    {"--trust-limit", &Flags::trust_limit, "X", "lars: most of its rate per tensor"},
    {"--decoupled", &Flags::decoupled, "on|off", "lamb: weight decay outside of the moments"},
    {"--bias-correction", &Flags::bias_correction, "on|off",
     "lamb: bias correction of the moments"},
    {"--grad-averaging", &Flags::grad_averaging, "on|off",
     "lamb: the gradient enters the first moment with 1 - beta1"},
    {"--always-adapt", &Flags::always_adapt, "on|off", "lamb: adapt tensors without decay, too"},
    {"--max-grad-norm", &Flags::max_grad_norm, "X",
     "lamb: its own limit of the gradients' norm, after --clip-norm"},
    {"--rate-decay", &Flags::rate_decay, "X", "adagrad: decay of the learning rate per step"},
    {"--clip-threshold", &Flags::clip_threshold, "X", "adafactor, came: limit of an update's RMS"},
    {"--decay-exponent", &Flags::decay_exponent, "X",
     "adafactor: exponent of the second moment's decay"},
    {"--relative-step", &Flags::relative_step, "on|off",
     "adafactor: multiply the rate by its own schedule"},
    {"--warmup-init", &Flags::warmup_init, "on|off", "adafactor: start that schedule from 1e-6"},
    {"--scale-parameter", &Flags::scale_parameter, "on|off",
     "adafactor: multiply the rate by the weights' RMS"},
};

// An optimizer's flags, each with the place of its value.
using Target = std::variant<double*, bool*>;
using Fields = std::vector<std::pair<std::string Flags::*, Target>>;

template <typename Options>
Fields FieldsOf(Options& o) {
  Fields fields;
#define GEMINID_ADD(name) \
  if constexpr (requires { o.name; }) fields.emplace_back(&Flags::name, &o.name);
  GEMINID_HYPERPARAMETERS(GEMINID_ADD)
#undef GEMINID_ADD
  return fields;
}

Fields FieldsOf(zero::Optimizer& optimizer) {
  return std::visit([](auto& options) { return FieldsOf(options); }, optimizer);
}

// Every optimizer with its defaults.
template <size_t... kIndex>
std::vector<zero::Optimizer> AllOptimizers(std::index_sequence<kIndex...>) {
  return {zero::Optimizer(std::in_place_index<kIndex>)...};
}
std::vector<zero::Optimizer> AllOptimizers() {
  return AllOptimizers(std::make_index_sequence<std::variant_size_v<zero::Optimizer>>());
}

bool Has(zero::Optimizer& optimizer, std::string Flags::*value) {
  for (const auto& [field, target] : FieldsOf(optimizer)) {
    if (field == value) return true;
  }
  return false;
}

absl::StatusOr<zero::Optimizer> FindOptimizer(const std::string& name) {
  std::string names;
  for (const zero::Optimizer& optimizer : AllOptimizers()) {
    if (name == zero::Name(optimizer)) return optimizer;
    absl::StrAppend(&names, names.empty() ? "" : ", ", zero::Name(optimizer));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(base::WithValue("--optimizer", name), "it must be one of: ", names));
}

absl::Status RefuseForeignFlag(const Flags& flags, const FlagSpec& spec,
                               zero::Optimizer& optimizer) {
  const bool is_of_all = !IsHyperparameter(spec);
  if (is_of_all || (flags.*spec.value).empty()) return absl::OkStatus();
  if (Has(optimizer, spec.value)) return absl::OkStatus();
  std::string owners;
  for (zero::Optimizer& other : AllOptimizers()) {
    if (!Has(other, spec.value)) continue;
    absl::StrAppend(&owners, owners.empty() ? "" : ", ", zero::Name(other));
  }
  return absl::InvalidArgumentError(absl::StrCat(spec.name, " is for --optimizer ", owners,
                                                 ", but that is ", zero::Name(optimizer),
                                                 "; leave it out"));
}

absl::Status Take(const FlagSpec& spec, const std::string& text, const Target& target) {
  if (double* const* number = std::get_if<double*>(&target)) {
    GEMINID_ASSIGN_OR_RETURN(**number, base::ParseReal(spec.name, text, 0, kHyperparameterMax));
    return absl::OkStatus();
  }
  GEMINID_ASSIGN_OR_RETURN(*std::get<bool*>(target), base::ParseSwitch(spec.name, text));
  return absl::OkStatus();
}

// Names the flag without whose value the others are in their ranges. `usual`: the defaults.
absl::Status CheckRanges(const Flags& flags, zero::Optimizer optimizer, zero::Optimizer usual) {
  const absl::Status all = zero::CheckOptimizer(optimizer);
  const Fields fields = FieldsOf(optimizer), defaults = FieldsOf(usual);
  for (size_t i = 0; !all.ok() && i < fields.size(); ++i) {
    double* const* const value = std::get_if<double*>(&fields[i].second);
    if (value == nullptr) continue;
    const double given = std::exchange(**value, *std::get<double*>(defaults[i].second));
    const bool is_it = zero::CheckOptimizer(optimizer).ok();
    const double without = std::exchange(**value, given);
    const auto spec = std::ranges::find(kOptimizerFlags, fields[i].first, &FlagSpec::value);
    if (!is_it || spec == std::end(kOptimizerFlags)) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        base::WithValue(spec->name, flags.*spec->value),
        "it is out of its range: ", std::string(all.message()), ". The usual value is ", without));
  }
  return all;
}

}  // namespace

std::span<const FlagSpec> OptimizerFlags() { return kOptimizerFlags; }

bool IsHyperparameter(const FlagSpec& flag) {
  return flag.value != &Flags::optimizer && flag.value != &Flags::state_dtype;
}

absl::StatusOr<zero::DataType> ParseStateType(const Flags& flags,
                                              const zero::Optimizer& optimizer) {
  using zero::DataType;
  GEMINID_ASSIGN_OR_RETURN(const DataType type,
                           base::ParseWord("--state-dtype", flags.state_dtype,
                                           std::array{std::pair{"fp32", DataType::kFloat32},
                                                      std::pair{"bf16", DataType::kBFloat16}}));
  const absl::Status status = zero::CheckStateType(optimizer, type);
  if (!status.ok()) return WithFlag("--state-dtype bf16", status);
  return type;
}

std::vector<OptimizerValue> OptimizerValues(zero::Optimizer optimizer) {
  std::vector<OptimizerValue> values;
  for (const auto& [field, target] : FieldsOf(optimizer)) {
    const auto spec = std::find_if(std::begin(kOptimizerFlags), std::end(kOptimizerFlags),
                                   [&](const FlagSpec& flag) { return flag.value == field; });
    bool* const* const on = std::get_if<bool*>(&target);
    values.push_back(
        {.flag = spec->name,
         .number = on != nullptr ? static_cast<double>(**on) : *std::get<double*>(target),
         .is_switch = on != nullptr});
  }
  return values;
}

absl::StatusOr<zero::Optimizer> ParseOptimizer(const Flags& flags) {
  GEMINID_ASSIGN_OR_RETURN(zero::Optimizer optimizer, FindOptimizer(flags.optimizer));
  const zero::Optimizer usual = optimizer;
  for (const FlagSpec& spec : kOptimizerFlags) {
    GEMINID_RETURN_IF_ERROR(RefuseForeignFlag(flags, spec, optimizer));
    for (const auto& [field, target] : FieldsOf(optimizer)) {
      const std::string& text = flags.*field;
      if (field != spec.value || text.empty()) continue;
      GEMINID_RETURN_IF_ERROR(Take(spec, text, target));
    }
  }
  GEMINID_RETURN_IF_ERROR(CheckRanges(flags, optimizer, usual));
  return optimizer;
}

// The rates of each optimizer's authors; for AdamW, of arXiv 2005.14165 for its smallest model.
double UsualLearningRate(const zero::Optimizer& optimizer) {
  struct Rate {
    double operator()(const zero::AdamWOptions&) const { return 6e-4; }
    double operator()(const zero::AdamOptions&) const { return 6e-4; }
    double operator()(const zero::LambOptions&) const { return 1e-3; }
    double operator()(const zero::LarsOptions&) const { return 1.0; }
    double operator()(const zero::SgdOptions&) const { return 0.1; }
    double operator()(const zero::AdagradOptions&) const { return 0.01; }
    double operator()(const zero::LionOptions&) const { return 1e-4; }
    double operator()(const zero::AdafactorOptions& o) const { return o.relative_step ? 1 : 1e-3; }
    double operator()(const zero::CameOptions&) const { return 2e-4; }
    double operator()(const zero::MuonOptions&) const { return 6e-4; }  // as AdamW
  };
  return std::visit(Rate(), optimizer);
}

}  // namespace geminid::trainer
