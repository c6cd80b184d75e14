// Compares models whose layers are sharded over ranks with the same models on one rank.
#include "training/transformer/tensor_transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tests/collectives/world.h"
#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/tensor_models.h"
#include "training/nn/wide_source.h"
#include "training/settings/tensor_share.h"

namespace geminid::trainer {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;
using zero::DataType;

constexpr float kGradientScale = 0.25F;
constexpr MicroBatchShape kShape = {.sequences = 12, .sequence_length = 5};
constexpr double kRounding = 2e-5;  // of fp32, relative to the largest element

// A model on one rank.
struct Whole {
  explicit Whole(const ModelConfig& config)
      : model(MakeTransformer(config, DataType::kFloat32)),
        parameters(model->parameters().specs, DataType::kFloat32, 1, kWorkspaceBytes) {
    Stir(parameters);
  }

  std::unique_ptr<Transformer> model;
  DenseParameters parameters;
};

// One rank's shard of the model, or of a part of it.
struct CutModel {
  TensorParameters blocks;
  std::unique_ptr<DenseParameters> parameters;
  std::unique_ptr<Transformer> model;
};

// The values come from `whole`.
absl::StatusOr<CutModel> Cut(const ModelConfig& config, const ModelPart& part,
                             const TensorSurroundings& around, Whole& whole) {
  CutModel cut;
  GEMINID_ASSIGN_OR_RETURN(
      cut.blocks, MakeTensorParameters(config, part, around.groups.grid(), around.groups.rank()));
  std::vector<ParameterSpec> specs;
  for (const TensorBlock& block : cut.blocks.blocks) specs.push_back(block.spec);
  cut.parameters = std::make_unique<DenseParameters>(specs, DataType::kFloat32, 1, kWorkspaceBytes);
  const std::vector<ParameterSpec> of_part = MakeParameters(config, part).specs;
  const std::vector<ParameterSpec>& all = whole.model->parameters().specs;
  for (size_t i = 0; i < specs.size(); ++i) {
    cut.parameters->values(i) = BlockOf<float>(cut.blocks.blocks[i], [&](ParameterId id) {
      const std::string& name = of_part[static_cast<size_t>(id)].name;
      const auto found = std::ranges::find(all, name, &ParameterSpec::name);
      return std::span<const float>(
          whole.parameters.values(static_cast<size_t>(found - all.begin())));
    });
  }
  GEMINID_ASSIGN_OR_RETURN(cut.model, MakeTensorTransformer(config, kShape, cut.blocks, around));
  return cut;
}

// Calls `body` on every rank of a grid, each on its own thread.
void OnGrid(const TensorGrid& grid,
            const std::function<void(const TensorSurroundings& around)>& body) {
  auto world = collectives::LocalBackend().connect(grid.ranks(), absl::Seconds(60));
  collectives::ForEachRank(world, [&](collectives::Communicator& ranks) {
    auto groups = collectives::TensorGroups::Connect(grid, ranks);
    ASSERT_TRUE(groups.ok()) << groups.status();
    body({.groups = **groups, .ranks = ranks, .threads = nullptr});
  });
}

// Also makes each rank's shard of the whole model.
void OnGrid(const TensorGrid& grid, const ModelConfig& config, Whole& whole,
            const std::function<void(int rank, CutModel&)>& body) {
  OnGrid(grid, [&](const TensorSurroundings& around) {
    auto cut = Cut(config, WholeModel(config), around, whole);
    ASSERT_TRUE(cut.ok()) << cut.status();
    body(around.groups.rank(), *cut);
  });
}

class TensorTransformerOf : public testing::TestWithParam<TensorGrid> {};

TEST_P(TensorTransformerOf, ForwardAndBackward_AreThoseOfOneRank) {
  for (const ModelConfig& config : CutModels()) {
    SCOPED_TRACE(Name(config.family));
    Whole whole(config);
    const Batch batch = RandomBatch(config, kShape, 3);
    const double loss =
        *whole.model->TrainMicroBatch(whole.parameters, batch.view(), kGradientScale);
    for (const bool keeps : {true, false}) {
      MicroBatch view = batch.view();
      view.keeps_activations = keeps;
      OnGrid(GetParam(), config, whole, [&](int rank, CutModel& cut) {
        const auto got = cut.model->TrainMicroBatch(*cut.parameters, view, kGradientScale);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_NEAR(*got, rank == 0 ? loss : 0, 1e-6 * loss);
        ExpectGradients(cut.blocks, *cut.parameters, whole.parameters, kRounding);
        EXPECT_EQ(cut.parameters->workspace().blocks(), 0);
        const auto evaluated = cut.model->Evaluate(*cut.parameters, view);
        ASSERT_TRUE(evaluated.ok()) << evaluated.status();
        EXPECT_EQ(*evaluated, *got);
      });
    }
  }
}

// bf16 parameters are widened in the workspace, too.
void ExpectWithinBounds(const TensorGrid& grid, const ModelConfig& config, DataType type) {
  TrainOptions options;
  options.model = config;
  options.zero.data_type = type;
  options.parallel.tensor = {.mode = grid.mode(), .size = grid.ranks(), .depth = grid.depth()};
  Whole whole(config);
  const Batch batch = RandomBatch(config, kShape, 3);
  const uint64_t most = TensorWorkspaceBytes(options, config.layers, kShape, 1);
  const uint64_t kept = TensorKeptBytes(options, config.layers, kShape);
  const std::vector<uint64_t> items = TensorItemBytes(options, kShape);
  for (const bool keeps : {true, false}) {
    MicroBatch view = batch.view();
    view.keeps_activations = keeps;
    OnGrid(grid, config, whole, [&](int /*rank*/, CutModel& cut) {
      const std::vector<uint64_t> needed = cut.model->ItemBytes(kShape);
      ASSERT_EQ(needed.size(), items.size());
      for (size_t i = 0; i < items.size(); ++i) EXPECT_LE(needed[i], items[i]);
      const std::vector<ParameterSpec>& specs = cut.model->parameters().specs;
      auto narrow = std::make_unique<DenseParameters>(specs, type, 1, kWorkspaceBytes);
      const StackWorkspace& workspace = narrow->workspace();
      std::unique_ptr<ParameterSource> source = std::move(narrow);
      if (type != DataType::kFloat32) source = MakeWideSource(std::move(source), specs);
      ASSERT_TRUE(cut.model->TrainMicroBatch(*source, view, kGradientScale).ok());
      EXPECT_LE(workspace.peak_bytes(), most + (keeps ? kept : 0));
      EXPECT_GE(2 * workspace.peak_bytes(), most + (keeps ? kept : 0));
    });
  }
}

TEST_P(TensorTransformerOf, WorkspaceAndKeptActivations_AreWithinTheirBounds) {
  for (const ModelConfig& config : {CutGpt2(), CutLlama()}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      SCOPED_TRACE(static_cast<int>(type));
      ExpectWithinBounds(GetParam(), config, type);
    }
  }
}

