#include "tools/trainer/flags/data_flags.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "training/data/images.h"
#include "training/data/text.h"
#include "training/data/token_shards.h"
#include "training/settings/accumulate_range.h"
#include "training/settings/flag_words.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kLeastSum = 2;  // the fewest micro-batches that an engine sums
constexpr double kUpdateCostMin = 1e-3;
constexpr double kUpdateCostMax = 1e9;
constexpr uint64_t kEpochsMax = 1'000'000;
constexpr double kDropoutMax = 0.99;
constexpr uint64_t kValidationEveryMax = 1'000'000'000;
constexpr uint64_t kValidationBatchesMax = 1 << 20;

// Each of these flags may be given several times.
constexpr FlagSpec kPathFlags[] = {
    {"--text", &Flags::text, "PATH",
     "Text file, or directory of text files, to learn; several may be given"},
    {"--shards", &Flags::shards, "PATH",
     "In place of --text: .bin file of tokens as llm.c or nanoGPT write it, or a directory of "
     "them; several may be given"},
    {"--images", &Flags::images, "PATH",
     "In place of --text, for vit: .safetensors file with 'images' and 'labels', or a directory of "
     "them; several may be given"},
};
constexpr FlagSpec kDataFlags[] = {
    {"--batch", &Flags::batch, "N",
     "Sequences per micro-batch, over all ranks; auto:MIN:MAX for a step of as many sequences as "
     "suit the gradient noise, in micro-batches of MIN / --accumulate. --lr is for MIN: larger "
     "steps take it times the square root of their growth, with sgd times AdaScale's gain"},
    {"--accumulate", &Flags::accumulate, "N",
     "Micro-batches per step; auto:MIN:MAX for the number that suits the gradient noise. A step of "
     "--steps and of the schedule then has MIN, and a larger one counts for several"},
    {"--update-cost", &Flags::update_cost, "N",
     "With --accumulate auto: the cost of an update, in the time of N sequences [measured in the "
     "first 16 steps]"},
    {"--seed", &Flags::seed, "N", "Seed of the first weights and of the order of the data"},
    {"--sampling", &Flags::sampling, "HOW",
     "How sequences are taken from the data: replacement, from anywhere at random; shuffle, each "
     "once an epoch in a random order; sequential, each once an epoch in the order of the data "
     "[replacement; shuffle with --epochs]"},
    {"--dropout", &Flags::dropout, "SHARE",
     "In training, set this share of the embedding and of each sublayer's output to zero [0]"},
    {"--validation", &Flags::validation, "SHARE",
     "Hold out this share of the data, from its end, and measure the loss on it"},
    {"--validation-every", &Flags::validation_every, "N",
     "Measure the validation loss every N steps, and after the last [100]"},
    {"--validation-batches", &Flags::validation_batches, "N",
     "Micro-batches of a measurement, spread over the held-out data [8]"},
};

absl::Status ParseBatch(const Flags& flags, TrainOptions* options) {
  if (!flags.batch.starts_with("auto")) {
    GEMINID_ASSIGN_OR_RETURN(options->batch,
                             base::ParseCount("--batch", flags.batch, 1, kBatchMax));
  } else if (std::ranges::count(options->given, "--accumulate") > 0 &&
             flags.accumulate.starts_with("auto")) {
    return absl::InvalidArgumentError(
        "--batch auto and --accumulate auto both bound a step; give one of them");
  } else {
    GEMINID_ASSIGN_OR_RETURN(const BatchRange range,
                             ParseBatchRange(flags.batch, flags.accumulate));
    options->batch = range.micro_batch;
    options->follows_noise = range.micro_batches;
  }
  if (!options->follows_noise && flags.accumulate.starts_with("auto")) {
    GEMINID_ASSIGN_OR_RETURN(options->follows_noise, ParseAccumulateRange(flags.accumulate));
  }
  if (!options->follows_noise) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t accumulate,
                             base::ParseCount("--accumulate", flags.accumulate, 1, kAccumulateMax));
    options->zero.accumulate = static_cast<int>(accumulate);
    return absl::OkStatus();
  }
  options->zero.accumulate = static_cast<int>(std::max(options->follows_noise->least, kLeastSum));
  if (flags.update_cost.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(
      options->follows_noise->update_cost,
      base::ParseReal("--update-cost", flags.update_cost, kUpdateCostMin, kUpdateCostMax));
  return absl::OkStatus();
}

absl::Status ParseSampling(const Flags& flags, TrainOptions* options) {
  if (!flags.epochs.empty()) {
    GEMINID_ASSIGN_OR_RETURN(options->epochs,
                             base::ParseCount("--epochs", flags.epochs, 1, kEpochsMax));
    options->sampling = Sampling::kShuffle;
  }
  if (flags.sampling.empty()) return absl::OkStatus();
  GEMINID_ASSIGN_OR_RETURN(
      options->sampling,
      base::ParseWord("--sampling", flags.sampling,
                      std::array{std::pair{Name(Sampling::kReplacement), Sampling::kReplacement},
                                 std::pair{Name(Sampling::kShuffle), Sampling::kShuffle},
                                 std::pair{Name(Sampling::kSequential), Sampling::kSequential}}));
  if (options->epochs == 0 || options->sampling != Sampling::kReplacement) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--sampling replacement has no epochs: a sequence may come twice before another comes once; "
      "leave --epochs out and give --steps, or take --sampling shuffle");
}

