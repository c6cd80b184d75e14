// Folders of Hugging Face models: what they describe, loading and exporting them.
#include "training/models/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/tensors_in_folder.h"
#include "tests/training/models/tiny_models.h"

namespace geminid::trainer {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const json kGpt2 = {{"model_type", "gpt2"}, {"n_layer", 2},     {"n_embd", 24},
                    {"n_head", 6},          {"n_positions", 9}, {"vocab_size", 300}};
const json kLlama = {
    {"model_type", "llama"},        {"num_hidden_layers", 2},   {"hidden_size", 24},
    {"num_attention_heads", 6},     {"num_key_value_heads", 3}, {"intermediate_size", 40},
    {"max_position_embeddings", 9}, {"vocab_size", 300},        {"rms_norm_eps", 1e-5},
    {"rope_theta", 500000.0}};

const json kMixtral = [] {
  json config = kLlama;
  config.update({{"model_type", "mixtral"},
                 {"num_local_experts", 4},
                 {"num_experts_per_tok", 2},
                 {"router_aux_loss_coef", 0.02}});
  return config;
}();

class HuggingFace : public testing::Test {
 protected:
  absl::StatusOr<ModelConfig> Read(const json& config) {
    folder_.Write("config.json", config.dump());
    return ReadHuggingFaceConfig(folder_.path());
  }
  std::string Refusal(json config, const char* key, const json& value) {
    config[key] = value;
    const auto model = Read(config);
    EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument) << key;
    return std::string(model.status().message());
  }

  const base::TemporaryFolder folder_;
};

TEST_F(HuggingFace, Gpt2_HasItsOwnDefaults) {
  const auto model = Read(kGpt2);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kGpt2);
  EXPECT_EQ(model->intermediate, 96u);
  EXPECT_EQ(model->position_rows(), 9u);
  EXPECT_TRUE(model->tied_output());
}

TEST_F(HuggingFace, Llama_HasTheDefaultsOfTransformers) {
  json config = kLlama;
  config.erase("rms_norm_eps");
  config.erase("rope_theta");
  config.erase("num_key_value_heads");
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->kv_heads, 6u);
  EXPECT_EQ(model->norm_epsilon, 1e-6);
  EXPECT_EQ(model->rotary_theta, 10000);
  EXPECT_FALSE(model->tied_output());
}

TEST_F(HuggingFace, Mixtral_HasTheDefaultsOfTransformers) {
  json config = kMixtral;
  for (const char* key :
       {"rms_norm_eps", "rope_theta", "num_key_value_heads", "max_position_embeddings",
        "num_local_experts", "num_experts_per_tok", "router_aux_loss_coef"}) {
    config.erase(key);
  }
  config["sliding_window"] = nullptr;
  config["hidden_size"] = 64;
  config["num_attention_heads"] = 16;
  const auto model = Read(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, Family::kMixtral);
  EXPECT_EQ(model->experts, 8u);
  EXPECT_EQ(model->experts_per_token, 2u);
  EXPECT_EQ(model->balance_loss, 0.001);
  EXPECT_EQ(model->kv_heads, 8u);
  EXPECT_EQ(model->norm_epsilon, 1e-5);
  EXPECT_EQ(model->rotary_theta, 1e6);
  EXPECT_EQ(model->position_rows(), 131072u);
  EXPECT_FALSE(model->tied_output());
}

// As MixtralForCausalLM keeps them.
TEST_F(HuggingFace, ParametersOfMixtral_HaveTheNamesAndShapesOfTransformers) {
  const ModelConfig model = *Read(kMixtral);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ParameterSpec& spec : MakeParameters(model).specs) shapes[spec.name] = spec.shape;
  EXPECT_EQ(shapes.size(), 3u + 2 * (7 + 3 * 4));
  const std::string layer = "model.layers.1.";
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shapes[layer + "block_sparse_moe.gate.weight"], (Shape{4, 24}));
  for (const char* expert : {"0", "3"}) {
    const std::string name = layer + "block_sparse_moe.experts." + expert;
    EXPECT_EQ(shapes[name + ".w1.weight"], (Shape{40, 24}));
    EXPECT_EQ(shapes[name + ".w2.weight"], (Shape{24, 40}));
    EXPECT_EQ(shapes[name + ".w3.weight"], (Shape{40, 24}));
  }
  EXPECT_EQ(shapes[layer + "self_attn.k_proj.weight"], (Shape{12, 24}));
  EXPECT_EQ(shapes[layer + "post_attention_layernorm.weight"], (Shape{24}));
  EXPECT_EQ(shapes.count("lm_head.weight"), 1u);
}

