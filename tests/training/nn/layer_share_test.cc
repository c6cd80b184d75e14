// Compares models whose layers are sharded, each rank computing its shard as a model of its own
// with the host's kernels, with the same models on one rank.
#include "training/nn/layer_share.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/model/attention/attention_parts.h"
#include "kernels/runtime/common/bfloat16.h"
#include "tests/collectives/world.h"
#include "tests/training/models/dense_parameters.h"
#include "tests/training/models/tensor_models.h"
#include "training/settings/rank_share.h"
#include "training/transformer/transformer.h"

namespace geminid::trainer {
namespace {

using collectives::TensorGrid;
using collectives::TensorMode;
using zero::DataType;

constexpr float kGradientScale = 0.25F;
constexpr MicroBatchShape kShape = {.sequences = 12, .sequence_length = 5};
constexpr double kRounding = 2e-5;          // of fp32, relative to the largest element
constexpr double kNarrowRounding = 0x1p-5;  // of bf16

double RoundingOf(DataType type) {
  return type == DataType::kFloat32 ? kRounding : kNarrowRounding;
}

// A model on one rank whose weights bf16 represents exactly.
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

// One rank's share of the model, or of a part of it.
struct Share {
  Share(const ModelConfig& config, const ModelPart& part, DataType type, Whole& whole,
        collectives::Communicator& ranks)
      : blocks(*MakeTensorParameters(
            config, part, *TensorGrid::Make(TensorMode::k1D, ranks.WorldSize()), ranks.Rank())) {
    const ModelConfig mine = ConfigOfShare(config, ranks.WorldSize());
    ModelParameters found = ParametersOfBlocks(mine, blocks);
    layers = std::make_unique<LayerShare>(config, found, &ranks);
    parameters = std::make_unique<DenseParameters>(found.specs, type, 1, kWorkspaceBytes);
    const std::vector<ParameterSpec> of_part = MakeParameters(config, part).specs;
    const std::vector<ParameterSpec>& all = whole.model->parameters().specs;
    for (size_t i = 0; i < found.specs.size(); ++i) {
      parameters->values(i) = BlockOf<float>(blocks.blocks[i], [&](ParameterId id) {
        const std::string& name = of_part[static_cast<size_t>(id)].name;
        const auto at = std::ranges::find(all, name, &ParameterSpec::name) - all.begin();
        return std::span<const float>(whole.parameters.values(static_cast<size_t>(at)));
      });
    }
    model = MakeTransformerShare(mine, type, std::move(found), layers.get(), Tiling{});
  }
  Share(const ModelConfig& config, DataType type, Whole& whole, collectives::Communicator& ranks)
      : Share(config, WholeModel(config), type, whole, ranks) {}

  TensorParameters blocks;
  std::unique_ptr<LayerShare> layers;
  std::unique_ptr<DenseParameters> parameters;
  std::unique_ptr<Transformer> model;
};

// Calls `body` on every rank, each on its own thread.
void OnRanks(int count, const std::function<void(collectives::Communicator& ranks)>& body) {
  auto world = collectives::LocalBackend().connect(count, absl::Seconds(60));
  collectives::ForEachRank(world, body);
}

double SumOver(collectives::Communicator& ranks, double mine) {
  std::vector<double> sum = {mine};
  EXPECT_TRUE(ranks.AllReduce(sum, sum, collectives::ReduceOp::kSum).ok());
  return sum[0];
}

class LayerShareOf : public testing::TestWithParam<int> {};

TEST_P(LayerShareOf, ForwardAndBackward_AreThoseOfOneRank) {
  for (const ModelConfig& config : CutModels()) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      SCOPED_TRACE(Name(config.family) + std::to_string(static_cast<int>(type)));
      Whole whole(config, type);
      const Batch batch = RandomBatch(config, kShape, 3);
      const double loss =
          *whole.model->TrainMicroBatch(whole.parameters, batch.view(), kGradientScale);
      OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
        Share share(config, type, whole, ranks);
        const auto got =
            share.model->TrainMicroBatch(*share.parameters, batch.view(), kGradientScale);
        ASSERT_TRUE(got.ok()) << got.status();
        EXPECT_NEAR(SumOver(ranks, *got), loss, loss * (type == DataType::kFloat32 ? 1e-6 : 2e-3));
        ExpectGradients(share.blocks, *share.parameters, whole.parameters, RoundingOf(type));
        EXPECT_EQ(share.parameters->workspace().blocks(), 0);
        const auto evaluated = share.model->Evaluate(*share.parameters, batch.view());
        ASSERT_TRUE(evaluated.ok()) << evaluated.status();
        EXPECT_NEAR(*evaluated, *got, 1e-6 * loss);
      });
    }
  }
}

