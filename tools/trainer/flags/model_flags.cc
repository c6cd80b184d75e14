#include "tools/trainer/flags/model_flags.h"

#include <array>
#include <limits>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "training/models/huggingface.h"
#include "training/settings/flag_words.h"

namespace geminid::trainer {
namespace {

constexpr FlagSpec kModelFlags[] = {
    {"--model", &Flags::model, "NAME", "A shape by name, see below; other flags change it"},
    {"--family", &Flags::family, "NAME",
     "bert, gpt2, gpt_neox, llama, mistral, mixtral, opt, qwen2, qwen3 or vit, for a shape of your "
     "own"},
    {"--layers", &Flags::layers, "N", "Layers"},
    {"--hidden", &Flags::hidden, "N", "Hidden size"},
    {"--heads", &Flags::heads, "N", "Attention heads"},
    {"--context", &Flags::context, "N", "Tokens per sequence"},
    {"--vocabulary", &Flags::vocabulary, "N", "Kinds of tokens [256, as text is bytes]"},
    {"--mask-token", &Flags::mask_token, "N",
     "Of bert: the token that hides others [as --load's config.json or tokenizer says]"},
    {"--image-size", &Flags::image_size, "N", "Of vit: pixels of an image's side"},
    {"--patch-size", &Flags::patch_size, "N", "Of vit: pixels of a patch's side [16]"},
    {"--channels", &Flags::channels, "N", "Of vit: numbers of a pixel [3]"},
    {"--classes", &Flags::classes, "N",
     "Of vit: labels; with --load another number than the folder has begins a new classifier"},
    {"--experts", &Flags::experts, "N", "MLPs of each layer, of which a router chooses (mixtral)"},
    {"--experts-per-token", &Flags::experts_per_token, "N",
     "Experts that the router chooses for each token"},
    {"--balance-loss", &Flags::balance_loss, "X",
     "Weight of the loss that evens out the experts' tokens; 0: none"},
    {"--expert-capacity", &Flags::expert_capacity, "X",
     "In training an expert takes X times its even share of a sequence's tokens at most [0: all]"},
    {"--lora-rank", &Flags::lora_rank, "N",
     "Train adapters of this rank beside each matrix of a layer, and nothing else"},
    {"--lora-alpha", &Flags::lora_alpha, "X", "Weight of the adapters times their rank [the rank]"},
    {"--freeze", &Flags::freeze, "PATTERN,...",
     "Do not train parameters whose names fit one of these, such as '*.wte.*'"},
};

constexpr FlagSpec kTypeFlags[] = {
    {"--dtype", &Flags::dtype, "TYPE", "Type of weights and activations: bf16 or fp32"},
    {"--norm-precision", &Flags::norm_precision, "TYPE",
     "Type of the norms' gains and shifts: fp32, or as-weights for the type of --dtype"},
};

// For a family that the user asked for by name.
void TakeUsualExperts(ModelConfig* model) {
  const bool has = model->experts > 0;
  if (model->routed() == has) return;
  model->experts = has ? 0 : kUsualExperts;
  model->experts_per_token = has ? 0 : kUsualExpertsPerToken;
  model->balance_loss = has ? 0 : kUsualBalanceLoss;
}

absl::Status Take(const char* flag, const std::string& text, uint64_t* value) {
  constexpr uint64_t kAny = std::numeric_limits<uint32_t>::max();  // Validate checks the bounds
  if (text.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(*value, base::ParseCount(flag, text, 1, kAny));
  return absl::OkStatus();
}

// Images have a context of their own, and no vocabulary; models of tokens have no images.
absl::Status OverrideImage(const Flags& flags, ModelConfig* model) {
  const bool reads = model->traits().head == Head::kClassifier;
  for (const auto& [flag, text, of_images] : {std::tuple{"--image-size", &flags.image_size, true},
                                              {"--patch-size", &flags.patch_size, true},
                                              {"--channels", &flags.channels, true},
                                              {"--classes", &flags.classes, true},
                                              {"--context", &flags.context, false},
                                              {"--vocabulary", &flags.vocabulary, false}}) {
    if (text->empty() || of_images == reads) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        flag, " is for models of ", of_images ? "images" : "tokens", ", and the ",
        Name(model->family), " family reads ", of_images ? "tokens" : "images", "; leave it out"));
  }
  if (!reads) {
    model->image.reset();  // from a preset of another family
    return absl::OkStatus();
  }
  ImageShape image = model->image.value_or(ImageShape{});
  GEMINID_RETURN_IF_ERROR(Take("--image-size", flags.image_size, &image.side));
  GEMINID_RETURN_IF_ERROR(Take("--patch-size", flags.patch_size, &image.patch));
  GEMINID_RETURN_IF_ERROR(Take("--channels", flags.channels, &image.channels));
  GEMINID_RETURN_IF_ERROR(Take("--classes", flags.classes, &model->classes));
  if (image.side == 0) return absl::OkStatus();  // Validate says so
  if (flags.model.empty() && flags.family.empty() && image != model->image) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--image-size, --patch-size and --channels are for a model of your own (--model, "
        "--family); the model that is loaded reads images of ",
        model->image->side, " x ", model->image->side, " pixels in patches of ",
        model->image->patch, ", with ", model->image->channels, " channels, as it has learned"));
  }
  model->image = image;
  model->context = image.tokens();
  model->positions.reset();
  model->vocabulary = 0;
  return absl::OkStatus();
}