TEST_F(HuggingFace, OfNewerTransformers_KeepsItsRotaryPositionsTogether) {
  json config = kLlama;
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 500000.0}, {"rope_type", "default"}};
  EXPECT_EQ(Read(config)->rotary_theta, 500000);
  EXPECT_THAT(Refusal(kLlama, "rope_parameters", {{"rope_type", "yarn"}}),
              HasSubstr("'rope_type'"));
}

TEST_F(HuggingFace, WithRotaryPositionsOfTypeDefault_IsUnscaled) {
  json config = kLlama;
  for (const char* const key : {"type", "rope_type"}) {
    config["rope_scaling"] = {{key, "default"}};
    EXPECT_EQ(Read(config)->rotary_theta, 500000) << key;
  }
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", json::object()), HasSubstr("'rope_scaling'"));
}

TEST_F(HuggingFace, NumbersThatAreNotFinite_MatterOnlyWhereTheyAreRead) {
  std::string text = kLlama.dump();
  text.insert(1, "\"time_step_limit\": [0.0, Infinity], \"unused\": NaN, ");
  folder_.Write("config.json", text);
  const auto model = ReadHuggingFaceConfig(folder_.path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->hidden, 24u);
  json without = kLlama;
  without.erase("rope_theta");
  text = without.dump();
  text.insert(1, "\"rope_theta\": Infinity, ");
  folder_.Write("config.json", text);
  EXPECT_THAT(std::string(ReadHuggingFaceConfig(folder_.path()).status().message()),
              HasSubstr("'rope_theta' must be a finite number"));
}

TEST_F(HuggingFace, SpecialTokens_AreThoseOfTheFileOrOfTransformers) {
  json config = kGpt2;
  EXPECT_THAT(Read(config)->end_tokens, testing::IsEmpty());  // 50256 is no token of 300
  config["eos_token_id"] = {7, 299, 300};
  EXPECT_THAT(Read(config)->end_tokens, testing::ElementsAre(7, 299));
  config["vocab_size"] = 50257;
  config["eos_token_id"] = nullptr;
  EXPECT_THAT(Read(config)->end_tokens, testing::IsEmpty());
  config.erase("eos_token_id");
  EXPECT_THAT(Read(config)->end_tokens, testing::ElementsAre(50256));
  EXPECT_EQ(Read(config)->first_token, 50256u);
  EXPECT_THAT(Read(kLlama)->end_tokens, testing::ElementsAre(2));
  config = kLlama;
  config["vocab_size"] = 256;  // bytes
  EXPECT_THAT(Read(config)->end_tokens, testing::IsEmpty());
}

// As transformers insists: a float has a point, and its own defaults for tokens are overwritten.
TEST_F(HuggingFace, Exported_HasFloatsAndSpecialTokens) {
  json config = kMixtral;
  config["router_aux_loss_coef"] = 0;
  config["rope_theta"] = 10000;
  config["eos_token_id"] = {4, 5};
  const std::string text = HuggingFaceConfig(*Read(config), "float32");
  EXPECT_THAT(text, HasSubstr("\"router_aux_loss_coef\": 0.0"));
  EXPECT_THAT(text, HasSubstr("\"rope_theta\": 10000.0"));
  const json written = json::parse(text);
  EXPECT_TRUE(written["rms_norm_eps"].is_number_float());
  EXPECT_EQ(written["eos_token_id"], json({4, 5}));
  EXPECT_EQ(written["bos_token_id"], 1);
  const json bytes = json::parse(HuggingFaceConfig({.family = Family::kGpt2}, "float32"));
  EXPECT_TRUE(bytes["eos_token_id"].is_null());
  EXPECT_TRUE(bytes["bos_token_id"].is_null());
}

