#include "training/forecast/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "training/forecast/trainer_layout.h"
#include "training/models/parameters.h"

namespace geminid::forecast {
namespace {

// Bounds that keep every product of sizes far from overflow; no published model comes near them.
constexpr std::uint64_t kLayersMax = 1 << 12;
constexpr std::uint64_t kWidthMax = 1 << 20;
constexpr std::uint64_t kExpertsMax = 1 << 12;
constexpr std::uint64_t kVocabularyMax = 1 << 24;

absl::Status CheckRange(const char* what, std::uint64_t value, std::uint64_t least,
                        std::uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is ", value, "; it must be from ", least, " to ", most));
}

absl::Status CheckRanges(const Model& model) {
  struct Range {
    const char* what;
    std::uint64_t value, least, most;
  };
  const trainer::ForecastOnlyShape& more = model.forecast_only;
  const trainer::ImageShape image = model.image.value_or(trainer::ImageShape{});
  // A family with experts has a number of them.
  const bool routed = model.experts > 0 || model.family == trainer::Family::kMixtral;
  const std::uint64_t experts = routed ? model.experts : 1;
  for (const Range& range : {
           Range{"the number of layers", model.layers, 1, kLayersMax},
           Range{"the number of the encoder's layers", model.encoder_layers(), 0, model.layers},
           Range{"the hidden size", model.hidden, 1, kWidthMax},
           Range{"the number of heads", model.heads, 1, kWidthMax},
           Range{"the number of key/value heads", model.kv_heads, 1, model.heads},
           Range{"the width of a head", model.head_dim(), 1, kWidthMax},
           Range{"the width of all heads", model.query_columns(), 1, kWidthMax},
           Range{"the width of the MLP", model.intermediate, 1, kWidthMax},
           Range{"the number of experts", experts, 1, kExpertsMax},
           Range{"the number of experts per token", routed ? model.experts_per_token : 1, 1,
                 experts},
           Range{"the vocabulary", model.vocabulary, model.image ? 0u : 1u,
                 model.image ? 0 : kVocabularyMax},
           Range{"the number of elements of a patch", image.patch_elements(), 0, kWidthMax},
           Range{"the number of positions", model.position_table_rows(), 0, kVocabularyMax},
           Range{"the number of types of token", model.token_type_rows(), 0, kVocabularyMax},
           Range{"the number of relative positions", more.relative_buckets, 0, kVocabularyMax},
           Range{"the number of classes", model.classes, model.classifies() ? 1u : 0u,
                 kVocabularyMax},
           Range{"the context", model.position_rows(), 1, kVocabularyMax},
           Range{"the number of norms per layer", model.norms_per_layer(), 1, 2},
           Range{"the width of the token table", more.embedding_width, 0, kWidthMax},
       }) {
    GEMINID_RETURN_IF_ERROR(CheckRange(range.what, range.value, range.least, range.most));
  }
  return absl::OkStatus();
}

absl::Status CheckDivides(const char* what, std::uint64_t part, const char* of,
                          std::uint64_t whole) {
  if (part != 0 && whole % part == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the number of ", what, " (", part, ") must divide ", of, " (", whole, ")"));
}

}  // namespace

absl::Status Validate(const Model& model) {
  // Without a head_width, the width of a head is hidden / heads.
  if (!model.head_width) {
    GEMINID_RETURN_IF_ERROR(CheckDivides("heads", model.heads, "the hidden size", model.hidden));
  }
  GEMINID_RETURN_IF_ERROR(CheckRanges(model));
  GEMINID_RETURN_IF_ERROR(
      CheckDivides("key/value heads", model.kv_heads, "that of heads", model.heads));
  if (model.image && !model.classifies()) {
    return absl::InvalidArgumentError("patches have no vocabulary; the model must classify");
  }
  return absl::OkStatus();
}

std::vector<Tensor> Tensors(const Model& model) {
  const trainer::ModelParameters parameters = trainer::MakeParameters(model);
  const bool in_out = model.traits().layout == trainer::Layout::kInOut;
  std::vector<Tensor> tensors;
  tensors.reserve(parameters.specs.size());
  for (const trainer::ParameterSpec& spec : parameters.specs) {
    Tensor& tensor = tensors.emplace_back(
        Tensor{.columns = spec.elements(), .used_by = spec.used_by, .layer = spec.layer});
    if (spec.shape.size() > 1) {
      tensor.rows = static_cast<std::uint64_t>(spec.shape.front());
      tensor.columns /= tensor.rows;
    }
    if (in_out && spec.is_layer_matrix()) std::swap(tensor.rows, tensor.columns);
  }
  const bool has_table = model.vocabulary > 0;
  tensors.front().also_output = has_table && model.tied_output() && !model.classifies();
  return tensors;
}

std::vector<bool> NormsAmongTensors(const Model& model) {
  trainer::ModelConfig marked = model;  // its norms have their own type
  marked.fp32_norms = true;
  std::vector<bool> norms;
  for (const trainer::ParameterSpec& spec : trainer::MakeParameters(marked).specs) {
    norms.push_back(spec.data_type == zero::DataType::kFloat32);
  }
  return norms;
}

}  // namespace geminid::forecast
