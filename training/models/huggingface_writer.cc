// Writes config.json as transformers reads it.
#include "base/json_writer.h"
#include "training/models/huggingface.h"

namespace geminid::trainer {
namespace {

// Both keys always: transformers has defaults of its own for those that are absent.
void WriteSpecialTokens(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("bos_token_id");
  model.first_token ? json->Value(*model.first_token) : json->Null();
  json->Key("eos_token_id");
  if (model.end_tokens.empty()) {
    json->Null();
  } else if (model.end_tokens.size() == 1) {
    json->Value(model.end_tokens.front());
  } else {
    json->BeginArray();
    for (const uint64_t token : model.end_tokens) json->Value(token);
    json->EndArray();
  }
}

void WriteGpt2(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("n_positions").Value(model.position_rows());
  json->Key("n_embd").Value(model.hidden);
  json->Key("n_layer").Value(model.layers);
  json->Key("n_head").Value(model.heads);
  json->Key("n_inner").Value(model.intermediate);
  json->Key("activation_function").Value("gelu_new");
  json->Key("layer_norm_epsilon").Real(model.norm_epsilon);
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

void WriteOpt(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("word_embed_proj_dim").Value(model.hidden);
  json->Key("ffn_dim").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("activation_function").Value("relu");
  json->Key("do_layer_norm_before").Value(true);
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

// In the form that older versions of transformers know too, which call the base `theta`.
void WriteRotary(const ModelConfig& model, const char* theta, base::JsonWriter* json) {
  using Kind = RotaryScaling::Kind;
  json->Key(theta).Real(model.rotary_theta);
  const RotaryScaling& scaling = model.rotary_scaling;
  if (scaling.kind == Kind::kNone) return;
  json->Key("rope_scaling").BeginObject();
  json->Key("rope_type").Value(Name(scaling.kind));
  json->Key("factor").Real(scaling.factor);
  if (scaling.kind != Kind::kLinear) {
    json->Key("original_max_position_embeddings").Value(scaling.original_positions);
  }
  if (scaling.kind == Kind::kLlama3) {
    json->Key("low_freq_factor").Real(scaling.slow_turns);
    json->Key("high_freq_factor").Real(scaling.fast_turns);
  }
  if (scaling.kind == Kind::kYarn) {
    json->Key("beta_fast").Real(scaling.beta_fast);
    json->Key("beta_slow").Real(scaling.beta_slow);
    json->Key("attention_factor").Real(scaling.attention_factor);
    if (!scaling.rounds_ramp) json->Key("truncate").Value(false);
  }
  json->EndObject();
}

// What transformers takes a default for that differs by family is always written.
void WriteAttention(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("num_key_value_heads").Value(model.kv_heads);
  if (model.head_width || model.family == Family::kQwen3) {
    json->Key("head_dim").Value(model.head_dim());
  }
  if (model.attention_bias.value_or(false)) json->Key("attention_bias").Value(true);
  if (model.window > 0) {
    json->Key("sliding_window").Value(model.window);
  } else if (model.family == Family::kMistral) {
    json->Key("sliding_window").Null();
  }
}

const char* ArchitectureOf(Family family) {
  switch (family) {
    case Family::kGpt2:
      return "GPT2LMHeadModel";
    case Family::kLlama:
      return "LlamaForCausalLM";
    case Family::kMixtral:
      return "MixtralForCausalLM";
    case Family::kMistral:
      return "MistralForCausalLM";
    case Family::kQwen2:
      return "Qwen2ForCausalLM";
    case Family::kQwen3:
      return "Qwen3ForCausalLM";
    case Family::kOpt:
      return "OPTForCausalLM";
    case Family::kGptNeox:
      return "GPTNeoXForCausalLM";
  }
  return "";
}

void WriteLlama(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  WriteAttention(model, json);
  json->Key("hidden_act").Value("silu");
  json->Key("rms_norm_eps").Real(model.norm_epsilon);
  WriteRotary(model, "rope_theta", json);
  json->Key("tie_word_embeddings").Value(model.tied_output());
  if (!model.routed()) return;
  json->Key("num_local_experts").Value(model.experts);
  json->Key("num_experts_per_tok").Value(model.experts_per_token);
  json->Key("router_aux_loss_coef").Real(model.balance_loss);
}

void WriteGptNeox(const ModelConfig& model, base::JsonWriter* json) {
  json->Key("vocab_size").Value(model.vocabulary);
  json->Key("max_position_embeddings").Value(model.position_rows());
  json->Key("hidden_size").Value(model.hidden);
  json->Key("intermediate_size").Value(model.intermediate);
  json->Key("num_hidden_layers").Value(model.layers);
  json->Key("num_attention_heads").Value(model.heads);
  json->Key("attention_bias").Value(model.output_bias());
  json->Key("hidden_act").Value(Name(model.activation()));
  json->Key("layer_norm_eps").Real(model.norm_epsilon);
  json->Key("rotary_pct").Real(model.turned_share());
  WriteRotary(model, "rotary_emb_base", json);
  json->Key("use_parallel_residual").Value(model.parallel());
  json->Key("tie_word_embeddings").Value(model.tied_output());
}

}  // namespace

std::string HuggingFaceConfig(const ModelConfig& model, const std::string& data_type) {
  base::JsonWriter json;
  json.BeginObject();
  json.Key("architectures").BeginArray().Value(ArchitectureOf(model.family)).EndArray();
  json.Key("model_type").Value(Name(model.family));
  if (model.family == Family::kGpt2) {
    WriteGpt2(model, &json);
  } else if (model.family == Family::kOpt) {
    WriteOpt(model, &json);
  } else if (model.family == Family::kGptNeox) {
    WriteGptNeox(model, &json);
  } else {
    WriteLlama(model, &json);
  }
  WriteSpecialTokens(model, &json);
  json.Key("torch_dtype").Value(data_type);
  if (model.lora_rank > 0) {
    json.Key(kLoraRankKey).Value(model.lora_rank).Key(kLoraAlphaKey).Real(model.lora_alpha);
  }
  json.EndObject();
  return json.text() + "\n";
}

}  // namespace geminid::trainer