absl::Status ParseValidation(const Flags& flags, TrainOptions* options) {
  if (!flags.validation.empty()) {
    GEMINID_ASSIGN_OR_RETURN(options->validation_share,
                             base::ParseReal("--validation", flags.validation, 0, 1));
  }
  const auto take = [](const char* flag, const std::string& text, uint64_t max, uint64_t* value) {
    if (text.empty()) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(*value, base::ParseCount(flag, text, 1, max));
    return absl::OkStatus();
  };
  GEMINID_RETURN_IF_ERROR(take("--validation-every", flags.validation_every, kValidationEveryMax,
                               &options->validation_every));
  return take("--validation-batches", flags.validation_batches, kValidationBatchesMax,
              &options->validation_batches);
}

}  // namespace

void AddDataFlags(CLI::App* app, Flags* flags) {
  for (const FlagSpec& flag : kPathFlags) {
    AddFlag(app, flags, "Data", flag, RepeatRule::kAllCount);
  }
  AddFlags(app, flags, "Data", kDataFlags);
}

absl::Status CheckDataPath(const Flags& flags) {
  const std::array kinds = {std::pair{"--text", &flags.text}, std::pair{"--shards", &flags.shards},
                            std::pair{"--images", &flags.images}};
  const char* first = nullptr;
  for (const auto& [flag, value] : kinds) {
    if (value->empty()) continue;
    if (first != nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(first, " and ", flag, " are both given; leave one out"));
    }
    first = flag;
  }
  if (first != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "no text: give --text a file or a directory to learn, or --shards files of tokens, or "
      "--images files of images with labels");
}

absl::Status ParseData(const Flags& flags, TrainOptions* options) {
  options->text = absl::StrSplit(flags.text, kBetweenValues, absl::SkipEmpty());
  options->shards = absl::StrSplit(flags.shards, kBetweenValues, absl::SkipEmpty());
  options->images = absl::StrSplit(flags.images, kBetweenValues, absl::SkipEmpty());
  if (options->images.empty() == options->model.image.has_value()) {
    const bool of_images = options->model.image.has_value();
    return absl::InvalidArgumentError(absl::StrCat(
        DataFlagOf(*options), " is for models of ", of_images ? "tokens" : "images", ", and the ",
        Name(options->model.family), " family reads ",
        of_images ? "images; give --images files of them with their labels"
                  : "tokens; give --text or --shards, or take a model of the vit family"));
  }
  if (!flags.text.empty() && options->model.vocabulary < kByteVocabulary) {
    return absl::InvalidArgumentError(absl::StrCat("--vocabulary is ", options->model.vocabulary,
                                                   ", but --text is bytes, of ", kByteVocabulary,
                                                   " kinds; leave --vocabulary out"));
  }
  GEMINID_RETURN_IF_ERROR(ParseBatch(flags, options));
  GEMINID_ASSIGN_OR_RETURN(options->seed, base::ParseCount("--seed", flags.seed, 0,
                                                           std::numeric_limits<uint64_t>::max()));
  GEMINID_RETURN_IF_ERROR(ParseSampling(flags, options));
  if (!flags.dropout.empty()) {
    GEMINID_ASSIGN_OR_RETURN(options->dropout,
                             base::ParseReal("--dropout", flags.dropout, 0, kDropoutMax));
  }
  return ParseValidation(flags, options);
}

absl::StatusOr<std::unique_ptr<TokenSource>> OpenData(const TrainOptions& options,
                                                      const OnBytesRead& on_progress) {
  using Opened = absl::StatusOr<std::unique_ptr<TokenSource>>;
  const ModelConfig& model = options.model;
  Opened data =
      !options.images.empty()   ? Opened(Images::Open(options.images, *model.image, model.classes))
      : !options.shards.empty() ? Opened(TokenShards::Open(options.shards, model.vocabulary))
                                : Opened(Text::Load(options.text, on_progress));
  if (!data.ok()) return WithFlag(DataFlagOf(options), data.status());
  return data;
}

absl::Status CheckSameFiles(const TrainOptions& options, const DataListing& read) {
  DataListing now;
  if (!options.text.empty()) {
    GEMINID_ASSIGN_OR_RETURN(now, Text::List(options.text));
  } else {
    GEMINID_ASSIGN_OR_RETURN(const auto data, OpenData(options));
    now = data->listing();
  }
  const std::string difference = FirstDifference(read, now);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the data has changed since this run read it: ", difference));
}

}  // namespace geminid::trainer