TEST_P(LayerShareOf, KeptActivations_ChangeNoBit) {
  for (const ModelConfig& config : CutModels()) {
    Whole whole(config, DataType::kBFloat16);
    const Batch batch = RandomBatch(config, kShape, 3);
    MicroBatch keeps = batch.view();
    keeps.keeps_activations = true;
    OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
      Share again(config, DataType::kBFloat16, whole, ranks);
      Share kept(config, DataType::kBFloat16, whole, ranks);
      const auto loss = again.model->TrainMicroBatch(*again.parameters, batch.view(), 1);
      ASSERT_TRUE(loss.ok()) << loss.status();
      const auto same = kept.model->TrainMicroBatch(*kept.parameters, keeps, 1);
      ASSERT_TRUE(same.ok()) << same.status();
      EXPECT_EQ(*same, *loss);
      for (size_t i = 0; i < kept.parameters->count(); ++i) {
        EXPECT_EQ(kept.parameters->gradient(i), again.parameters->gradient(i)) << i;
      }
    });
  }
}

// T H (4 L + 2) numbers in fp32, so few that each rank receives them from each other.
TEST_P(LayerShareOf, SumsOfAMicroBatch_AreTheClosedForm) {
  const ModelConfig config = CutGpt2();
  const uint64_t numbers = kShape.tokens() * config.hidden * (4 * config.layers + 2);
  ASSERT_LE(kShape.tokens() * config.hidden * sizeof(float), collectives::kDirectAllReduceBytes);
  const Batch batch = RandomBatch(config, kShape, 3);
  for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
    Whole whole(config, type);
    OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
      Share share(config, type, whole, ranks);
      ASSERT_TRUE(share.model->TrainMicroBatch(*share.parameters, batch.view(), 1).ok());
      constexpr auto kAllReduce = static_cast<size_t>(collectives::OpKind::kAllReduce);
      uint64_t received = 0;
      const auto stats = ranks.Stats();
      for (const auto& peer : stats.traffic[kAllReduce].peers) {
        received += peer.bytes_received;
      }
      EXPECT_EQ(received, static_cast<uint64_t>(GetParam() - 1) * numbers * sizeof(float));
    });
  }
}

// Norms, and biases of what is added up.
TEST_P(LayerShareOf, GradientsOfWhatEveryRankHas_AreTheSameBitsOnAll) {
  const ModelConfig config = CutGpt2();
  Whole whole(config, DataType::kFloat32);
  const Batch batch = RandomBatch(config, kShape, 3);
  OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
    Share share(config, DataType::kFloat32, whole, ranks);
    ASSERT_TRUE(share.model->TrainMicroBatch(*share.parameters, batch.view(), 1).ok());
    int everywhere = 0;
    const auto& attention = share.blocks.attention.back();
    for (const auto id : {std::optional(attention.norm.gain), attention.norm.shift, attention.b2,
                          std::optional(share.blocks.final_norm.gain)}) {
      const std::vector<double>& mine = share.parameters->gradient(static_cast<size_t>(*id));
      std::vector<double> first = mine;
      ASSERT_TRUE(ranks.Broadcast(first, 0).ok());
      EXPECT_EQ(mine, first) << ++everywhere;
    }
  });
}

TEST_P(LayerShareOf, InParts_HasTheBitsOfOnePart) {
  const ModelConfig config = CutLlama();
  Whole whole(config, DataType::kFloat32);
  const Batch batch = RandomBatch(config, kShape, 3);
  const ModelPart first = {.first_layer = 0, .layers = 1, .embeds = true, .outputs = false};
  const ModelPart second = {.first_layer = 1, .layers = 1, .embeds = false, .outputs = true};
  OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
    Share all(config, DataType::kFloat32, whole, ranks);
    Share one(config, first, DataType::kFloat32, whole, ranks);
    Share two(config, second, DataType::kFloat32, whole, ranks);
    const auto loss = all.model->TrainMicroBatch(*all.parameters, batch.view(), kGradientScale);
    ASSERT_TRUE(loss.ok()) << loss.status();
    std::vector<float> between(one.model->BoundaryElements(kShape.tokens())), gradient(between);
    ASSERT_TRUE(one.parameters->BeginMicroBatch().ok());
    ASSERT_TRUE(two.parameters->BeginMicroBatch().ok());
    auto passed = one.model->ForwardPart(*one.parameters, batch.view(), {}, between);
    auto then = two.model->ForwardPart(*two.parameters, batch.view(), between, {});
    ASSERT_TRUE(passed.ok() && then.ok()) << passed.status() << then.status();
    const auto in_parts = two.model->BackwardPart(*std::move(then), kGradientScale, {}, gradient);
    ASSERT_TRUE(in_parts.ok()) << in_parts.status();
    EXPECT_EQ(*in_parts, *loss);
    ASSERT_TRUE(one.model->BackwardPart(*std::move(passed), kGradientScale, gradient, {}).ok());
    for (size_t i = 0; i < all.parameters->count(); ++i) {
      const size_t before = one.parameters->count();
      EXPECT_EQ(i < before ? one.parameters->gradient(i) : two.parameters->gradient(i - before),
                all.parameters->gradient(i))
          << all.blocks.blocks[i].spec.name;
    }
  });
}