TEST_F(HuggingFace, OfALongContext_IsCutToSequencesThatAreUsual) {
  json config = kLlama;
  config["max_position_embeddings"] = 131072;
  EXPECT_EQ(Read(config)->context, kLoadedContextMax);
  EXPECT_EQ(Read(config)->position_rows(), 131072u);
}

TEST_F(HuggingFace, ThatCannotBeRun_IsRefusedByItsKey) {
  EXPECT_THAT(Refusal(kLlama, "rope_scaling", {{"type", "linear"}}), HasSubstr("'rope_scaling'"));
  EXPECT_THAT(Refusal(kLlama, "attention_bias", true), HasSubstr("'attention_bias'"));
  EXPECT_THAT(Refusal(kLlama, "mlp_bias", true), HasSubstr("'mlp_bias'"));
  EXPECT_THAT(Refusal(kLlama, "hidden_act", "gelu"), HasSubstr("'hidden_act'"));
  EXPECT_THAT(Refusal(kLlama, "head_dim", 8), HasSubstr("'head_dim'"));
  EXPECT_THAT(Refusal(kMixtral, "router_jitter_noise", 0.1), HasSubstr("'router_jitter_noise'"));
  EXPECT_THAT(Refusal(kMixtral, "sliding_window", 4), HasSubstr("'sliding_window'"));
  EXPECT_THAT(Refusal(kMixtral, "num_experts_per_tok", 5), HasSubstr("experts for each token"));
  EXPECT_THAT(Refusal(kGpt2, "activation_function", "relu"), HasSubstr("'activation_function'"));
  EXPECT_THAT(Refusal(kGpt2, "model_type", "mamba"), HasSubstr("'model_type' is 'mamba'"));
  EXPECT_THAT(Refusal(kGpt2, "n_head", 5), HasSubstr("must divide"));
  EXPECT_THAT(Refusal(kGpt2, "n_layer", "two"), HasSubstr("'n_layer' must be a whole number"));
  EXPECT_THAT(Refusal(kGpt2, "n_layer", 0), HasSubstr("config.json"));
  folder_.Write("config.json", "{");
  EXPECT_EQ(ReadHuggingFaceConfig(folder_.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadHuggingFaceConfig(folder_ / "none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(HuggingFace, WrittenAndReadAgain_IsTheSame) {
  for (const json& config : {kGpt2, kLlama, kMixtral}) {
    const ModelConfig model = *Read(config);
    folder_.Write("config.json", HuggingFaceConfig(model, "float32"));
    const ModelConfig again = *ReadHuggingFaceConfig(folder_.path());
    EXPECT_EQ(HuggingFaceConfig(again, "float32"), HuggingFaceConfig(model, "float32"));
    EXPECT_EQ(again.rotary_theta, model.rotary_theta);
    EXPECT_EQ(again.experts, model.experts);
    EXPECT_EQ(again.experts_per_token, model.experts_per_token);
    EXPECT_EQ(again.balance_loss, model.balance_loss);
    EXPECT_EQ(again.norm_epsilon, model.norm_epsilon);
  }
}

// A folder as transformers would leave it: written here, bit by bit.
struct FolderCase {
  const char* name;
  json config;
  const char* type;
  bool tied;
  const char* prefix;  // that names have and this folder's have not
  int files;
};

class LoadedFolder : public HuggingFace, public testing::WithParamInterface<FolderCase> {
 protected:
  static std::string Bytes(const std::string& type, float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (type == "F32") return {reinterpret_cast<const char*>(&bits), 4};
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (type == "F16") {  // of small multiples of 1/64 below 2, exactly
      const int sixtyfourths = static_cast<int>(std::lround(std::abs(value) * 64));
      int exponent = 0;
      while (sixtyfourths >> (exponent + 1) != 0) ++exponent;
      const int fraction = sixtyfourths == 0 ? 0 : (sixtyfourths << (10 - exponent)) & 1023;
      const int biased = sixtyfourths == 0 ? 0 : exponent - 6 + 15;
      half = static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | biased << 10 | fraction);
    }
    return {reinterpret_cast<const char*>(&half), 2};
  }

  // Values that all three types hold exactly: multiples of 1/64 below 2.
  NamedTensors Write(const ModelConfig& model) {
    const FolderCase& folder = GetParam();
    NamedTensors tensors;
    std::vector<json> headers(static_cast<size_t>(folder.files), json::object());
    std::vector<std::string> data(headers.size());
    json map;
    size_t count = 0;
    for (const ParameterSpec& spec : MakeParameters(model).specs) {
      std::string name = spec.name;
      if (name.starts_with(folder.prefix)) name = name.substr(std::string(folder.prefix).size());
      const size_t file = count++ % headers.size();
      std::vector<double>& values = tensors[spec.name];
      std::string bytes;
      for (uint64_t i = 0; i < spec.elements(); ++i) {
        const bool gain = spec.init == ParameterSpec::Init::kOnes;
        const auto value =
            static_cast<float>((gain ? 1.0 : 0.0) +
                               (static_cast<double>(base::RandomBits(count, i) % 33) - 16) / 64.0);
        values.push_back(value);
        bytes += Bytes(folder.type, value);
      }
      headers[file][name] = {
          {"dtype", folder.type},
          {"shape", spec.shape},
          {"data_offsets", {data[file].size(), data[file].size() + bytes.size()}}};
      data[file] += bytes;
      map[name] = "model-" + std::to_string(file) + ".safetensors";
    }
    for (size_t file = 0; file < headers.size(); ++file) {
      std::string header = headers[file].dump();
      header.resize((header.size() + 7) / 8 * 8, ' ');
      const uint64_t length = header.size();
      folder_.Write(headers.size() == 1 ? "model.safetensors"
                                        : "model-" + std::to_string(file) + ".safetensors",
                    std::string(reinterpret_cast<const char*>(&length), 8) + header + data[file]);
    }
    if (headers.size() > 1) {
      folder_.Write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
    }
    return tensors;
  }
};

TEST_P(LoadedFolder, WritesOnAsAFloat64Model) {
  json config = GetParam().config;
  config["tie_word_embeddings"] = GetParam().tied;
  const ModelConfig model = *Read(config);
  const NamedTensors tensors = Write(model);
  const CommandResult result = RunTrainer({"generate", "--load", folder_.path(), "--prompt-tokens",
                                           "7,3", "--tokens", "6", "--dtype", "fp32", "--json"});
  ASSERT_EQ(result.code, 0) << result.err;
  std::vector<int32_t> tokens = {7, 3};
  std::vector<int> expected;
  for (int i = 0; i < 6; ++i) {
    const std::vector<double> logits = ReferenceLogits(model, tensors, tokens).back();
    tokens.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    expected.push_back(tokens.back());
  }
  EXPECT_EQ(json::parse(result.out)["tokens"], json(expected));
}

TEST_P(LoadedFolder, ExportedUntouched_HasTheSameTensors) {
  json config = GetParam().config;
  config["tie_word_embeddings"] = GetParam().tied;
  const NamedTensors tensors = Write(*Read(config));
  const std::string text = folder_.Write("text", std::string(500, 'x'));
  const std::string type = GetParam().type;
  const std::string out = folder_ / "new/exported";
  const CommandResult result =
      RunTrainer({"--load", folder_.path(), "--text", text, "--steps", "1", "--lr", "0", "--ranks",
                  "2", "--export", out, "--export-dtype",
                  type == "F32"   ? "fp32"
                  : type == "F16" ? "fp16"
                                  : "bf16"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("exported to " + out));
  EXPECT_EQ(TensorsInFolder(out), tensors);
  const json written = json::parse(FileText(out + "/config.json"));
  for (const auto& [key, value] : config.items()) {
    if (value.is_number_float()) {
      EXPECT_DOUBLE_EQ(written[key].get<double>(), value.get<double>()) << key;
    } else {
      EXPECT_EQ(written[key], value) << key;
    }
  }
  size_t entries = 0;
  for (const auto& entry : std::filesystem::directory_iterator(out)) entries += entry.exists();
  EXPECT_EQ(entries, 2u);  // model.safetensors and config.json
}

INSTANTIATE_TEST_SUITE_P(
    Folders, LoadedFolder,
    testing::Values(FolderCase{"gpt2_fp32", kGpt2, "F32", true, "", 1},
                    FolderCase{"gpt2_base_model_bf16", kGpt2, "BF16", true, "transformer.", 1},
                    FolderCase{"gpt2_untied_fp16_in_files", kGpt2, "F16", false, "", 3},
                    FolderCase{"llama_bf16_in_files", kLlama, "BF16", false, "", 4},
                    FolderCase{"llama_tied_fp16", kLlama, "F16", true, "", 1},
                    FolderCase{"llama_fp32", kLlama, "F32", false, "", 1},
                    FolderCase{"mixtral_fp32", kMixtral, "F32", false, "", 1},
                    FolderCase{"mixtral_bf16_in_files", kMixtral, "BF16", false, "", 4},
                    FolderCase{"mixtral_tied_fp16", kMixtral, "F16", true, "", 1}),
    [](const auto& test) { return std::string(test.param.name); });

// By dtype, the tensors of a folder with one file.
std::map<std::string, std::string> TypesInFolder(const std::string& folder) {
  const std::string file = FileText(folder + "/model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  std::map<std::string, std::string> types;
  const json header = json::parse(file.substr(sizeof(length), length));
  for (const auto& [name, tensor] : header.items()) {
    if (name != "__metadata__") types[name] = tensor["dtype"];
  }
  return types;
}

TEST_F(HuggingFace, ExportedInBf16_KeepsNormsThatWereTrainedInFp32) {
  const std::string text = folder_.Write("text", std::string(500, 'x'));
  const auto train = [&](const std::string& norms, const std::string& type) {
    const std::string out = folder_ / (norms + type);
    const CommandResult result =
        RunTrainer({"--model", "gpt2-tiny", "--text", text, "--steps", "3", "--norm-precision",
                    norms, "--export", out, "--export-dtype", type});
    EXPECT_EQ(result.code, 0) << result.err;
    return out;
  };
  const std::string mixed = train("fp32", "bf16");
  const NamedTensors exact = TensorsInFolder(train("fp32", "fp32"));
  const NamedTensors values = TensorsInFolder(mixed);
  for (const auto& [name, type] : TypesInFolder(mixed)) {
    const bool norm = name.find(".ln_") != std::string::npos;
    EXPECT_EQ(type, norm ? "F32" : "BF16") << name;
    if (norm) {
      EXPECT_EQ(values.at(name), exact.at(name)) << name;
    }
  }
  for (const auto& [name, type] : TypesInFolder(train("as-weights", "bf16"))) {
    EXPECT_EQ(type, "BF16") << name;
  }
  // What a folder of both types holds is read as it is.
  const std::string again = folder_ / "again";
  const CommandResult loaded =
      RunTrainer({"--load", mixed, "--text", text, "--steps", "1", "--lr", "0", "--export", again});
  ASSERT_EQ(loaded.code, 0) << loaded.err;
  EXPECT_EQ(TensorsInFolder(again), values);
}

TEST_F(HuggingFace, FolderWithWhatIsWrong_IsNamedByFileAndTensor) {
  const std::string text = folder_.Write("text", std::string(500, 'x'));
  const auto run = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--text", text, "--steps", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments);
  };
  const std::string first = folder_ / "first";
  ASSERT_EQ(run({"--model", "gpt2-tiny", "--export", first}).code, 0);
  const CommandResult again = run({"--model", "gpt2-tiny", "--export", first});
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, HasSubstr("nothing is overwritten"));
  // Another vocabulary, by flag and by file.
  const CommandResult vocabulary = run({"--load", first, "--vocabulary", "300"});
  EXPECT_NE(vocabulary.code, 0);
  EXPECT_THAT(vocabulary.err, HasSubstr("--vocabulary was 256 and is 300"));
  const CommandResult layers = run({"--load", first, "--layers", "3"});
  EXPECT_NE(layers.code, 0);
  EXPECT_THAT(layers.err, HasSubstr("--layers was 2 and is 3"));
  // Not a number, in the last four bytes.
  std::string file = FileText(first + "/model.safetensors");
  file.replace(file.size() - 4, 4, "\xff\xff\xff\xff");
  std::ofstream(first + "/model.safetensors", std::ios::binary) << file;
  const CommandResult nan = run({"--load", first});
  EXPECT_NE(nan.code, 0);
  EXPECT_THAT(nan.err, HasSubstr("model.safetensors': tensor 'transformer.ln_f.bias' is not finite "
                                 "at element 63"));
}

}  // namespace
}  // namespace geminid::trainer