absl::Status OverrideModel(const Flags& flags, ModelConfig* model) {
  GEMINID_RETURN_IF_ERROR(Take("--layers", flags.layers, &model->layers));
  GEMINID_RETURN_IF_ERROR(Take("--hidden", flags.hidden, &model->hidden));
  GEMINID_RETURN_IF_ERROR(Take("--heads", flags.heads, &model->heads));
  GEMINID_RETURN_IF_ERROR(Take("--context", flags.context, &model->context));
  GEMINID_RETURN_IF_ERROR(Take("--vocabulary", flags.vocabulary, &model->vocabulary));
  GEMINID_RETURN_IF_ERROR(OverrideImage(flags, model));
  if (!flags.family.empty()) TakeUsualExperts(model);
  GEMINID_RETURN_IF_ERROR(Take("--experts", flags.experts, &model->experts));
  GEMINID_RETURN_IF_ERROR(
      Take("--experts-per-token", flags.experts_per_token, &model->experts_per_token));
  if (!flags.balance_loss.empty()) {
    constexpr double kBalanceLossMax = 1e6;
    GEMINID_ASSIGN_OR_RETURN(
        model->balance_loss,
        base::ParseReal("--balance-loss", flags.balance_loss, 0, kBalanceLossMax));
  }
  if (!flags.expert_capacity.empty()) {
    constexpr double kCapacityMax = 1e6;
    GEMINID_ASSIGN_OR_RETURN(
        model->expert_capacity,
        base::ParseReal("--expert-capacity", flags.expert_capacity, 0, kCapacityMax));
  }
  if (!flags.hidden.empty() || !flags.family.empty()) {
    model->intermediate = DefaultIntermediate(model->family, model->hidden);
  }
  if (!flags.heads.empty() || !flags.family.empty()) model->kv_heads = model->heads;
  return Validate(*model);
}

absl::Status ParseMaskToken(const Flags& flags, ModelConfig* model) {
  if (!model->masks()) model->masking.reset();  // from a preset of another family
  if (flags.mask_token.empty()) return absl::OkStatus();
  if (!model->masks()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--mask-token is for masked language models, and the ", Name(model->family),
                     " family predicts the next token; leave it out, or take the bert family"));
  }
  constexpr uint64_t kAny = std::numeric_limits<int32_t>::max();  // Validate checks the bound
  GEMINID_ASSIGN_OR_RETURN(const uint64_t token,
                           base::ParseCount("--mask-token", flags.mask_token, 0, kAny));
  if (!model->masking) model->masking.emplace();
  model->masking->mask_token = token;
  return absl::OkStatus();
}