// bf16 represents these weights exactly, so the widened model is the same and its gradients are
// rounded.
TEST_P(TensorTransformerOf, OnWidenedParameters_HasTheGradientsRounded) {
  for (const ModelConfig& config : {CutGpt2(), Tied(CutLlama())}) {
    Whole whole(config);
    for (size_t i = 0; i < whole.parameters.count(); ++i) {
      for (float& value : whole.parameters.values(i)) {
        value = kernels::BFloat16::FromFloat(value).ToFloat();
      }
    }
    const Batch batch = RandomBatch(config, kShape, 3);
    OnGrid(GetParam(), config, whole, [&](int /*rank*/, CutModel& cut) {
      const std::vector<ParameterSpec>& specs = cut.model->parameters().specs;
      auto narrow =
          std::make_unique<DenseParameters>(specs, DataType::kBFloat16, 1, kWorkspaceBytes);
      DenseParameters& rounded = *narrow;
      for (size_t i = 0; i < specs.size(); ++i) rounded.values(i) = cut.parameters->values(i);
      const auto wide = MakeWideSource(std::move(narrow), specs);
      const auto loss = cut.model->TrainMicroBatch(*cut.parameters, batch.view(), kGradientScale);
      const auto again = cut.model->TrainMicroBatch(*wide, batch.view(), kGradientScale);
      ASSERT_TRUE(loss.ok() && again.ok()) << loss.status() << again.status();
      EXPECT_EQ(*again, *loss);
      for (size_t i = 0; i < specs.size(); ++i) {
        const std::vector<double>& exact = cut.parameters->gradient(i);
        double largest = 0;  // a table with two uses is rounded twice
        for (const double value : exact) largest = std::max(largest, std::abs(value));
        for (size_t k = 0; k < exact.size(); ++k) {
          ASSERT_NEAR(rounded.gradient(i)[k], exact[k],
                      std::abs(exact[k]) / 256 + (specs[i].backward_uses > 1 ? largest / 256 : 0))
              << specs[i].name;
        }
      }
    });
  }
}

