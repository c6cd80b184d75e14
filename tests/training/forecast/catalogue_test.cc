#include "training/forecast/catalogue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "training/forecast/hardware.h"
#include "training/models/model_config.h"

namespace geminid::forecast {
namespace {

using ::testing::HasSubstr;

std::uint64_t SumOfTensors(const Model& model) {
  std::uint64_t sum = 0;
  for (const Tensor& tensor : Tensors(model)) sum += tensor.elements();
  return sum;
}

// The numbers of parameters of public checkpoints.
TEST(Catalogue, ParametersOfPublicCheckpoints_AreExact) {
  const std::map<std::string, std::uint64_t> published = {
      {"gpt2", 124'439'808},         {"gpt2-medium", 354'823'168},  {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},    {"opt-125m", 125'239'296},     {"opt-350m", 331'196'416},
      {"opt-1.3b", 1'315'758'080},   {"opt-2.7b", 2'651'596'800},   {"opt-6.7b", 6'658'473'984},
      {"opt-13b", 12'853'473'280},   {"opt-30b", 29'974'540'288},   {"llama-7b", 6'738'415'616},
      {"llama-13b", 13'015'864'320}, {"llama-30b", 32'528'943'616}, {"llama-65b", 65'285'660'672},
  };
  for (const auto& [name, parameters] : published) {
    EXPECT_EQ(CountParameters(*FindModel(name)), parameters) << name;
  }
}

// Numbers that only papers give: GPT-3's table D.1 (millions), and the names of the larger OPTs.
TEST(Catalogue, ParametersOfUnpublishedModels_RoundToTheirPapersFigure) {
  const auto rounded = [](const char* name, std::uint64_t unit) {
    return (CountParameters(*FindModel(name)) + unit / 2) / unit;
  };
  EXPECT_EQ(rounded("gpt3-175b", 100'000'000), 1746u);
  EXPECT_EQ(rounded("opt-66b", 1'000'000'000), 66u);
  EXPECT_EQ(rounded("opt-175b", 1'000'000'000), 175u);
}

// Table 1 of the paper gives hundredths of a billion, without the gains of the norms.
TEST(Catalogue, PalmsMatrices_RoundToItsPapersFigures) {
  const auto hundredths = [](const char* name) {
    const Model model = *FindModel(name);
    const std::uint64_t norms = (model.layers + 1) * model.hidden;
    return (CountParameters(model) - norms + 5'000'000) / 10'000'000;
  };
  EXPECT_EQ(hundredths("palm-8b"), 863u);
  EXPECT_EQ(hundredths("palm-62b"), 6250u);
  EXPECT_EQ(hundredths("palm-540b"), 54035u);
}

TEST(Catalogue, EveryModel_IsValidAndItsTensorsAddUp) {
  std::set<std::string> names;
  for (const CatalogueEntry& entry : Catalogue()) {
    EXPECT_TRUE(Validate(entry.model).ok()) << entry.model.name;
    EXPECT_EQ(SumOfTensors(entry.model), CountParameters(entry.model)) << entry.model.name;
    EXPECT_TRUE(names.insert(entry.model.name).second) << entry.model.name << " is there twice";
    EXPECT_STRNE(entry.source, "");
  }
}

// A matrix's rows are its outputs, in whichever layout a checkpoint stores it.
TEST(Tensors, OfGpt2AndOpt_HaveTheOutputsAsRows) {
  const std::vector<Tensor> gpt2 = Tensors(*FindModel("gpt2")),
                            opt = Tensors(*FindModel("opt-125m"));
  EXPECT_EQ(gpt2.front().rows, 50257u);
  EXPECT_TRUE(gpt2.front().also_output);
  const auto first_of_mlp = [](const std::vector<Tensor>& tensors) {
    return *std::find_if(tensors.begin(), tensors.end(), [](const Tensor& tensor) {
      return tensor.used_by == Operator::kMlp && tensor.rows > 1;
    });
  };
  for (const std::vector<Tensor>& tensors : {gpt2, opt}) {
    EXPECT_EQ(first_of_mlp(tensors).rows, 3072u);
    EXPECT_EQ(first_of_mlp(tensors).columns, 768u);
  }
}

TEST(Catalogue, UnknownName_IsNotFoundAndListsTheNames) {
  const absl::Status status = FindModel("gpt5").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("llama-65b"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("gpt2-like"));
}

// Colossal-AI's benchmarks have a configuration gpt2_10b whose name gives its number of elements.
TEST(Families, Gpt2LikeOfPublishedShape_HasItsParameters) {
  const Family* family = FindFamily("gpt2-like");
  ASSERT_NE(family, nullptr);
  EXPECT_EQ(CountParameters(*MakeMember(*family, 50, 4096, 16)), 10'279'047'168u);
  EXPECT_EQ(CountParameters(*MakeMember(*family, 48, 1600, 25)), 1'557'611'200u);
}

TEST(Families, LlamaLikeOfPublishedShapes_HaveTheirWidthsAndParameters) {
  const Family* family = FindFamily("llama-like");
  ASSERT_NE(family, nullptr);
  EXPECT_EQ(CountParameters(*MakeMember(*family, 32, 4096, 32)), 6'738'415'616u);
  EXPECT_EQ(CountParameters(*MakeMember(*family, 60, 6656, 52)), 32'528'943'616u);
}

TEST(Families, Parameters_GrowWithTheStep) {
  for (const Family& family : Families()) {
    std::uint64_t last = 0;
    for (std::uint64_t step = 1; step <= kMaxFamilyStep; ++step) {
      const absl::StatusOr<Model> model = MemberOfStep(family, step);
      ASSERT_TRUE(model.ok()) << model.status();
      const std::uint64_t parameters = CountParameters(*model);
      EXPECT_GT(parameters, last) << family.name << " " << step;
      last = parameters;
    }
    EXPECT_LT(last, std::uint64_t{1} << 40) << family.name;
    EXPECT_FALSE(MemberOfStep(family, kMaxFamilyStep + 1).ok());
    EXPECT_FALSE(MemberOfStep(family, 0).ok());
  }
}

TEST(Families, MemberOfSize_IsTheNearest) {
  const Family* family = FindFamily("gpt2-like");
  ASSERT_NE(family, nullptr);
  for (const double wanted : {1.5e9, 18e9, 24e9, 175e9}) {
    const std::uint64_t parameters = static_cast<std::uint64_t>(wanted);
    const absl::StatusOr<Model> member = MemberOfSize(*family, parameters);
    ASSERT_TRUE(member.ok()) << member.status();
    const auto distance = [&](const Model& model) {
      const std::uint64_t count = CountParameters(model);
      return count > parameters ? count - parameters : parameters - count;
    };
    for (std::uint64_t step = 1; step <= kMaxFamilyStep; ++step) {
      EXPECT_GE(distance(*MemberOfStep(*family, step)), distance(*member)) << wanted << " " << step;
    }
  }
  EXPECT_FALSE(MemberOfSize(*family, 0).ok());
  EXPECT_FALSE(MemberOfSize(*family, std::uint64_t{1} << 50).ok());
}

TEST(Families, HeadsThatDoNotDivide_AreRefused) {
  const absl::Status status = MakeMember(*FindFamily("gpt2-like"), 2, 100, 3).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("100"));
}

TEST(Families, WithoutHeads_SomeThatDivideAreTaken) {
  const Family& family = *FindFamily("gpt2-like");
  EXPECT_EQ(MakeMember(family, 2, 4096, 0)->head_dim(), 128u);
  EXPECT_EQ(MakeMember(family, 2, 1600, 0)->head_dim(), 64u);
  EXPECT_EQ(MakeMember(family, 2, 200, 0)->head_dim(), 100u);
  EXPECT_EQ(MakeMember(family, 2, 16, 0)->heads, 1u);
  for (std::uint64_t hidden = 1; hidden <= 4096; ++hidden) {
    const absl::StatusOr<std::uint64_t> heads = DefaultHeads(hidden);
    if (!heads.ok()) {
      EXPECT_THAT(std::string(heads.status().message()), HasSubstr("--heads")) << hidden;
      continue;
    }
    EXPECT_EQ(hidden % *heads, 0u) << hidden;
    EXPECT_TRUE(MakeMember(family, 2, hidden, 0).ok()) << hidden;
  }
  // 211 is prime.
  EXPECT_THAT(std::string(DefaultHeads(211).status().message()), HasSubstr("hidden size of 256"));
}

TEST(Model, NumbersOutOfRange_AreNamed) {
  Model model = *FindModel("gpt2");
  model.layers = 0;
  EXPECT_THAT(std::string(Validate(model).message()), HasSubstr("number of layers is 0"));
  model = *FindModel("gpt2");
  model.kv_heads = 5;
  EXPECT_THAT(std::string(Validate(model).message()), HasSubstr("must divide"));
}

// The catalogue has geminid-train's models under the same names and with the same parameters.
TEST(Catalogue, ModelsOfTheTrainer_AreKnownByTheirNames) {
  for (const trainer::Preset& preset : trainer::Presets()) {
    EXPECT_TRUE(FindModel(preset.name).ok()) << preset.name;
    const Model* const own = FindTrainerModel(preset.name);
    ASSERT_NE(own, nullptr) << preset.name;
    EXPECT_EQ(CountParameters(*own), trainer::CountParameters(preset.config)) << preset.name;
    EXPECT_EQ(own->context, preset.config.context) << preset.name;
    EXPECT_EQ(own->kv_heads, preset.config.kv_heads) << preset.name;
    EXPECT_TRUE(Validate(*own).ok()) << preset.name;
  }
  EXPECT_EQ(FindModel("gpt2-tiny")->vocabulary, 256u);
  EXPECT_EQ(FindModel("llama-7b")->vocabulary, 32000u);  // as published
  EXPECT_EQ(FindTrainerModel("opt-13b"), nullptr);
}

TEST(Names, NearlyRight_AreSuggested) {
  const auto model = [](const char* name) {
    return std::string(FindModel(name).status().message());
  };
  const auto hardware = [](const char* name) {
    return std::string(FindHardware(name).status().message());
  };
  EXPECT_THAT(model("lama-7b"), HasSubstr("did you mean 'llama-7b'?"));
  EXPECT_THAT(hardware("a100"), HasSubstr("did you mean 'a100-40gb' or 'a100-80gb'?"));
  EXPECT_THAT(hardware("h100"), HasSubstr("did you mean 'h100-80gb'?"));
}

}  // namespace
}  // namespace geminid::forecast