absl::Status ParseLora(const Flags& flags, ModelConfig* model) {
  constexpr uint64_t kRankMax = 1 << 16;
  constexpr double kAlphaMax = 1e6;
  if (!flags.lora_rank.empty()) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t rank,
                             base::ParseCount("--lora-rank", flags.lora_rank, 1, kRankMax));
    // Loaded adapters of the same rank have their own alpha.
    if (rank != model->lora_rank) model->lora_alpha = static_cast<double>(rank);
    model->lora_rank = rank;
  }
  if (flags.lora_alpha.empty()) return absl::OkStatus();
  if (model->lora_rank == 0) {
    return absl::InvalidArgumentError("--lora-alpha needs --lora-rank, the rank of the adapters");
  }
  GEMINID_ASSIGN_OR_RETURN(model->lora_alpha,
                           base::ParseReal("--lora-alpha", flags.lora_alpha, 0, kAlphaMax));
  return absl::OkStatus();
}

}  // namespace

std::span<const FlagSpec> ModelFlags() { return kModelFlags; }
std::span<const FlagSpec> TypeFlags() { return kTypeFlags; }

absl::StatusOr<ModelConfig> ParseModel(const Flags& flags, const std::string& folder) {
  ModelConfig model;
  if (!flags.model.empty()) {
    const absl::StatusOr<ModelConfig> preset = FindPreset(flags.model);
    if (!preset.ok()) return WithPath("--model", flags.model, preset.status());
    model = *preset;
  } else if (flags.family.empty() && !folder.empty()) {
    const bool is_loaded = folder == flags.load;
    const absl::StatusOr<ModelConfig> config = ReadHuggingFaceConfig(folder);
    if (!config.ok()) {
      return WithPath(is_loaded ? "--load" : "--save", is_loaded ? flags.load : flags.save,
                      config.status());
    }
    model = *config;
  } else if (flags.family.empty()) {
    const std::string cause =
        flags.resume && !flags.save.empty()
            ? absl::StrCat("--save ", flags.save,
                           " has no checkpoint to take it from. To go on with "
                           "a run, give its folder; to begin one, ")
            : "";
    return absl::InvalidArgumentError(absl::StrCat(
        "no model: ", cause,
        "give --model a name, or --family with --layers, --hidden, --heads and "
        "--context, or --load a folder that has a config.json; --help lists the names"));
  }
  if (!flags.family.empty()) {
    const auto family = ParseFamily(flags.family);
    if (!family.ok()) return WithPath("--family", flags.family, family.status());
    model.family = *family;
  }
  GEMINID_RETURN_IF_ERROR(ParseLora(flags, &model));
  GEMINID_RETURN_IF_ERROR(ParseMaskToken(flags, &model));
  if (absl::Status status = OverrideModel(flags, &model); !status.ok()) {
    return WithFlag("the model cannot be built", status);
  }
  return model;
}

absl::Status CheckMaskToken(const ModelConfig& model) {
  if (!model.masks() || model.masking) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "no mask token: the ", Name(model.family),
      " family learns to predict masked tokens, and no config.json ('mask_token_id'), "
      "tokenizer.json or vocab.txt in the folder of --load names it; give --mask-token its number",
      model.vocabulary == kByteVocabulary
          ? ", such as 256 with --vocabulary 257, where tokens are bytes"
          : ""));
}

void NoteClassifier(const std::string& folder, const ModelConfig& model,
                    std::vector<std::string>* notes) {
  if (!model.classifies()) return;
  const absl::StatusOr<ModelConfig> there = ReadHuggingFaceConfig(folder);
  if (!there.ok() || there->classes == model.classes) return;
  notes->push_back(absl::StrCat("--classes ", model.classes, ": the classifier begins at random, ",
                                "as ", folder, " has one of ", there->classes));
}

absl::Status ParseTypes(const Flags& flags, TrainOptions* options) {
  using zero::DataType;
  GEMINID_ASSIGN_OR_RETURN(
      options->zero.data_type,
      base::ParseWord("--dtype", flags.dtype,
                      std::array{std::pair{Name(DataType::kBFloat16), DataType::kBFloat16},
                                 std::pair{Name(DataType::kFloat32), DataType::kFloat32}}));
  GEMINID_ASSIGN_OR_RETURN(
      const bool fp32,
      base::ParseWord("--norm-precision", flags.norm_precision,
                      std::array{std::pair{"fp32", true}, std::pair{"as-weights", false}}));
  options->model.fp32_norms = fp32 && options->zero.data_type != DataType::kFloat32;
  return absl::OkStatus();
}

}  // namespace geminid::trainer
