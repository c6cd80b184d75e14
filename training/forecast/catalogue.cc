#include "training/forecast/catalogue.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "base/suggest.h"

namespace geminid::forecast {
namespace {

constexpr char kGpt2Source[] =
    "Radford et al. 2019, table 2; checkpoints openai-community/gpt2*, config.json";
constexpr char kOptSource[] = "arXiv:2205.01068, table 1; checkpoints facebook/opt-*, config.json";
constexpr char kLlamaSource[] = "arXiv:2302.13971, table 2; widths of the MLP from its checkpoints";
constexpr char kGpt3Source[] = "arXiv:2005.14165, table 2.1";
constexpr char kPalmSource[] = "arXiv:2204.02311, table 1 and section 2";

constexpr char kTrainerSource[] = "geminid-train --model: the vocabulary is the 256 bytes";

struct Shape {
  std::uint64_t layers, hidden, heads;
};

// 8/3 of hidden, rounded up to a multiple of 256 (LLaMA's reference code).
std::uint64_t GatedWidth(std::uint64_t hidden) {
  constexpr std::uint64_t kMultiple = 256;
  return base::RoundUp(8 * hidden / 3, kMultiple);
}

Model Dense(std::string name, trainer::Family family, Shape shape, std::uint64_t vocabulary,
            std::uint64_t context) {
  Model model;
  model.name = std::move(name);
  model.family = family;
  model.layers = shape.layers;
  model.hidden = shape.hidden;
  model.heads = model.kv_heads = shape.heads;
  model.intermediate = 4 * shape.hidden;
  model.vocabulary = vocabulary;
  model.context = context;
  return model;
}

Model Gpt2(std::string name, Shape shape) {
  return Dense(std::move(name), trainer::Family::kGpt2, shape, 50257, 1024);
}

Model Gpt3(std::string name, Shape shape) {
  return Dense(std::move(name), trainer::Family::kGpt2, shape, 50257, 2048);
}

Model Opt(std::string name, Shape shape) {
  return Dense(std::move(name), trainer::Family::kOpt, shape, 50272, 2048);
}

// OPT-350m is the one member that is post-norm and has a token table narrower than its layers.
Model Opt350m() {
  Model model = Opt("opt-350m", {24, 1024, 16});
  model.forecast_only.embedding_width = 512;
  model.forecast_only.last_norm = false;
  return model;
}

Model Llama(std::string name, Shape shape) {
  Model model = Dense(std::move(name), trainer::Family::kLlama, shape, 32000, 2048);
  model.intermediate = GatedWidth(shape.hidden);
  return model;
}

// Multi-query attention with heads of 256, SwiGLU of width 4 hidden, one norm without shift for
// both sublayers, no biases, one table.
Model Palm(std::string name, Shape shape) {
  Model model = Dense(std::move(name), trainer::Family::kPalm, shape, 256000, 2048);
  model.kv_heads = 1;
  model.head_width = 256;
  return model;
}

const std::vector<Model>& ModelsOfTrainer() {
  static const std::vector<Model>* const kModels = [] {
    auto* const models = new std::vector<Model>;
    for (const trainer::Preset& preset : trainer::Presets()) {
      models->push_back({preset.config, preset.name});
    }
    return models;
  }();
  return *kModels;
}

std::vector<CatalogueEntry> PublishedModels() {
  return {
      {Gpt2("gpt2", {12, 768, 12}), kGpt2Source},
      {Gpt2("gpt2-medium", {24, 1024, 16}), kGpt2Source},
      {Gpt2("gpt2-large", {36, 1280, 20}), kGpt2Source},
      {Gpt2("gpt2-xl", {48, 1600, 25}), kGpt2Source},
      {Opt("opt-125m", {12, 768, 12}), kOptSource},
      {Opt350m(), kOptSource},
      {Opt("opt-1.3b", {24, 2048, 32}), kOptSource},
      {Opt("opt-2.7b", {32, 2560, 32}), kOptSource},
      {Opt("opt-6.7b", {32, 4096, 32}), kOptSource},
      {Opt("opt-13b", {40, 5120, 40}), kOptSource},
      {Opt("opt-30b", {48, 7168, 56}), kOptSource},
      {Opt("opt-66b", {64, 9216, 72}), kOptSource},
      {Opt("opt-175b", {96, 12288, 96}), kOptSource},
      {Llama("llama-7b", {32, 4096, 32}), kLlamaSource},
      {Llama("llama-13b", {40, 5120, 40}), kLlamaSource},
      {Llama("llama-30b", {60, 6656, 52}), kLlamaSource},
      {Llama("llama-65b", {80, 8192, 64}), kLlamaSource},
      {Gpt3("gpt3-175b", {96, 12288, 96}), kGpt3Source},
      {Palm("palm-8b", {32, 4096, 16}), kPalmSource},
      {Palm("palm-62b", {64, 8192, 32}), kPalmSource},
      {Palm("palm-540b", {118, 18432, 48}), kPalmSource},
  };
}

std::vector<CatalogueEntry> MakeCatalogue() {
  std::vector<CatalogueEntry> entries = PublishedModels();
  const std::size_t published = entries.size();
  for (const Model& model : ModelsOfTrainer()) {
    bool known = false;
    for (std::size_t i = 0; i < published; ++i) known |= entries[i].model.name == model.name;
    if (!known) entries.push_back({model, kTrainerSource});
  }
  return entries;
}

const std::vector<Family>& AllFamilies() {
  static const std::vector<Family>* const kFamilies = new std::vector<Family>{
      {"gpt2-like", Gpt2("gpt2-like", {1, 64, 1}), "GPT-2 of any size: vocabulary 50257, tied"},
      {"opt-like", Opt("opt-like", {1, 64, 1}), "OPT of any size: vocabulary 50272, tied"},
      {"llama-like", Llama("llama-like", {1, 64, 1}),
       "LLaMA of any size: vocabulary 32000, SwiGLU"},
  };
  return *kFamilies;
}

}  // namespace

std::span<const CatalogueEntry> Catalogue() {
  static const std::vector<CatalogueEntry>* const kEntries =
      new std::vector<CatalogueEntry>(MakeCatalogue());
  return *kEntries;
}

absl::StatusOr<Model> FindModel(const std::string& name) {
  std::vector<std::string> names;
  for (const CatalogueEntry& entry : Catalogue()) {
    if (entry.model.name == name) return entry.model;
    names.push_back(entry.model.name);
  }
  for (const Family& family : Families()) names.push_back(family.name);
  return absl::NotFoundError(absl::StrCat("there is no model '", name,
                                          "'; the models are: ", absl::StrJoin(names, ", "),
                                          base::DidYouMean(name, names)));
}

const Model* FindTrainerModel(const std::string& name) {
  for (const Model& model : ModelsOfTrainer()) {
    if (model.name == name) return &model;
  }
  return nullptr;
}

std::span<const Family> Families() { return AllFamilies(); }

const Family* FindFamily(const std::string& name) {
  for (const Family& family : Families()) {
    if (family.name == name) return &family;
  }
  return nullptr;
}

absl::StatusOr<std::uint64_t> DefaultHeads(std::uint64_t hidden) {
  constexpr std::uint64_t kHeadDims[] = {128, 64};  // of most published models
  constexpr std::uint64_t kLeastHeadDim = 32;
  if (hidden < kLeastHeadDim) return 1;
  for (const std::uint64_t head_dim : kHeadDims) {
    if (hidden % head_dim == 0) return hidden / head_dim;
  }
  for (std::uint64_t head_dim = kHeadDims[0] - 1; head_dim >= kLeastHeadDim; --head_dim) {
    if (hidden % head_dim == 0) return hidden / head_dim;
  }
  return absl::InvalidArgumentError(absl::StrCat("no width of heads from ", kLeastHeadDim, " to ",
                                                 kHeadDims[0], " divides the hidden size ", hidden,
                                                 "; say how many heads there are (--heads), "
                                                 "or take a hidden size of ",
                                                 (hidden + 63) / 64 * 64));
}

absl::StatusOr<Model> MakeMember(const Family& family, std::uint64_t layers, std::uint64_t hidden,
                                 std::uint64_t heads) {
  if (heads == 0) {
    GEMINID_ASSIGN_OR_RETURN(heads, DefaultHeads(hidden));
  }
  Model model = family.base;
  model.name = absl::StrCat(family.name, "-", layers, "x", hidden);
  model.layers = layers;
  model.hidden = hidden;
  model.heads = heads;
  model.kv_heads = heads;
  model.intermediate = model.gated_mlp() ? GatedWidth(hidden) : 4 * hidden;
  GEMINID_RETURN_IF_ERROR(Validate(model));
  return model;
}

absl::StatusOr<Model> MemberOfStep(const Family& family, std::uint64_t step) {
  if (step < 1 || step > kMaxFamilyStep) {
    return absl::InvalidArgumentError(
        absl::StrCat("a member of step ", step, "; steps are 1 to ", kMaxFamilyStep));
  }
  return MakeMember(family, (step + 1) / 2, 64 * step, 0);
}

absl::StatusOr<Model> MemberOfSize(const Family& family, std::uint64_t parameters) {
  std::uint64_t low = 1;
  std::uint64_t high = kMaxFamilyStep;
  const auto count = [&](std::uint64_t step) {
    return CountParameters(*MemberOfStep(family, step));
  };
  const std::uint64_t least = count(low);
  const std::uint64_t most = count(high);
  if (parameters < least / 2 || parameters > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has members of %.3g to %.3g parameters, not %.3g", family.name,
        static_cast<double>(least), static_cast<double>(most), static_cast<double>(parameters)));
  }
  while (low < high) {  // find the least step with at least `parameters`
    const std::uint64_t middle = (low + high) / 2;
    if (count(middle) >= parameters) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const bool lesser_is_nearer =
      low > 1 && parameters - std::min(parameters, count(low - 1)) < count(low) - parameters;
  return MemberOfStep(family, lesser_is_nearer ? low - 1 : low);
}

}  // namespace geminid::forecast
