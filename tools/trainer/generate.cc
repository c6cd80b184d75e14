#include "tools/trainer/generate.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/pages.h"
#include "base/status_macros.h"
#include "client/zero/residency/diverged.h"
#include "geminid/zero.h"
#include "kernels/runtime/parallel/tasks.h"
#include "tools/trainer/flags/flags.h"
#include "training/engines/loaded_values.h"
#include "training/logs/counted_state.h"
#include "training/logs/phase.h"
#include "training/models/working_set.h"
#include "training/nn/parameter_source.h"
#include "training/ranks/model_place.h"
#include "training/ranks/threads.h"
#include "training/settings/device_need.h"
#include "training/settings/flag_words.h"
#include "training/settings/rank_share.h"
#include "training/transformer/sampler.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

// Sequences are padded to a multiple of this, so that few lengths, and so few plans, occur.
constexpr size_t kLengthMultiple = 64;

bool IsText(const GenerateOptions& options) {
  return options.run.model.vocabulary == kByteVocabulary;
}

bool EndsText(const ModelConfig& model, int32_t token) {
  return std::ranges::find(model.end_tokens, static_cast<uint64_t>(token)) !=
         model.end_tokens.end();
}

std::string TextOf(const GenerateOptions& options, std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) {
    if (IsText(options)) {
      text.push_back(static_cast<char>(token));
    } else {
      absl::StrAppend(&text, token, " ");
    }
  }
  return text;
}

std::string Json(const GenerateOptions& options, std::span<const int32_t> tokens) {
  const auto write = [](base::JsonWriter& json, const char* key, std::span<const int32_t> values) {
    json.Key(key).BeginArray();
    for (const int32_t value : values) json.Value(static_cast<uint64_t>(value));
    json.EndArray();
  };
  base::JsonWriter json;
  json.BeginObject();
  write(json, "prompt_tokens", options.prompt);
  write(json, "tokens", tokens.subspan(options.prompt.size()));
  json.EndObject();
  return json.text() + "\n";
}

class Generator {
 public:
  Generator(const GenerateOptions& options, const RankContext& context)
      : options_(options),
        context_(context),
        tokens_(options.prompt),
        teller_(context.info.rank != 0
                    ? PhaseTeller::Write()
                    : [this](const std::string& line) { context_.write_stderr(line + "\n"); }) {
    context_.on_wait = [this] { teller_.End(); };  // reports why a queued job waits
  }

  absl::Status Prepare(collectives::Communicator* communicator) {
    communicator_ = communicator;
    teller_.Begin("registering memory with the daemon");
    GEMINID_ASSIGN_OR_RETURN(threads_,
                             MakeThreads(options_.run.threads, context_.info, *communicator_));
    GEMINID_ASSIGN_OR_RETURN(
        session_, ConnectDaemon(options_.run, context_,
                                UnlimitedDeviceBytes(options_.run, context_.info.world_size,
                                                     kernels::ThreadsOf(threads_.get())),
                                YieldOptions{}));
    GEMINID_ASSIGN_OR_RETURN(place_, ModelPlace::Find(*session_, Tokens::kAlone));
    model_ = MakeTransformer(options_.run.model, options_.run.zero.data_type,
                             TilingOf(options_.run), threads_.get(), place_->math());
    std::vector<zero::Parameter> parameters;
    for (const ParameterSpec& spec : model_->parameters().specs) {
      parameters.push_back({.name = spec.name,
                            .shape = spec.shape,
                            .data_type = spec.data_type,
                            .unit = spec.unit,
                            .trainable = false});
    }
    GEMINID_ASSIGN_OR_RETURN(engine_, zero::Engine::Create(session_.get(), communicator_,
                                                           parameters, options_.run.zero));
    source_ = place_->Source(engine_.get(), session_.get());
    CountedState state(engine_.get(), parameters);
    const InPhase phase(&teller_, absl::StrCat("loading ", options_.run.load),
                        [&state] { return state.Loaded(CountedState::Kinds::kValues); });
    GEMINID_RETURN_IF_ERROR(WithPath("--load", options_.run.load,
                                     LoadModelValues(options_.run, &state, parameters)));
    return PrepareCache();
  }

  size_t threads() const { return kernels::ThreadsOf(threads_.get()); }

