#include "tools/trainer/flags/generate_flags.h"

#include <array>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/flag_values.h"
#include "base/status_macros.h"
#include "client/checkpoint/newest.h"
#include "tools/trainer/flags/memory_flags.h"
#include "tools/trainer/flags/model_flags.h"
#include "tools/trainer/flags/resumed_run.h"
#include "tools/trainer/flags/run_flags.h"
#include "training/settings/flag_words.h"
#include "training/settings/outputs.h"

namespace geminid::trainer {
namespace {

constexpr uint64_t kTokensMax = 1'000'000'000;
constexpr double kTemperatureMax = 1e3;

constexpr FlagSpec kGenerateFlags[] = {
    {"--prompt", &Flags::prompt, "TEXT", "Text to continue, where tokens are bytes"},
    {"--prompt-tokens", &Flags::prompt_tokens, "N,...", "The prompt as numbers of tokens"},
    {"--tokens", &Flags::tokens, "N",
     "Most tokens to write; the model's end-of-sequence token ends the text"},
    {"--temperature", &Flags::temperature, "X",
     "0: always the likeliest token; 1: the model's probabilities; between: likely tokens more "
     "often"},
    {"--top-k", &Flags::top_k, "N", "Choose among the N likeliest; 0: among all"},
    {"--seed", &Flags::seed, "N", "Seed of the choice"},
    {"--kv-cache", &Flags::kv_cache, "WHEN",
     "Cache keys and values of earlier tokens: on, off, or auto: if they fit. The cache changes no "
     "token"},
};

absl::StatusOr<std::vector<int32_t>> ParsePrompt(const Flags& flags, uint64_t vocabulary) {
  if (flags.prompt.empty() == flags.prompt_tokens.empty()) {
    return absl::InvalidArgumentError(
        flags.prompt.empty() ? "no prompt: give --prompt a text, or --prompt-tokens numbers"
                             : "--prompt and --prompt-tokens are both given; leave one out");
  }
  std::vector<int32_t> tokens;
  if (!flags.prompt.empty()) {
    if (vocabulary != kByteVocabulary) {
      return absl::InvalidArgumentError(
          absl::StrCat("--prompt is bytes, but the model has ", vocabulary,
                       " kinds of tokens; give --prompt-tokens their numbers"));
    }
    for (const char byte : flags.prompt) tokens.push_back(static_cast<uint8_t>(byte));
    return tokens;
  }
  const std::vector<std::string> pieces =
      absl::StrSplit(flags.prompt_tokens, absl::ByAnyChar(", "), absl::SkipEmpty());
  if (pieces.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(base::WithValue("--prompt-tokens", flags.prompt_tokens), "it has no number"));
  }
  for (const std::string& piece : pieces) {
    GEMINID_ASSIGN_OR_RETURN(const uint64_t token,
                             base::ParseCount("--prompt-tokens", piece, 0, vocabulary - 1));
    tokens.push_back(static_cast<int32_t>(token));
  }
  return tokens;
}

}  // namespace

std::span<const FlagSpec> GenerateFlags() { return kGenerateFlags; }

absl::Status FillTypes(const std::function<bool(const std::string& flag)>& given, Flags* flags) {
  if (flags->load.empty()) return absl::OkStatus();
  const std::string load = WithoutSlashesAtEnd(flags->load);
  const absl::StatusOr<std::string> folder = checkpoint::FolderOfValues(load);
  if (!folder.ok()) return absl::OkStatus();  // reading the model reports why
  const absl::StatusOr<RunDescription> run = ReadRunOf(*folder);
  if (!run.ok()) return WithPath("--load", load, run.status());
  for (const auto& [flag, value] : {std::pair("--dtype", &Flags::dtype),
                                    std::pair("--norm-precision", &Flags::norm_precision)}) {
    const auto term = run->terms.find(flag + 2);
    if (term != run->terms.end() && !given(flag)) flags->*value = term->second;
  }
  return absl::OkStatus();
}

absl::StatusOr<GenerateOptions> ReadGenerate(const Flags& flags) {
  GenerateOptions options;
  if (flags.load.empty()) {
    return absl::InvalidArgumentError(
        "no model: give --load the folder of a checkpoint or of a Hugging Face model");
  }
  options.run.load = WithoutSlashesAtEnd(flags.load);
  GEMINID_RETURN_IF_ERROR(ParseProcesses(flags, &options.run));
  GEMINID_RETURN_IF_ERROR(CheckRanksAreFixed(options.run));
  GEMINID_RETURN_IF_ERROR(ParseMemory(flags, &options.run));
  GEMINID_ASSIGN_OR_RETURN(options.run.model, ParseModel(flags, flags.load));
  if (options.run.model.encodes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--load ", options.run.load, " is a model of the ", Name(options.run.model.family),
        " family, ",
        options.run.model.image
            ? "which classifies images and writes no text"
            : "an encoder: each token sees those after it, so the model cannot continue a text",
        "; take a model of another family"));
  }
  GEMINID_RETURN_IF_ERROR(ParseTypes(flags, &options.run));
  GEMINID_ASSIGN_OR_RETURN(options.prompt, ParsePrompt(flags, options.run.model.vocabulary));
  GEMINID_ASSIGN_OR_RETURN(options.tokens,
                           base::ParseCount("--tokens", flags.tokens, 1, kTokensMax));
  GEMINID_ASSIGN_OR_RETURN(options.temperature,
                           base::ParseReal("--temperature", flags.temperature, 0, kTemperatureMax));
  GEMINID_ASSIGN_OR_RETURN(
      options.top_k, base::ParseCount("--top-k", flags.top_k, 0, options.run.model.vocabulary));
  GEMINID_ASSIGN_OR_RETURN(
      options.run.seed,
      base::ParseCount("--seed", flags.seed, 0, std::numeric_limits<uint64_t>::max()));
  using Cache = std::optional<bool>;
  GEMINID_ASSIGN_OR_RETURN(
      options.kv_cache,
      base::ParseWord("--kv-cache", flags.kv_cache,
                      std::array{std::pair{"auto", Cache()}, std::pair{"on", Cache(true)},
                                 std::pair{"off", Cache(false)}}));
  options.json = flags.json;
  // All ranks work on the same sequence.
  options.run.batch = static_cast<uint64_t>(options.run.ranks.value_or(1));
  return options;
}

}  // namespace geminid::trainer