// Trains a model in two parts, forward and backward.
absl::StatusOr<double> TrainInParts(CutModel& first, CutModel& second, const MicroBatch& batch) {
  std::vector<float> between(first.model->BoundaryElements(kShape.tokens())), gradient(between);
  GEMINID_RETURN_IF_ERROR(first.parameters->BeginMicroBatch());
  GEMINID_RETURN_IF_ERROR(second.parameters->BeginMicroBatch());
  GEMINID_ASSIGN_OR_RETURN(auto one,
                           first.model->ForwardPart(*first.parameters, batch, {}, between));
  GEMINID_ASSIGN_OR_RETURN(auto two,
                           second.model->ForwardPart(*second.parameters, batch, between, {}));
  GEMINID_ASSIGN_OR_RETURN(
      const double loss, second.model->BackwardPart(std::move(two), kGradientScale, {}, gradient));
  GEMINID_RETURN_IF_ERROR(
      first.model->BackwardPart(std::move(one), kGradientScale, gradient, {}).status());
  return loss;
}

TEST_P(TensorTransformerOf, InParts_HasTheBitsOfOnePart) {
  const ModelConfig config = CutLlama();
  Whole whole(config);
  const Batch batch = RandomBatch(config, kShape, 3);
  const ModelPart first = {.first_layer = 0, .layers = 1, .embeds = true, .outputs = false};
  const ModelPart second = {.first_layer = 1, .layers = 1, .embeds = false, .outputs = true};
  OnGrid(GetParam(), [&](const TensorSurroundings& around) {
    auto all = Cut(config, WholeModel(config), around, whole);
    auto one = Cut(config, first, around, whole), two = Cut(config, second, around, whole);
    ASSERT_TRUE(all.ok() && one.ok() && two.ok());
    const double loss =
        *all->model->TrainMicroBatch(*all->parameters, batch.view(), kGradientScale);
    const auto in_parts = TrainInParts(*one, *two, batch.view());
    ASSERT_TRUE(in_parts.ok()) << in_parts.status();
    EXPECT_EQ(*in_parts, loss);
    for (size_t i = 0; i < all->parameters->count(); ++i) {
      const size_t before = one->parameters->count();
      EXPECT_EQ(i < before ? one->parameters->gradient(i) : two->parameters->gradient(i - before),
                all->parameters->gradient(i))
          << all->blocks.blocks[i].spec.name;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Grids, TensorTransformerOf, testing::ValuesIn(Grids()),
                         [](const auto& parameter) {
                           std::string name = Name(parameter.param.mode());
                           std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
                           return "Of" + name + "Ranks" + std::to_string(parameter.param.ranks());
                         });

TEST(TensorTransformer, OfSequencesThatCannotBeCut_IsRefused) {
  OnGrid(*TensorGrid::Make(TensorMode::k2D, 4), [](const TensorSurroundings& around) {
    const ModelConfig config = CutGpt2();
    const auto blocks = MakeTensorParameters(config, WholeModel(config), around.groups.grid(),
                                             around.groups.rank());
    const auto model =
        MakeTensorTransformer(config, {.sequences = 3, .sequence_length = 4}, *blocks, around);
    EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
    EXPECT_THAT(std::string(model.status().message()),
                testing::HasSubstr("3 sequences cannot be cut"));
  });
}

}  // namespace
}  // namespace geminid::trainer
