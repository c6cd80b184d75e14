#include "training/forecast/hf_config.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/models/config_keys.h"
#include "training/models/huggingface.h"

namespace geminid::forecast {
namespace {

absl::Status UnknownType(const std::string& name, const trainer::ConfigKeys& keys) {
  const char* const advice =
      keys.Has("text_config")
          ? ". The language model that it holds is 'text_config': plan a file with that object "
            "alone"
          : ". Any model can be planned from a step that was measured: run a few, then 'geminictl "
            "trace save FILE' and 'geminictl plan --trace FILE'";
  return absl::InvalidArgumentError(
      absl::StrCat("'model_type' is '", name,
                   "'; the types known are: ", trainer::NamesOfTypes(/*trained=*/false), advice));
}

}  // namespace

absl::StatusOr<Model> ModelFromHuggingFace(const std::string& json) {
  GEMINID_ASSIGN_OR_RETURN(const base::JsonValue root, trainer::ParseConfig(json));
  trainer::ConfigKeys keys(root);
  const std::string name = keys.Word("model_type");
  GEMINID_RETURN_IF_ERROR(keys.status());
  const std::optional<trainer::Family> family = trainer::FamilyOfType(name);
  if (!family) return UnknownType(name, keys);
  GEMINID_ASSIGN_OR_RETURN(const trainer::DescribedModel described,
                           trainer::Describe(*family, root));
  Model model = {described.model, name};
  GEMINID_RETURN_IF_ERROR(Validate(model));
  return model;
}

}  // namespace geminid::forecast
