#include "tools/trainer/checkpoints.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json_writer.h"
#include "base/status_macros.h"
#include "kernels/model/normalisation/layer_norm.h"
#include "kernels/model/normalisation/rms_norm.h"

namespace geminid::trainer {
namespace {

// The base model's files, as OpenAI's GPT-2 has them, leave out what the language model's add.
constexpr std::string_view kLanguageModelPrefix = "transformer.";

// In decimals, of which the kernels have the nearest fp32.
constexpr double kNormEpsilon = 1e-5;
static_assert(kernels::LayerNormShape{}.epsilon == static_cast<float>(kNormEpsilon) &&
              kernels::RmsNormShape{}.epsilon == static_cast<float>(kNormEpsilon));

void WriteGpt2(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("architectures").BeginArray().Value("GPT2LMHeadModel").EndArray();
  json->Key("model_type").Value("gpt2");
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("n_positions").Value(model.context);
  json->Key("n_embd").Value(model.hidden);
  json->Key("n_layer").Value(model.layers);
  json->Key("n_head").Value(model.heads);
  json->Key("n_inner").Value(model.intermediate);
  json->Key("activation_function").Value("gelu_new");
  json->Key("layer_norm_epsilon").Value(kNormEpsilon);
  json->Key("tie_word_embeddings").Value(true);
}

void WriteLlama(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("architectures").BeginArray().Value("LlamaForCausalLM").EndArray();
  json->Key("model_type").Value("llama");
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.context);
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("num_key_value_heads").Value(model.kv_heads);
  json->Key("hidden_act").Value("silu");
  json->Key("rms_norm_eps").Value(kNormEpsilon);
  json->Key("rope_theta").Value(kRotaryTheta);
  json->Key("tie_word_embeddings").Value(false);
}

}  // namespace

std::string HuggingFaceConfig(const ModelConfig& model) {
  base::JsonWriter json;
  json.BeginObject();
  model.family == Family::kGpt2 ? WriteGpt2(model, &json) : WriteLlama(model, &json);
  json.Key("torch_dtype").Value("float32");
  json.EndObject();
  return json.text() + "\n";
}

Checkpoints::Checkpoints(const TrainOptions& options, zero::Engine* engine,
                         collectives::Communicator* communicator,
                         std::vector<zero::Parameter> parameters)
    : options_(options),
      engine_(engine),
      communicator_(communicator),
      parameters_(std::move(parameters)) {}

absl::StatusOr<std::unique_ptr<Checkpoints>> Checkpoints::Create(
    const TrainOptions& options, zero::Engine* engine, collectives::Communicator* communicator,
    std::vector<zero::Parameter> parameters) {
  std::unique_ptr<Checkpoints> made(
      new Checkpoints(options, engine, communicator, std::move(parameters)));
  if (options.save.empty()) return made;
  GEMINID_ASSIGN_OR_RETURN(
      made->saver_,
      checkpoint::Saver::Create(engine, communicator, made->parameters_,
                                {.folder = options.save,
                                 .keep = options.keep,
                                 .texts = {{"config.json", HuggingFaceConfig(options.model)}}}));
  return made;
}

absl::Status Checkpoints::LoadValues() {
  const auto load = [this](std::string_view without) {
    return checkpoint::LoadValues(options_.load, engine_, parameters_,
                                  [without](const zero::Parameter& parameter) {
                                    std::string_view name = parameter.name;
                                    if (name.starts_with(without))
                                      name.remove_prefix(without.size());
                                    return std::string(name);
                                  });
  };
  const absl::Status status = load("");
  if (status.ok() || options_.model.family != Family::kGpt2) return status;
  return load(kLanguageModelPrefix).ok() ? absl::OkStatus() : status;
}

absl::StatusOr<Checkpoints::Beginning> Checkpoints::Begin(
    const zero::Engine::Fill& fill, const std::function<checkpoint::RunState(uint64_t)>& run_at) {
  Beginning beginning;
  const bool resumes =
      options_.resume && !absl::IsNotFound(checkpoint::Newest(options_.save).status());
  if (resumes) {
    GEMINID_ASSIGN_OR_RETURN(const checkpoint::Loaded loaded,
                             checkpoint::Load(options_.save, engine_, communicator_, parameters_));
    if (loaded.run != run_at(loaded.progress.step)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", loaded.folder,
          "' was saved with another --seed, --batch or --accumulate, so its place in the text is "
          "not this run's; give the same, or another folder to --save"));
    }
    beginning = {loaded.progress.step, loaded.folder};
  } else if (!options_.load.empty()) {
    GEMINID_RETURN_IF_ERROR(LoadValues());
    beginning.from = options_.load;
  } else {
    GEMINID_RETURN_IF_ERROR(engine_->Initialize(fill));
  }
  return beginning;
}

absl::Status Checkpoints::AfterStep(uint64_t done, bool last, const checkpoint::RunState& run) {
  const bool due = options_.save_every > 0 && done % options_.save_every == 0;
  if (saver_ == nullptr || (!due && !last)) return absl::OkStatus();
  return saver_->Save(run);
}

absl::StatusOr<std::string> Checkpoints::Finish() {
  if (saver_ == nullptr) return std::string();
  return saver_->Wait();
}

}  // namespace geminid::trainer
