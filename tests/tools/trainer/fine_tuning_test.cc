// Trains a part of a model: frozen parameters and adapters.
#include "training/models/fine_tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/base/temporary_folder.h"
#include "tests/tools/trainer/command.h"
#include "tests/tools/trainer/tensors_in_folder.h"
#include "tests/training/models/tiny_models.h"

namespace geminid::trainer {
namespace {

using testing::HasSubstr;
using zero::DataType;

ModelConfig WithAdapters(ModelConfig config) {
  config.lora_rank = 3;
  config.lora_alpha = 5;
  return config;
}

bool EndsWith(const std::string& name, const std::string& end) { return name.ends_with(end); }

// The layers with their adapters added, as the definition says.
NamedTensors Merged(const NamedTensors& tensors, const ModelConfig& config) {
  const std::string a_name = ".lora_A.weight";
  NamedTensors merged = tensors;
  for (const auto& [name, a] : tensors) {
    if (!EndsWith(name, a_name)) continue;
    const std::string layer = name.substr(0, name.size() - a_name.size());
    const std::vector<double>& b = tensors.at(layer + ".lora_B.weight");
    const size_t rank = config.lora_rank;
    const size_t in = a.size() / rank;
    const size_t out = b.size() / rank;
    std::vector<double>& weight = merged.at(layer + ".weight");
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) {
        double sum = 0;
        for (size_t r = 0; r < rank; ++r) sum += b[o * rank + r] * a[r * in + i];
        weight[config.family == Family::kGpt2 ? i * out + o : o * in + i] +=
            config.lora_alpha / static_cast<double>(rank) * sum;
      }
    }
  }
  return merged;
}

struct AdapterCase {
  const char* name;
  ModelConfig config;
  Tiling tiling;
};

class Adapters : public testing::TestWithParam<AdapterCase> {};