  // All ranks use rank 0's token. They also agree on a signal, which ends all of them.
  absl::StatusOr<int> Run(const std::function<absl::Status(const std::string&)>& write) {
    const auto say = [&](const std::string& text) {
      return context_.info.rank == 0 ? write(text) : absl::OkStatus();
    };
    if (context_.nothing_to_save) context_.nothing_to_save(false);
    if (!options_.json) GEMINID_RETURN_IF_ERROR(say(TextOf(options_, tokens_)));
    int signal = 0;
    bool ended = false;
    while (tokens_.size() < options_.prompt.size() + options_.tokens && signal == 0 && !ended) {
      GEMINID_ASSIGN_OR_RETURN(const int32_t token, Next());
      std::vector<int32_t> agreed = {token, context_.stop_signal ? context_.stop_signal() : 0};
      GEMINID_RETURN_IF_ERROR(communicator_->Broadcast(agreed, 0));
      tokens_.push_back(agreed[0]);
      signal = agreed[1];
      ended = EndsText(options_.run.model, agreed[0]);
      if (!options_.json) GEMINID_RETURN_IF_ERROR(say(TextOf(options_, {&tokens_.back(), 1})));
    }
    GEMINID_RETURN_IF_ERROR(say(options_.json ? Json(options_, tokens_) : "\n"));
    return signal;
  }

 private:
  // All ranks decide the same, because their arenas have the same size.
  absl::Status PrepareCache() {
    const ModelConfig& model = options_.run.model;
    const zero::DataType type = options_.run.zero.data_type;
    const uint64_t tokens =
        std::min<uint64_t>(model.context, options_.prompt.size() + options_.tokens);
    if (tokens < options_.prompt.size()) return absl::OkStatus();  // there is nothing to cache
    bool remembers = options_.kv_cache.value_or(true);
    if (!options_.kv_cache) {
      GEMINID_ASSIGN_OR_RETURN(const zero::Statistics statistics, engine_->GetStatistics());
      const uint64_t needed =
          KeyValueCacheBytes(model, type, tokens) +
          WorkspaceBytesBound(model, type, {.sequences = 1, .sequence_length = tokens},
                              TilingOf(options_.run), kernels::ThreadsOf(threads_.get())) +
          statistics.device_state_bytes +
          WorkingSetBytes(model_->parameters(), type, statistics.chunk_elements);
      remembers = needed <= statistics.arena_bytes;
    }
    if (!remembers) return absl::OkStatus();
    GEMINID_ASSIGN_OR_RETURN(cache_, model_->MakeKeyValueCache(*source_, tokens));
    return absl::OkStatus();
  }

  // The logits after the last tokens, as many as the model's context holds.
  absl::StatusOr<std::vector<float>> NextLogits() {
    const size_t context = options_.run.model.context;
    if (tokens_.size() > context) cache_.reset();  // every token now has another position
    if (cache_ != nullptr) {
      const std::span<const int32_t> more = std::span(tokens_).subspan(cache_->count());
      return model_->NextLogits(*source_, more, more.size() - 1, cache_.get());
    }
    const size_t count = std::min(tokens_.size(), context);
    std::vector<int32_t> window(tokens_.end() - static_cast<ptrdiff_t>(count), tokens_.end());
    window.resize(std::min(context, base::RoundUp(count, kLengthMultiple)));
    return model_->NextLogits(*source_, window, count - 1);
  }

  absl::StatusOr<int32_t> Next() {
    GEMINID_ASSIGN_OR_RETURN(const std::vector<float> logits, NextLogits());
    if (!CanBeChosenFrom(logits)) {
      return zero::MarkDiverged(absl::FailedPreconditionError(absl::StrCat(
          "the model's logits for token ", tokens_.size() + 1,
          " are not finite, so no token can be chosen; its values are too large for --dtype ",
          Name(options_.run.zero.data_type), ", or damaged")));
    }
    return SampleToken(
        {.temperature = options_.temperature, .top_k = options_.top_k, .seed = options_.run.seed},
        tokens_.size() - options_.prompt.size(), logits);
  }

  const GenerateOptions& options_;
  RankContext context_;
  std::unique_ptr<kernels::ThreadPool> threads_;  // null: one thread
  std::vector<int32_t> tokens_;
  // Destroyed in reverse order: the engine uses the session and the place's stream.
  std::unique_ptr<ModelPlace> place_;
  std::unique_ptr<Transformer> model_;
  collectives::Communicator* communicator_ = nullptr;
  std::unique_ptr<Session> session_;
  std::unique_ptr<zero::Engine> engine_;
  std::unique_ptr<ParameterSource> source_;
  std::unique_ptr<KeyValueCache> cache_;  // null: no cache, every token is computed again
  PhaseTeller teller_;
};

}  // namespace

absl::StatusOr<int> GenerateAsRank(
    const GenerateOptions& options, const RankContext& context,
    const std::function<absl::Status(const std::string& text)>& write) {
  GEMINID_ASSIGN_OR_RETURN(const auto communicator, ConnectRanks(options.run, context));
  Generator generator(options, context);
  absl::Status status = generator.Prepare(communicator.get());
  absl::StatusOr<int> signal = 0;
  if (status.ok()) {
    signal = generator.Run(write);
    status = signal.status();
  }
  status = WithDeviceAdvice(status, options.run, context.info.world_size, generator.threads());
  if (status.ok()) return signal;
  communicator->Abort(
      absl::StrCat("rank ", context.info.rank, ": ", std::string(status.message())));
  return status;
}

}  // namespace geminid::trainer
