#include "client/zero/options/agreed_fields.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "client/zero/basics/data_types.h"
#include "client/zero/options/hyperparameters.h"

namespace geminid::zero {
namespace {

constexpr int kDigestBits = 20;

const char* NameOf(NotFinite what) {
  switch (what) {
    case NotFinite::kSkip:
      return "skip";
    case NotFinite::kWrite:
      return "write";
    case NotFinite::kFail:
      return "fail";
  }
  return "unknown";
}

// Collects the fields of one object; `of` is appended to each name.
class Collector {
 public:
  explicit Collector(std::string of = "") : of_(std::move(of)) {}

  void Add(const char* name, const std::string& value) {
    fields_.push_back({absl::StrCat(name, of_), value});
  }
  void Add(const char* name, double value) { Add(name, absl::StrFormat("%.17g", value)); }
  void AddAll(const AgreedFields& fields) {
    fields_.insert(fields_.end(), fields.begin(), fields.end());
  }
  AgreedFields Take() { return std::move(fields_); }

 private:
  const std::string of_;  // appended to each name
  AgreedFields fields_;
};

template <typename Options>
void AddOptions(const Options& o, Collector* to) {
#define GEMINID_ADD(name) \
  if constexpr (requires { o.name; }) to->Add(#name, o.name);
  GEMINID_HYPERPARAMETERS(GEMINID_ADD)
#undef GEMINID_ADD
  if constexpr (requires { o.rate; }) {
    to->Add("rate", o.rate == MuonRate::kOriginal ? "original" : "as adamw");
  }
}

AgreedFields FieldsOf(const Optimizer& optimizer) {
  Collector fields(absl::StrCat(" of ", Name(optimizer)));
  std::visit([&](const auto& options) { AddOptions(options, &fields); }, optimizer);
  return fields.Take();
}

AgreedFields FieldsOf(const LossScalerOptions& options) {
  Collector fields(" of the loss scale");
  fields.Add("initial_scale", options.initial_scale);
  fields.Add("growth_factor", options.growth_factor);
  fields.Add("backoff_factor", options.backoff_factor);
  fields.Add("growth_interval", options.growth_interval);
  fields.Add("hysteresis", options.hysteresis);
  fields.Add("min_scale", options.min_scale);
  fields.Add("max_scale", options.max_scale);
  return fields.Take();
}

AgreedFields FieldsOf(const Parameter& parameter, const Options& options) {
  Collector fields(absl::StrCat(" of parameter '", parameter.name, "'"));
  fields.Add("shape", absl::StrJoin(parameter.shape, " x "));
  fields.Add("data_type", Name(TypeOf(parameter, options)));
  fields.Add("unit", parameter.unit.has_value() ? absl::StrCat(*parameter.unit) : "none");
  fields.Add("trainable", parameter.trainable);
  fields.Add("decay", parameter.decay);
  if (parameter.weight_decay) fields.Add("weight_decay", *parameter.weight_decay);
  fields.Add("learning_rate_scale", parameter.learning_rate_scale);
  fields.Add("backward_uses", parameter.backward_uses);
  fields.Add("separate_gradient", parameter.separate_gradient);
  fields.Add("update_without_gradient", parameter.update_without_gradient);
  fields.Add("orthogonal", parameter.orthogonal);
  fields.Add("group", static_cast<double>(parameter.group));
  return fields.Take();
}

}  // namespace

uint64_t AgreedField::Hash() const {
  base::Fnv1a hash;
  hash.AddText(name);
  hash.AddText(value);
  return hash.value();
}

AgreedFields FieldsOf(const std::vector<Parameter>& parameters, const Options& options) {
  Collector fields;
  fields.Add("the number of parameters", static_cast<double>(parameters.size()));
  fields.Add("data_type", Name(options.data_type));
  fields.Add("state_type", Name(options.state_type));
  const bool all_on_disk = options.state_placement == StatePlacement::kDisk;
  fields.Add("state_disk", options.state_disk.folders.empty() ? "none"
                           : all_on_disk                      ? "for all state"
                                         : "for what host memory does not hold");
  fields.Add("stage", static_cast<int>(options.stage));
  fields.Add("clip_norm", options.clip_norm);
  fields.Add("accumulate", options.accumulate);
  fields.Add("micro_batch_parts", options.micro_batch_parts);
  fields.Add("gradient_scale", options.gradient_scale == GradientScale::kMean ? "mean" : "sum");
  fields.Add("update", options.update == UpdateTime::kAfterStep ? "after the step" : "in backward");
  fields.Add("chunk_elements", static_cast<double>(options.chunk_elements));
  fields.Add("optimizer", Name(options.optimizer));
  fields.AddAll(FieldsOf(options.optimizer));
  fields.Add("not_finite", NameOf(options.not_finite));
  fields.Add("loss_scale", options.loss_scale.has_value());
  if (options.loss_scale.has_value()) fields.AddAll(FieldsOf(*options.loss_scale));
  for (const Parameter& parameter : parameters) fields.AddAll(FieldsOf(parameter, options));
  return fields.Take();
}

AgreedFields FieldsOf(const Engine::StepInput& input, double clip_norm) {
  Collector fields;
  fields.Add("the number of groups", static_cast<double>(input.groups.size()));
  fields.Add("learning_rate", input.learning_rate);
  fields.Add("clip_norm", clip_norm);
  if (input.gradient_norm) fields.Add("gradient_norm", *input.gradient_norm);
  fields.Add("gradient_scale", input.gradient_scale);
  for (size_t g = 0; g < input.groups.size(); ++g) {
    Collector group(absl::StrCat(" of group ", g));
    const Engine::GroupInput& input_group = input.groups[g];
    group.Add("learning_rate", input_group.learning_rate);
    const auto add = [&](const char* name, const std::optional<double>& value) {
      if (value.has_value()) group.Add(name, *value);
    };
    add("weight_decay", input_group.weight_decay);
    add("beta1", input_group.beta1);
    add("beta2", input_group.beta2);
    add("epsilon", input_group.epsilon);
    fields.AddAll(group.Take());
  }
  return fields.Take();
}

FieldsDigest DigestOf(const AgreedFields& fields) {
  base::Fnv1a hash;
  for (const AgreedField& field : fields) hash.Add(field.Hash());
  const auto part = [&](int index) {
    constexpr uint64_t kMask = (uint64_t{1} << kDigestBits) - 1;
    return static_cast<double>(hash.value() >> (kDigestBits * index) & kMask);
  };
  return {part(0), part(1), part(0) * part(0), part(1) * part(1)};
}

bool SameOnAll(std::span<const double> sums, int ranks) {
  return sums[2] * ranks == sums[0] * sums[0] && sums[3] * ranks == sums[1] * sums[1];
}

}  // namespace geminid::zero
