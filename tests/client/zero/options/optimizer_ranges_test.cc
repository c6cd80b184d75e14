#include "client/zero/options/optimizer_ranges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/zero/options/optimizer_options.h"

namespace geminid::zero {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Field {
  const char* name;
  std::function<Optimizer(double value)> with;  // the optimizer's defaults but for this field
};

template <typename Options>
Field Of(const char* name, double Options::*member) {
  return {name, [member](double value) {
            Options options;
            options.*member = value;
            return Optimizer(options);
          }};
}

// Every number of every optimizer.
std::vector<Field> AllFields() {
  std::vector<Field> fields;
  const auto add_moments = [&]<typename Options>(Options) {
    fields.push_back(Of("beta1", &Options::beta1));
    fields.push_back(Of("beta2", &Options::beta2));
    fields.push_back(Of("epsilon", &Options::epsilon));
    fields.push_back(Of("weight_decay", &Options::weight_decay));
  };
  add_moments(AdamWOptions());
  add_moments(AdamOptions());
  add_moments(LambOptions());
  add_moments(MuonOptions());
  const std::vector<Field> others = {Of("max_grad_norm", &LambOptions::max_grad_norm),
                                     Of("momentum", &MuonOptions::momentum),
                                     Of("momentum", &LarsOptions::momentum),
                                     Of("weight_decay", &LarsOptions::weight_decay),
                                     Of("trust_coefficient", &LarsOptions::trust_coefficient),
                                     Of("trust_limit", &LarsOptions::trust_limit),
                                     Of("epsilon", &LarsOptions::epsilon),
                                     Of("momentum", &SgdOptions::momentum),
                                     Of("dampening", &SgdOptions::dampening),
                                     Of("weight_decay", &SgdOptions::weight_decay),
                                     Of("rate_decay", &AdagradOptions::rate_decay),
                                     Of("epsilon", &AdagradOptions::epsilon),
                                     Of("weight_decay", &AdagradOptions::weight_decay),
                                     Of("beta1", &LionOptions::beta1),
                                     Of("beta2", &LionOptions::beta2),
                                     Of("weight_decay", &LionOptions::weight_decay),
                                     Of("epsilon1", &AdafactorOptions::epsilon1),
                                     Of("epsilon2", &AdafactorOptions::epsilon2),
                                     Of("clip_threshold", &AdafactorOptions::clip_threshold),
                                     Of("decay_exponent", &AdafactorOptions::decay_exponent),
                                     Of("beta1", &AdafactorOptions::beta1),
                                     Of("weight_decay", &AdafactorOptions::weight_decay),
                                     Of("beta1", &CameOptions::beta1),
                                     Of("beta2", &CameOptions::beta2),
                                     Of("beta3", &CameOptions::beta3),
                                     Of("epsilon1", &CameOptions::epsilon1),
                                     Of("epsilon2", &CameOptions::epsilon2),
                                     Of("clip_threshold", &CameOptions::clip_threshold),
                                     Of("weight_decay", &CameOptions::weight_decay)};
  fields.insert(fields.end(), others.begin(), others.end());
  return fields;
}

// The numbers at the ends of the ranges, beside them, and those that are no numbers.
constexpr double kProbes[] = {std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity(),
                              -std::numeric_limits<double>::infinity(),
                              -1,
                              -1e-9,
                              0,
                              1e-60,
                              1e-9,
                              0.5,
                              1 - 1e-9,
                              1,
                              1 + 1e-9,
                              2};

TEST(CheckRanges, OfAnyNumber_RefusesWhatTheKernelsRefuse) {
  for (const Field& field : AllFields()) {
    for (const double value : kProbes) {
      const Optimizer optimizer = field.with(value);
      const bool taken =
          kernels::CheckOptimizerOptions(ToKernel(optimizer)) == kernels::Status::kOk;
      EXPECT_EQ(CheckRanges(optimizer).ok(), taken)
          << Name(optimizer) << ": " << field.name << " = " << value;
    }
  }
}

TEST(CheckRanges, OfANumberOutOfItsRange_NamesItItsValueAndTheOptimizer) {
  for (const Field& field : AllFields()) {
    for (const double value : {std::numeric_limits<double>::quiet_NaN(), -1.5}) {
      const Optimizer optimizer = field.with(value);
      EXPECT_THAT(std::string(CheckOptimizer(optimizer).message()),
                  StartsWith(absl::StrCat(field.name, " is ", value, "; with ", Name(optimizer),
                                          " it must be ")));
    }
  }
}

TEST(CheckRanges, OfANumberOutOfItsRange_SaysTheRange) {
  EXPECT_EQ(CheckRanges(LionOptions{.beta1 = 1}),
            absl::InvalidArgumentError("beta1 is 1; with lion it must be from 0 to below 1"));
  EXPECT_EQ(CheckRanges(SgdOptions{.momentum = 0.9, .dampening = 1.5}),
            absl::InvalidArgumentError("dampening is 1.5; with sgd it must be from 0 to 1"));
  EXPECT_EQ(
      CheckRanges(LarsOptions{.epsilon = -1}),
      absl::InvalidArgumentError("epsilon is -1; with lars it must be 0 or more, and finite"));
  EXPECT_EQ(
      CheckRanges(AdamWOptions{.epsilon = 1e-60}),
      absl::InvalidArgumentError("epsilon is 1e-60; with adamw it must be above 0 and finite, in "
                                 "fp32 too"));
}

TEST(CheckRanges, OfOptionsThatContradictEachOther_SaysBoth) {
  EXPECT_THAT(std::string(CheckOptimizer(SgdOptions{.nesterov = true}).message()),
              HasSubstr("momentum is 0, and dampening is 0"));
  EXPECT_THAT(
      std::string(
          CheckOptimizer(AdafactorOptions{.relative_step = false, .warmup_init = true}).message()),
      HasSubstr("warmup_init needs relative_step"));
  EXPECT_THAT(std::string(CheckOptimizer(MuonOptions{.rate = static_cast<MuonRate>(7)}).message()),
              HasSubstr("muon's rate is 7"));
}

// Ranges allow each of the numbers, and fp32 does not have their product.
TEST(CheckOptimizer, OfNumbersWhoseProductIsInfinite_IsRefusedWithTheOptimizersName) {
  EXPECT_THAT(std::string(CheckOptimizer(AdamOptions{.weight_decay = 1e300}).message()),
              HasSubstr("the hyperparameters of adam"));
}

}  // namespace
}  // namespace geminid::zero