TEST_P(Adapters, Gradients_MatchFiniteDifferencesOfTheMergedFloat64Model) {
  const ModelConfig& config = GetParam().config;
  const auto model = MakeTransformer(config, DataType::kFloat32, GetParam().tiling);
  const std::vector<ParameterSpec>& specs = model->parameters().specs;
  DenseParameters parameters(specs, DataType::kFloat32, 1, kWorkspaceBytes);
  Stir(parameters);
  const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 5}, 5);
  const auto loss = model->TrainMicroBatch(parameters, batch.view(), 1.0F);
  ASSERT_TRUE(loss.ok()) << loss.status();
  NamedTensors named = Named(*model, parameters);
  const double reference = ReferenceLoss(config, Merged(named, config), batch);
  EXPECT_NEAR(*loss, reference, 1e-5 * reference);
  for (size_t p = 0; p < specs.size(); ++p) {
    EXPECT_EQ(specs[p].trainable, specs[p].name.find(".lora_") != std::string::npos);
    const size_t step = std::max<size_t>(1, specs[p].elements() / 5);
    for (size_t i = p % step; i < specs[p].elements(); i += step) {
      if (!specs[p].trainable) {
        EXPECT_EQ(parameters.gradient(p)[i], 0) << specs[p].name;
        continue;
      }
      constexpr double kStep = 1e-5;
      double& value = named[specs[p].name][i];
      const double centre = value;
      value = centre + kStep;
      const double up = ReferenceLoss(config, Merged(named, config), batch);
      value = centre - kStep;
      const double down = ReferenceLoss(config, Merged(named, config), batch);
      value = centre;
      const double expected = (up - down) / (2 * kStep);
      ASSERT_NEAR(parameters.gradient(p)[i], expected, 5e-5 + 3e-4 * std::abs(expected))
          << specs[p].name << "[" << i << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, Adapters,
    testing::Values(AdapterCase{"gpt2", WithAdapters(TinyGpt2()), Tiling{}},
                    AdapterCase{"gpt2_in_pieces", WithAdapters(TinyGpt2()), kFineTiling},
                    AdapterCase{"llama", WithAdapters(TinyLlama()), Tiling{}},
                    AdapterCase{"llama_in_pieces", WithAdapters(TinyLlama()), kFineTiling},
                    AdapterCase{"gpt_neox", WithAdapters(TinyGptNeox()), Tiling{}},
                    AdapterCase{"gpt_neox_in_pieces", WithAdapters(TinyGptNeox()), kFineTiling}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(FrozenParameters, OfAnyKind_LeaveTheOthersGradientsAsTheyWere) {
  for (const ModelConfig& config : {TinyGpt2(), TinyLlama(), TinyGptNeox()}) {
    const auto model = MakeTransformer(config, DataType::kFloat32, kFineTiling);
    const Batch batch = RandomBatch(config, {.sequences = 2, .sequence_length = 5}, 5);
    const std::vector<ParameterSpec>& all = model->parameters().specs;
    DenseParameters whole(all, DataType::kFloat32, 1, kWorkspaceBytes);
    Stir(whole);
    ASSERT_TRUE(model->TrainMicroBatch(whole, batch.view(), 1.0F).ok());
    // Freezes each parameter alone, and all parameters except this one.
    for (size_t chosen = 0; chosen < all.size(); ++chosen) {
      for (const bool alone : {false, true}) {
        std::vector<ParameterSpec> specs = all;
        for (size_t p = 0; p < specs.size(); ++p) specs[p].trainable = (p == chosen) == alone;
        DenseParameters part(specs, DataType::kFloat32, 1, kWorkspaceBytes);
        Stir(part);
        const auto loss = model->TrainMicroBatch(part, batch.view(), 1.0F);
        ASSERT_TRUE(loss.ok()) << loss.status();
        for (size_t p = 0; p < specs.size(); ++p) {
          if (specs[p].trainable) {
            EXPECT_EQ(part.gradient(p), whole.gradient(p)) << specs[p].name;
          } else {
            EXPECT_THAT(part.gradient(p), testing::Each(0.0)) << specs[p].name;
          }
        }
      }
    }
  }
}

class FineTuning : public testing::Test {
 protected:
  CommandResult Run(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"--text",
                                          text_,
                                          "--steps",
                                          "6",
                                          "--lr",
                                          "1e-2",
                                          "--ranks",
                                          "2",
                                          "--quiet",
                                          "--dtype",
                                          "fp32",
                                          "--report",
                                          folder_ / "report.json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunTrainer(arguments);
  }
  nlohmann::json Report() const {
    return nlohmann::json::parse(std::ifstream(folder_ / "report.json"));
  }

  const base::TemporaryFolder folder_;
  const std::string text_ = folder_.Write("text", [] {
    std::string text;
    for (int i = 0; i < 3000; ++i) text.push_back(static_cast<char>('a' + i * i % 26));
    return text;
  }());
};

TEST_F(FineTuning, Frozen_KeepTheirValuesAndOthersMove) {
  const std::string before = folder_ / "before";
  const std::string after = folder_ / "after";
  ASSERT_EQ(Run({"--model", "gpt2-tiny", "--export", before}).code, 0);
  const CommandResult tuned =
      Run({"--load", before, "--freeze", "*.wte.*,transformer.h.0.*", "--export", after});
  ASSERT_EQ(tuned.code, 0) << tuned.err;
  const NamedTensors old_values = TensorsInFolder(before);
  for (const auto& [name, values] : TensorsInFolder(after)) {
    const bool frozen = name == "transformer.wte.weight" || name.starts_with("transformer.h.0.");
    EXPECT_EQ(values == old_values.at(name), frozen) << name;
  }
}

TEST_F(FineTuning, FrozenInFewerBitsThanTheirFile_SaysSo) {
  const std::string before = folder_ / "before";
  ASSERT_EQ(Run({"--model", "gpt2-tiny", "--export", before, "--export-dtype", "fp32"}).code, 0);
  const auto tune = [&](const char* type) {
    return RunTrainer({"--load", before, "--text", text_, "--steps", "1", "--freeze", "*.wte.*",
                       "--dtype", type})
        .err;
  };
  EXPECT_THAT(tune("bf16"), testing::HasSubstr("frozen weights are stored in bf16: 1 of them, such "
                                               "as 'transformer.wte.weight', have more bits"));
  EXPECT_THAT(tune("fp32"), testing::Not(testing::HasSubstr("have more bits")));
}

TEST_F(FineTuning, ByAdapters_MovesThemAloneGoesOnAndIsMerged) {
  for (const char* model : {"gpt2-tiny", "llama-tiny", "pythia-tiny"}) {
    const std::string name = model;
    const std::string base = folder_ / (name + "-base");
    const std::string run = folder_ / (name + "-run");
    const std::string merged = folder_ / (name + "-merged");
    ASSERT_EQ(Run({"--model", model, "--export", base}).code, 0);
    const std::vector<std::string> lora = {"--load", base, "--lora-rank", "4", "--lora-alpha", "8"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), lora.begin(), lora.end());
      return more;
    };
    const CommandResult whole = Run(with({"--save", run, "--export", merged}));
    ASSERT_EQ(whole.code, 0) << whole.err;
    const auto report = Report();
    EXPECT_LT(report["loss"][5], report["loss"][0]);
    const std::string saved = run + "/step-000000006";
    const NamedTensors trained = TensorsInFolder(saved);
    const NamedTensors old_values = TensorsInFolder(base);
    for (const auto& [tensor, values] : old_values) EXPECT_EQ(values, trained.at(tensor)) << tensor;
    // The merged folder is the base with the adapters added.
    ModelConfig config = *FindPreset(model);
    config.lora_rank = 4;
    config.lora_alpha = 8;
    const NamedTensors expected = Merged(trained, config);
    const NamedTensors exported = TensorsInFolder(merged);
    EXPECT_EQ(exported.size(), old_values.size());
    for (const auto& [tensor, values] : exported) {
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], expected.at(tensor)[i], 1e-6) << tensor;
      }
    }
    // Both generate the same text. The checkpoint records that it has adapters.
    const std::vector<std::string> prompt = {"--prompt", "abe",     "--tokens",
                                             "12",       "--dtype", "fp32"};
    const auto generate = [&](const std::string& from) {
      std::vector<std::string> arguments = {"generate", "--load", from};
      arguments.insert(arguments.end(), prompt.begin(), prompt.end());
      const CommandResult result = RunTrainer(arguments);
      EXPECT_EQ(result.code, 0) << result.err;
      return result.out;
    };
    EXPECT_EQ(generate(saved), generate(merged));
    // A run in two parts has the same bits.
    const std::string parts = folder_ / (name + "-parts");
    ASSERT_EQ(Run(with({"--save", parts, "--steps", "3"})).code, 0);
    ASSERT_EQ(Run(with({"--save", parts, "--resume"})).code, 0);
    EXPECT_EQ(Report()["weights_sha256"], report["weights_sha256"]);
  }
}

TEST_F(FineTuning, ThatCannotBe_IsRefusedByFlag) {
  const CommandResult none = Run({"--model", "gpt2-tiny", "--freeze", "nothing.*"});
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.err, HasSubstr("--freeze nothing.*: it fits no parameter"));
  const CommandResult all = Run({"--model", "gpt2-tiny", "--freeze", "*"});
  EXPECT_EQ(all.code, 2);
  EXPECT_THAT(all.err, HasSubstr("leaves nothing to train"));
  EXPECT_EQ(Run({"--model", "gpt2-tiny", "--lora-alpha", "3"}).code, 2);
  const CommandResult rank = Run({"--model", "gpt2-tiny", "--lora-rank", "65"});
  EXPECT_EQ(rank.code, 2);
  EXPECT_THAT(rank.err, HasSubstr("LoRA rank of 65"));
}

}  // namespace
}  // namespace geminid::trainer
