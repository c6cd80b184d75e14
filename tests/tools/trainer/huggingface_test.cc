// Folders of Hugging Face models: their descriptions, loading and exporting.
#include "training/models/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/tensors_in_folder.h"
#include "tests/training/models/huggingface_configs.h"
#include "tests/training/models/tiny_models.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;

// A folder as transformers would write it, written here bit by bit.
struct FolderCase {
  const char* name;
  json config;
  const char* type;
  bool tied;
  const char* prefix;  // the part of names that this folder leaves out
  int files;
};

class LoadedFolder : public HuggingFace, public testing::WithParamInterface<FolderCase> {
 protected:
  static std::string Bytes(const std::string& type, float value) {
    uint32_t bits = std::bit_cast<uint32_t>(value);
    if (type == "F32") return {reinterpret_cast<const char*>(&bits), 4};
    uint16_t half = static_cast<uint16_t>(bits >> 16);
    if (type == "F16") {  // exact for multiples of 1/64 below 2
      const int sixtyfourths = static_cast<int>(std::lround(std::abs(value) * 64));
      int exponent = 0;
      while (sixtyfourths >> (exponent + 1) != 0) ++exponent;
      const int fraction = sixtyfourths == 0 ? 0 : (sixtyfourths << (10 - exponent)) & 1023;
      const int biased = sixtyfourths == 0 ? 0 : exponent - 6 + 15;
      half = static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | biased << 10 | fraction);
    }
    return {reinterpret_cast<const char*>(&half), 2};
  }

  // Values that all three types represent exactly: multiples of 1/64 below 2.
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
                    FolderCase{"llama3_fp32", Scaled(kLlama, kLlama3Scaling), "F32", false, "", 1},
                    FolderCase{"opt_base_model_fp32", kOpt, "F32", true, "model.", 1},
                    FolderCase{"opt_untied_bf16_in_files", kOpt, "BF16", false, "", 3},
                    FolderCase{"gpt_neox_fp32", kGptNeox, "F32", false, "", 1},
                    FolderCase{"gpt_neox_base_model_tied_bf16", kGptNeox, "BF16", true, "gpt_neox.",
                               1},
                    FolderCase{"gpt_neox_fp16_in_files", kGptNeox, "F16", false, "", 3},
                    FolderCase{"mistral_bf16", kMistral, "BF16", false, "", 1},
                    FolderCase{"qwen2_tied_fp32", kQwen2, "F32", true, "", 1},
                    FolderCase{"qwen3_tied_base_model_bf16", kQwen3, "BF16", true, "model.", 1},
                    FolderCase{"qwen3_yarn_fp32", Scaled(kQwen3, kYarn), "F32", false, "", 1},
                    FolderCase{"mixtral_fp32", kMixtral, "F32", false, "", 1},
                    FolderCase{"mixtral_bf16_in_files", kMixtral, "BF16", false, "", 4},
                    FolderCase{"mixtral_tied_fp16", kMixtral, "F16", true, "", 1}),
    [](const auto& test) { return std::string(test.param.name); });

// The tensors' names by dtype, for a folder with one file.
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
  // A folder with both types is read as it is.
  const std::string again = folder_ / "again";
  const CommandResult loaded =
      RunTrainer({"--load", mixed, "--text", text, "--steps", "1", "--lr", "0", "--export", again});
  ASSERT_EQ(loaded.code, 0) << loaded.err;
  EXPECT_EQ(TensorsInFolder(again), values);
}

// The bytes of a text are numbers of other tokens there.
TEST_F(HuggingFace, FolderWithATokenizer_LearnsNoBytes) {
  const std::string text = folder_.Write("text", std::string(500, 'x'));
  const std::string model = folder_ / "model";
  const std::vector<std::string> run = {"--text", text, "--steps", "1"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), run.begin(), run.end());
    return RunTrainer(words);
  };
  ASSERT_EQ(with({"--model", "gpt2-tiny", "--vocabulary", "300", "--export", model}).code, 0);
  const CommandResult remark = with({"--load", model});
  EXPECT_EQ(remark.code, 0);
  EXPECT_THAT(remark.err, HasSubstr("--text is bytes, but the model of --load has 300 kinds of "
                                    "tokens; if a tokenizer made them, give --shards"));
  std::ofstream(model + "/tokenizer.json") << "{}";
  const CommandResult refused = with({"--load", model});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("300 kinds of tokens, made by '" + model + "/tokenizer.json"));
  EXPECT_THAT(refused.err, HasSubstr("python -m geminid tokens shards"));
}

// Puts a tensor without elements into a file of safetensors.
void AddTensor(const std::string& path, const std::string& name) {
  const std::string file = FileText(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  json header = json::parse(file.substr(sizeof(length), length));
  const std::string data = file.substr(sizeof(length) + length);
  header[name] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {data.size(), data.size()}}};
  const std::string text = header.dump();
  length = text.size();
  std::ofstream(path, std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof(length)) << text << data;
}

TEST_F(HuggingFace, FolderWithMoreThanTheModelOfItsConfig_IsRefused) {
  const std::string text = folder_.Write("text", std::string(500, 'x'));
  const std::string model = folder_ / "model";
  ASSERT_EQ(
      RunTrainer({"--model", "llama-tiny", "--text", text, "--steps", "1", "--export", model}).code,
      0);
  const auto load = [&] { return RunTrainer({"--load", model, "--text", text, "--eval-only"}); };
  AddTensor(model + "/model.safetensors", "model.layers.0.self_attn.rotary_emb.inv_freq");
  EXPECT_EQ(load().code, 0) << "a buffer is passed over";
  std::ofstream(model + "/adapter_config.json") << "{}";
  const CommandResult adapter = load();
  EXPECT_EQ(adapter.code, 2);
  EXPECT_THAT(adapter.err, HasSubstr("has an adapter of PEFT ('adapter_config.json')"));
  std::filesystem::remove(model + "/adapter_config.json");
  AddTensor(model + "/model.safetensors", "model.layers.1.self_attn.q_proj.bias");
  const CommandResult bias = load();
  EXPECT_EQ(bias.code, 2);
  EXPECT_THAT(bias.err, HasSubstr("'model.layers.1.self_attn.q_proj.bias', for which the model of "
                                  "its config.json has no place"));
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
  EXPECT_THAT(again.err, HasSubstr("is not overwritten"));
  // Gives another vocabulary, by a flag and by a file.
  const CommandResult vocabulary = run({"--load", first, "--vocabulary", "300"});
  EXPECT_NE(vocabulary.code, 0);
  EXPECT_THAT(vocabulary.err, HasSubstr("--vocabulary was 256 and is 300"));
  const CommandResult layers = run({"--load", first, "--layers", "3"});
  EXPECT_NE(layers.code, 0);
  EXPECT_THAT(layers.err, HasSubstr("--layers was 2 and is 3"));
  // The last four bytes become a NaN.
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
