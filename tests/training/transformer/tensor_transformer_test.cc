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
#include "training/settings/tensor_share.h"

namespace geminid::trainer {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;
using zero::DataType;

constexpr float kGradientScale = 0.25F;
constexpr MicroBatchShape kShape = {.sequences = 12, .sequence_length = 5};
constexpr double kRounding = 2e-5;          // of fp32, of the largest element
constexpr double kNarrowRounding = 0x1p-5;  // of bf16
constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16};

// A model of one rank, with weights that bf16 has exactly.
struct Whole {
  Whole(const ModelConfig& config, DataType type)
      : model(MakeTransformer(config, type)),
        parameters(model->parameters().specs, type, 1, kWorkspaceBytes) {
    Stir(parameters);
    for (size_t i = 0; i < parameters.count(); ++i) {
      for (float& value : parameters.values(i)) {
        value = kernels::BFloat16::FromFloat(value).ToFloat();
      }
    }
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

// `whole` has the values.
absl::StatusOr<CutModel> Cut(const ModelConfig& config, DataType type, const ModelPart& part,
                             const TensorDependencies& around, Whole& whole) {
  CutModel cut;
  GEMINID_ASSIGN_OR_RETURN(
      cut.blocks, MakeTensorParameters(config, part, around.groups.grid(), around.groups.rank()));
  std::vector<ParameterSpec> specs;
  for (const TensorBlock& block : cut.blocks.blocks) specs.push_back(block.spec);
  cut.parameters = std::make_unique<DenseParameters>(specs, type, 1, kWorkspaceBytes);
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
  GEMINID_ASSIGN_OR_RETURN(cut.model,
                           MakeTensorTransformer(config, type, kShape, cut.blocks, around));
  return cut;
}

// Calls `body` on every rank of a grid, each on its own thread.
void OnGrid(const TensorGrid& grid,
            const std::function<void(const TensorDependencies& around)>& body) {
  auto world = collectives::LocalBackend().connect(grid.ranks(), absl::Seconds(60));
  collectives::ForEachRank(world, [&](collectives::Communicator& ranks) {
    auto groups = collectives::TensorGroups::Connect(grid, ranks);
    ASSERT_TRUE(groups.ok()) << groups.status();
    body({.groups = **groups, .ranks = ranks, .threads = nullptr});
  });
}

// The same with a whole model, cut.
void OnGrid(const TensorGrid& grid, const ModelConfig& config, DataType type, Whole& whole,
            const std::function<void(int rank, CutModel&)>& body) {
  OnGrid(grid, [&](const TensorDependencies& around) {
    auto cut = Cut(config, type, WholeModel(config), around, whole);
    ASSERT_TRUE(cut.ok()) << cut.status();
    body(around.groups.rank(), *cut);
  });
}

class TensorTransformerOf : public testing::TestWithParam<TensorGrid> {};

// One rank's bf16 rounds what lies between layers as the grid does.
void ExpectThoseOfOneRank(const TensorGrid& grid, const ModelConfig& config, DataType type) {
  const bool narrow = type != DataType::kFloat32;
  Whole whole(config, type);
  const Batch batch = RandomBatch(config, kShape, 3);
  const double loss = *whole.model->TrainMicroBatch(whole.parameters, batch.view(), kGradientScale);
  for (const bool keeps : {true, false}) {
    MicroBatch view = batch.view();
    view.keeps_activations = keeps;
    OnGrid(grid, config, type, whole, [&](int rank, CutModel& cut) {
      const auto got = cut.model->TrainMicroBatch(*cut.parameters, view, kGradientScale);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_NEAR(*got, rank == 0 ? loss : 0, (narrow ? 2e-3 : 1e-6) * loss);
      ExpectGradients(cut.blocks, *cut.parameters, whole.parameters,
                      narrow ? kNarrowRounding : kRounding);
      EXPECT_EQ(cut.parameters->workspace().blocks(), 0);
      const auto evaluated = cut.model->Evaluate(*cut.parameters, view);
      ASSERT_TRUE(evaluated.ok()) << evaluated.status();
      EXPECT_EQ(*evaluated, *got);
    });
  }
}

TEST_P(TensorTransformerOf, ForwardAndBackward_AreThoseOfOneRank) {
  for (const ModelConfig& config : CutModels()) {
    for (const DataType type : kTypes) {
      SCOPED_TRACE(Name(config.family) + std::to_string(static_cast<int>(type)));
      ExpectThoseOfOneRank(GetParam(), config, type);
    }
  }
}

TEST_P(TensorTransformerOf, KeptActivations_ChangeNoBit) {
  for (const ModelConfig& config : CutModels()) {
    Whole whole(config, DataType::kBFloat16);
    const Batch batch = RandomBatch(config, kShape, 3);
    MicroBatch keeps = batch.view();
    keeps.keeps_activations = true;
    OnGrid(GetParam(), [&](const TensorDependencies& around) {
      const auto cut = [&] {
        return *Cut(config, DataType::kBFloat16, WholeModel(config), around, whole);
      };
      CutModel again = cut(), kept = cut();
      const auto loss = again.model->TrainMicroBatch(*again.parameters, batch.view(), 1);
      const auto same = kept.model->TrainMicroBatch(*kept.parameters, keeps, 1);
      ASSERT_TRUE(loss.ok() && same.ok()) << loss.status() << same.status();
      EXPECT_EQ(*same, *loss);
      for (size_t i = 0; i < kept.parameters->count(); ++i) {
        EXPECT_EQ(kept.parameters->gradient(i), again.parameters->gradient(i)) << i;
      }
    });
  }
}

void ExpectWithinBounds(const TensorGrid& grid, const ModelConfig& config, DataType type) {
  TrainOptions options;
  options.model = config;
  options.zero.data_type = type;
  options.parallel.tensor = {.mode = grid.mode(), .size = grid.ranks(), .depth = grid.depth()};
  Whole whole(config, type);
  const Batch batch = RandomBatch(config, kShape, 3);
  const uint64_t most = TensorWorkspaceBytes(options, config.layers, kShape, 1);
  const uint64_t kept = TensorKeptBytes(options, config.layers, kShape);
  const std::vector<uint64_t> items = TensorItemBytes(options, kShape);
  for (const bool keeps : {true, false}) {
    MicroBatch view = batch.view();
    view.keeps_activations = keeps;
    OnGrid(grid, config, type, whole, [&](int /*rank*/, CutModel& cut) {
      const std::vector<uint64_t> needed = cut.model->ItemBytes(kShape);
      ASSERT_EQ(needed.size(), items.size());
      for (size_t i = 0; i < items.size(); ++i) EXPECT_LE(needed[i], items[i]);
      ASSERT_TRUE(cut.model->TrainMicroBatch(*cut.parameters, view, kGradientScale).ok());
      const StackWorkspace& workspace = cut.parameters->workspace();
      EXPECT_LE(workspace.peak_bytes(), most + (keeps ? kept : 0));
      EXPECT_GE(2 * workspace.peak_bytes(), most + (keeps ? kept : 0));
    });
  }
}

TEST_P(TensorTransformerOf, WorkspaceAndKeptActivations_AreWithinTheirBounds) {
  for (const ModelConfig& config : {CutGpt2(), CutLlama()}) {
    for (const DataType type : kTypes) {
      SCOPED_TRACE(static_cast<int>(type));
      ExpectWithinBounds(GetParam(), config, type);
    }
  }
}

// Forward and backward through a model in two parts.
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
  constexpr DataType kType = DataType::kFloat32;
  Whole whole(config, kType);
  const Batch batch = RandomBatch(config, kShape, 3);
  const ModelPart first = {.first_layer = 0, .layers = 1, .embeds = true, .outputs = false};
  const ModelPart second = {.first_layer = 1, .layers = 1, .embeds = false, .outputs = true};
  OnGrid(GetParam(), [&](const TensorDependencies& around) {
    auto all = Cut(config, kType, WholeModel(config), around, whole);
    auto one = Cut(config, kType, first, around, whole);
    auto two = Cut(config, kType, second, around, whole);
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

// Of every mode but 1D, whose shards are layers of their own.
std::vector<TensorGrid> GridsOfLayers() {
  std::vector<TensorGrid> grids = Grids();
  std::erase_if(grids, [](const TensorGrid& grid) { return grid.mode() == TensorMode::k1D; });
  return grids;
}

INSTANTIATE_TEST_SUITE_P(Grids, TensorTransformerOf, testing::ValuesIn(GridsOfLayers()),
                         [](const auto& parameter) {
                           std::string name = Name(parameter.param.mode());
                           std::erase_if(name, [](char c) { return c == '.' || c == '-'; });
                           return "Of" + name + "Ranks" + std::to_string(parameter.param.ranks());
                         });

TEST(TensorTransformer, OfSequencesThatCannotBeCut_IsRefused) {
  OnGrid(*TensorGrid::Make(TensorMode::k2D, 4), [](const TensorDependencies& around) {
    const ModelConfig config = CutGpt2();
    const auto blocks = MakeTensorParameters(config, WholeModel(config), around.groups.grid(),
                                             around.groups.rank());
    const auto model = MakeTensorTransformer(
        config, DataType::kFloat32, {.sequences = 3, .sequence_length = 4}, *blocks, around);
    EXPECT_TRUE(absl::IsInvalidArgument(model.status()));
    EXPECT_THAT(std::string(model.status().message()),
                testing::HasSubstr("3 sequences cannot be sharded"));
  });
}

}  // namespace
}  // namespace geminid::trainer
