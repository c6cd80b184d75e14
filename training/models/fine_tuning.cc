#include "training/models/fine_tuning.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace geminid::trainer {
namespace {

absl::Status Freeze(const std::string& pattern, std::vector<zero::Parameter>* parameters) {
  bool fits = false;
  for (zero::Parameter& parameter : *parameters) {
    if (::fnmatch(pattern.c_str(), parameter.name.c_str(), 0) != 0) continue;
    parameter.trainable = false;
    fits = true;
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--freeze ", pattern, ": it fits no parameter; they are called as '",
                   parameters->front().name, "' or '", (*parameters)[2].name, "'"));
}

}  // namespace

zero::Parameter AsParameter(const ParameterSpec& spec) {
  return {.name = spec.name,
          .shape = spec.shape,
          .data_type = spec.data_type,
          .unit = spec.unit,
          .trainable = spec.trainable,
          .decay = spec.decay(),
          .backward_uses = spec.backward_uses,
          .separate_gradient = spec.separate_gradient,
          .orthogonal = spec.is_layer_matrix()};
}

absl::StatusOr<std::vector<zero::Parameter>> TrainedParameters(
    const ModelConfig& model, const std::vector<std::string>& frozen) {
  std::vector<zero::Parameter> parameters;
  for (const ParameterSpec& spec : MakeParameters(model).specs) {
    parameters.push_back(AsParameter(spec));
  }
  for (const std::string& pattern : frozen) {
    GEMINID_RETURN_IF_ERROR(Freeze(pattern, &parameters));
  }
  const bool any = std::any_of(parameters.begin(), parameters.end(),
                               [](const zero::Parameter& p) { return p.trainable; });
  if (any) return parameters;
  return absl::InvalidArgumentError("--freeze leaves nothing to train; freeze less");
}

bool IsAdapter(const std::string& name) {
  return absl::EndsWith(name, ".lora_A.weight") || absl::EndsWith(name, ".lora_B.weight");
}

bool IsAdapter(const zero::Parameter& parameter) { return IsAdapter(parameter.name); }

absl::Status MergeAdapter(
    const ModelConfig& model, zero::ParameterId id,
    const std::function<absl::StatusOr<std::vector<float>>(zero::ParameterId)>& read,
    std::vector<float>* values) {
  const ModelParameters parameters = MakeParameters(model);
  const auto place = std::find_if(parameters.adapted.begin(), parameters.adapted.end(),
                                  [id](const LinearPlace& layer) { return layer.weight == id; });
  if (place == parameters.adapted.end()) return absl::OkStatus();
  const AdapterPlace& adapter = *place->adapter;
  GEMINID_ASSIGN_OR_RETURN(const std::vector<float> a, read(adapter.a));
  GEMINID_ASSIGN_OR_RETURN(const std::vector<float> b, read(adapter.b));
  const bool out_in = place->layout == Layout::kOutIn;
  std::vector<double> row(place->in);
  for (uint64_t out = 0; out < place->out; ++out) {
    std::fill(row.begin(), row.end(), 0.0);
    for (uint64_t r = 0; r < adapter.rank; ++r) {
      const double factor = adapter.scale * static_cast<double>(b[out * adapter.rank + r]);
      for (uint64_t in = 0; in < place->in; ++in) {
        row[in] += factor * static_cast<double>(a[r * place->in + in]);
      }
    }
    for (uint64_t in = 0; in < place->in; ++in) {
      float& value = (*values)[out_in ? out * place->in + in : in * place->out + out];
      value = static_cast<float>(static_cast<double>(value) + row[in]);
    }
  }
  return absl::OkStatus();
}

}  // namespace geminid::trainer
