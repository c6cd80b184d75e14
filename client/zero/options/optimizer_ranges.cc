#include "client/zero/options/optimizer_ranges.h"

#include <cmath>
#include <concepts>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"

namespace geminid::zero {
namespace {

struct Range {
  bool (*contains)(double value);  // false for NaN
  const char* words;
};

// Also as a float: an epsilon that is rounded to 0 does not prevent 0 / 0.
bool IsPositiveFloat(double value) {
  const auto rounded = static_cast<float>(value);
  return rounded > 0 && std::isfinite(rounded);
}

constexpr Range kFraction = {[](double x) { return x >= 0 && x < 1; }, "from 0 to below 1"};
constexpr Range kUpToOne = {[](double x) { return x >= 0 && x <= 1; }, "from 0 to 1"};
constexpr Range kPositive = {[](double x) { return x > 0 && std::isfinite(x); },
                             "above 0 and finite"};
constexpr Range kPositiveFloat = {IsPositiveFloat, "above 0 and finite, in fp32 too"};
constexpr Range kNotNegative = {[](double x) { return x >= 0 && std::isfinite(x); },
                                "0 or more, and finite"};

// Returns the error of the first value that is out of its range.
class Checker {
 public:
  explicit Checker(const char* optimizer) : optimizer_(optimizer) {}

  void Check(const char* name, double value, const Range& range) {
    if (!status_.ok() || range.contains(value)) return;
    status_ = absl::InvalidArgumentError(
        absl::StrCat(name, " is ", value, "; with ", optimizer_, " it must be ", range.words));
  }
  const absl::Status& status() const { return status_; }

 private:
  const char* const optimizer_;
  absl::Status status_;
};

template <typename Options>
void CheckEpsilons(const Options& o, Checker* checker) {
  const Range& second = std::same_as<Options, AdafactorOptions> ? kNotNegative : kPositiveFloat;
  const Range& only = std::same_as<Options, LarsOptions> ? kNotNegative : kPositiveFloat;
  if constexpr (requires { o.epsilon; }) checker->Check("epsilon", o.epsilon, only);
  if constexpr (requires { o.epsilon1; }) checker->Check("epsilon1", o.epsilon1, kPositiveFloat);
  if constexpr (requires { o.epsilon2; }) checker->Check("epsilon2", o.epsilon2, second);
}

template <typename Options>
void CheckEach(const Options& o, Checker* checker) {
  const auto check = [&](const char* name, double value, const Range& range) {
    checker->Check(name, value, range);
  };
  if constexpr (requires { o.momentum; }) check("momentum", o.momentum, kFraction);
  if constexpr (requires { o.dampening; }) check("dampening", o.dampening, kUpToOne);
  if constexpr (requires { o.beta1; }) check("beta1", o.beta1, kFraction);
  if constexpr (requires { o.beta2; }) check("beta2", o.beta2, kFraction);
  if constexpr (requires { o.beta3; }) check("beta3", o.beta3, kFraction);
  CheckEpsilons(o, checker);
  if constexpr (requires { o.weight_decay; }) check("weight_decay", o.weight_decay, kNotNegative);
  if constexpr (requires { o.rate_decay; }) check("rate_decay", o.rate_decay, kNotNegative);
  if constexpr (requires { o.max_grad_norm; }) {
    check("max_grad_norm", o.max_grad_norm, kNotNegative);
  }
  if constexpr (requires { o.trust_coefficient; }) {
    check("trust_coefficient", o.trust_coefficient, kPositive);
    check("trust_limit", o.trust_limit, kPositive);
  }
  if constexpr (requires { o.clip_threshold; }) {
    check("clip_threshold", o.clip_threshold, kPositiveFloat);
  }
  if constexpr (requires { o.decay_exponent; }) {
    check("decay_exponent", o.decay_exponent, kPositive);
  }
}

std::string Contradiction(const Optimizer& optimizer) {
  if (const auto* const sgd = std::get_if<SgdOptions>(&optimizer); sgd != nullptr) {
    if (!sgd->nesterov || (sgd->momentum > 0 && sgd->dampening == 0)) return "";
    return absl::StrCat("sgd with nesterov needs a momentum above 0 and no dampening; momentum is ",
                        sgd->momentum, ", and dampening is ", sgd->dampening);
  }
  if (const auto* const of = std::get_if<AdafactorOptions>(&optimizer); of != nullptr) {
    if (of->relative_step || !of->warmup_init) return "";
    return "adafactor with warmup_init needs relative_step, which is off";
  }
  if (const auto* const muon = std::get_if<MuonOptions>(&optimizer); muon != nullptr) {
    if (muon->rate >= MuonRate::kAsAdamW && muon->rate <= MuonRate::kOriginal) return "";
    return absl::StrCat("muon's rate is ", static_cast<int>(muon->rate),
                        "; it must be kAsAdamW or kOriginal");
  }
  return "";
}

}  // namespace

absl::Status CheckRanges(const Optimizer& optimizer) {
  Checker checker(Name(optimizer));
  std::visit([&](const auto& options) { CheckEach(options, &checker); }, optimizer);
  if (!checker.status().ok()) return checker.status();
  const std::string contradiction = Contradiction(optimizer);
  if (contradiction.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(contradiction);
}

}  // namespace geminid::zero