// The bytes that a GPU library takes for a share's attention in 16 bits. The host does not take
// them.
uint64_t AttentionLibraryBytes(const ModelConfig& config, size_t ranks) {
  const kernels::AttentionShape attention = {.batch = kShape.sequences,
                                             .sequence = kShape.sequence_length,
                                             .heads = config.heads / ranks,
                                             .kv_heads = config.kv_heads / ranks,
                                             .head_dim = config.head_dim(),
                                             .scale = 1.0F};
  return kernels::PartsOfAttention(attention).bytes +
         kShape.tokens() * attention.heads * sizeof(float);
}

TEST_P(LayerShareOf, WorkspaceAndKeptActivations_AreWithinTheirBounds) {
  for (const ModelConfig& config : {CutGpt2(), CutLlama()}) {
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16}) {
      TrainOptions options;
      options.model = config;
      options.batch = kShape.sequences;
      options.zero.data_type = type;
      options.parallel.tensor = {.mode = TensorMode::k1D, .size = GetParam()};
      Whole whole(config, type);
      const Batch batch = RandomBatch(config, kShape, 3);
      for (const auto& [on_gpu, keeps] :
           {std::pair(true, true), std::pair(true, false), std::pair(false, false)}) {
        options.wants_gpu = on_gpu;
        MicroBatch view = batch.view();
        view.keeps_activations = keeps;
        const uint64_t most = WorkspaceBytesOfShare(options, GetParam(), 1) +
                              (keeps ? KeptBytesOfShare(options, GetParam()) : 0);
        const uint64_t of_gpu = on_gpu && type == DataType::kBFloat16
                                    ? AttentionLibraryBytes(config, static_cast<size_t>(GetParam()))
                                    : 0;
        OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
          Share share(config, type, whole, ranks);
          ASSERT_TRUE(share.model->TrainMicroBatch(*share.parameters, view, 1).ok());
          const uint64_t peak = share.parameters->workspace().peak_bytes();
          EXPECT_LE(peak, most);
          EXPECT_GE(4 * peak, most - of_gpu);
        });
      }
    }
  }
}

TEST_P(LayerShareOf, WritingOn_IsRefused) {
  const ModelConfig config = CutLlama();
  Whole whole(config, DataType::kFloat32);
  OnRanks(GetParam(), [&](collectives::Communicator& ranks) {
    Share share(config, DataType::kFloat32, whole, ranks);
    const std::vector<int32_t> tokens = {1, 2};
    EXPECT_EQ(share.model->NextLogits(*share.parameters, tokens, 1).status().code(),
              absl::StatusCode::kUnimplemented);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, LayerShareOf, testing::Values(2, 3, 4));

// Of 37 words three ranks have 13 each; the last rank's two words beyond 37 are never targets.
TEST(TargetsHere, OfOtherRanks_AreTheWordBehindOnesOwn) {
  const ModelConfig config = CutLlama();
  OnRanks(3, [&](collectives::Communicator& ranks) {
    const auto blocks = MakeTensorParameters(config, WholeModel(config),
                                             *TensorGrid::Make(TensorMode::k1D, 3), ranks.Rank());
    const LayerShare share(config, ParametersOfBlocks(ConfigOfShare(config, 3), *blocks), &ranks);
    const std::vector<int32_t> targets = {0, 12, 13, 36, -1};
    const std::vector<std::vector<int32_t>> want = {
        {0, 12, 13, 13, -1}, {13, 13, 0, 13, -1}, {11, 11, 11, 10, -1}};
    EXPECT_EQ(share.TargetsHere(targets), want[static_cast<size_t>(ranks.Rank())]);
  });
}

}  // namespace
}  // namespace geminid::trainer
