// Pipelines of threads give the same bits of losses and gradients as the same model in one part.
#include "training/nn/parallel/stages/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "tests/collectives/world.h"

namespace geminid::collectives {
namespace {

constexpr size_t kWidth = 5;

using Vector = std::vector<float>;

// Layer l: out = tanh(W_l in). The loss is the sum of the squares of the last output.
struct Layer {
  Vector weight = Vector(kWidth * kWidth), gradient = Vector(kWidth * kWidth);
};

Layer MakeLayer(int position) {
  std::mt19937 random(static_cast<unsigned>(position));
  std::uniform_real_distribution<float> uniform(-1, 1);
  Layer layer;
  for (float& weight : layer.weight) weight = uniform(random);
  return layer;
}

Vector Input(int micro_batch) {
  Vector input(kWidth);
  for (size_t i = 0; i < kWidth; ++i) input[i] = static_cast<float>(micro_batch + 1) / (i + 2.0f);
  return input;
}

// The values that a layer stores of a micro-batch.
struct Kept {
  Vector in, out, slope;
};

void Forward(const Layer& layer, Kept& kept) {
  kept.out.resize(kWidth);
  for (size_t r = 0; r < kWidth; ++r) {
    float sum = 0;
    for (size_t c = 0; c < kWidth; ++c) sum += layer.weight[r * kWidth + c] * kept.in[c];
    kept.out[r] = std::tanh(sum);
  }
}

Vector BackwardInput(const Layer& layer, Kept& kept, const Vector& out_gradient) {
  kept.slope.resize(kWidth);
  Vector in_gradient(kWidth);
  for (size_t r = 0; r < kWidth; ++r) {
    kept.slope[r] = out_gradient[r] * (1 - kept.out[r] * kept.out[r]);
    for (size_t c = 0; c < kWidth; ++c) {
      in_gradient[c] += layer.weight[r * kWidth + c] * kept.slope[r];
    }
  }
  return in_gradient;
}

void BackwardWeight(Layer& layer, const Kept& kept) {
  for (size_t r = 0; r < kWidth; ++r) {
    for (size_t c = 0; c < kWidth; ++c) {
      layer.gradient[r * kWidth + c] += kept.slope[r] * kept.in[c];
    }
  }
}

Vector LossGradient(const Vector& out) {
  Vector gradient = out;
  for (float& element : gradient) element *= 2;
  return gradient;
}

float Loss(const Vector& out) {
  float loss = 0;
  for (const float element : out) loss += element * element;
  return loss;
}

struct Trained {
  std::vector<Vector> gradients;  // by position
  Vector losses;                  // by micro-batch
};

Trained TrainInOne(const PipelineShape& shape) {
  std::vector<Layer> layers;
  for (int p = 0; p < shape.stages * shape.parts; ++p) layers.push_back(MakeLayer(p));
  Trained trained;
  for (int m = 0; m < shape.micro_batches; ++m) {
    std::vector<Kept> kept(layers.size());
    Vector passed = Input(m);
    for (size_t p = 0; p < layers.size(); ++p) {
      kept[p].in = passed;
      Forward(layers[p], kept[p]);
      passed = kept[p].out;
    }
    trained.losses.push_back(Loss(passed));
    passed = LossGradient(passed);
    for (size_t p = layers.size(); p-- > 0;) {
      passed = BackwardInput(layers[p], kept[p], passed);
      BackwardWeight(layers[p], kept[p]);
    }
  }
  for (const Layer& layer : layers) trained.gradients.push_back(layer.gradient);
  return trained;
}

class Stage : public PipelineStage {
 public:
  Stage(const PipelineShape& shape, int stage, Trained* trained)
      : shape_(shape), stage_(stage), trained_(trained) {
    for (int part = 0; part < shape.parts; ++part) layers_.push_back(MakeLayer(Position(part)));
  }

  absl::Status Forward(int part, int micro_batch, std::span<const float> in,
                       std::span<float> out) override {
    Kept& kept = kept_[{part, micro_batch}];
    kept.in = Position(part) == 0 ? Input(micro_batch) : Vector(in.begin(), in.end());
    collectives::Forward(layers_[static_cast<size_t>(part)], kept);
    if (out.empty()) trained_->losses[static_cast<size_t>(micro_batch)] = Loss(kept.out);
    std::copy_n(kept.out.begin(), out.size(), out.begin());
    return absl::OkStatus();
  }
  absl::Status BackwardInput(int part, int micro_batch, std::span<const float> out_gradient,
                             std::span<float> in_gradient) override {
    Kept& kept = kept_[{part, micro_batch}];
    const Vector gradient = collectives::BackwardInput(
        layers_[static_cast<size_t>(part)], kept,
        out_gradient.empty() ? LossGradient(kept.out)
                             : Vector(out_gradient.begin(), out_gradient.end()));
    std::copy_n(gradient.begin(), in_gradient.size(), in_gradient.begin());
    return absl::OkStatus();
  }
  absl::Status BackwardWeight(int part, int micro_batch) override {
    Layer& layer = layers_[static_cast<size_t>(part)];
    collectives::BackwardWeight(layer, kept_[{part, micro_batch}]);
    kept_.erase({part, micro_batch});
    trained_->gradients[static_cast<size_t>(Position(part))] = layer.gradient;
    return absl::OkStatus();
  }

 private:
  int Position(int part) const { return PositionOf(shape_, stage_, part); }

  const PipelineShape shape_;
  const int stage_;
  Trained* const trained_;
  std::vector<Layer> layers_;
  std::map<std::array<int, 2>, Kept> kept_;  // by part and micro-batch
};

Trained TrainInPipeline(const PipelineShape& shape, const Backend& backend) {
  Trained trained;
  trained.gradients.resize(static_cast<size_t>(shape.stages * shape.parts));
  trained.losses.resize(static_cast<size_t>(shape.micro_batches));
  Communicators world = backend.connect(shape.stages, absl::Seconds(60));
  ForEachRank(world, [&](Communicator& rank) {
    auto executor = PipelineExecutor::Make(shape, {}, kWidth, rank);
    ASSERT_TRUE(executor.ok()) << executor.status();
    Stage stage(shape, rank.Rank(), &trained);
    EXPECT_EQ((*executor)->Run(stage), absl::OkStatus());
  });
  return trained;
}

TEST(PipelineExecutor, LossesAndGradients_AreThoseOfOneProcessBitForBit) {
  for (const Backend& backend : {LocalBackend(), ShmBackend()}) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const int rounds : {1, 2, 4}) {
        for (const auto& [kind, parts] :
             {std::pair(PipelineKind::k1F1B, 1), std::pair(PipelineKind::kInterleaved, 2),
              std::pair(PipelineKind::kInterleaved, 3), std::pair(PipelineKind::kZeroBubbleV, 2)}) {
          const PipelineShape shape = {kind, stages, rounds * stages, parts};
          const Trained expected = TrainInOne(shape);
          const Trained trained = TrainInPipeline(shape, backend);
          EXPECT_EQ(trained.losses, expected.losses) << Name(kind) << " " << stages;
          EXPECT_EQ(trained.gradients, expected.gradients) << Name(kind) << " " << stages;
        }
      }
    }
  }
}

class FailingStage : public PipelineStage {
 public:
  absl::Status Forward(int, int micro_batch, std::span<const float>, std::span<float>) override {
    return micro_batch == 2 ? absl::DataLossError("a worn-out disk") : absl::OkStatus();
  }
  absl::Status BackwardInput(int, int, std::span<const float>, std::span<float>) override {
    return absl::OkStatus();
  }
  absl::Status BackwardWeight(int, int) override { return absl::OkStatus(); }
};

TEST(PipelineExecutor, StageThatFails_EndsTheOthersWithItsReason) {
  const PipelineShape shape = {PipelineKind::k1F1B, 3, 6};
  Communicators world = LocalBackend().connect(3, absl::Seconds(60));
  std::vector<absl::Status> ends(3);
  ForEachRank(world, [&](Communicator& rank) {
    auto executor = PipelineExecutor::Make(shape, {}, kWidth, rank);
    ASSERT_TRUE(executor.ok()) << executor.status();
    FailingStage failing;
    Trained trained{std::vector<Vector>(3), Vector(6)};
    Stage good(shape, rank.Rank(), &trained);
    PipelineStage& stage =
        rank.Rank() == 1 ? static_cast<PipelineStage&>(failing) : static_cast<PipelineStage&>(good);
    const absl::Status end = (*executor)->Run(stage);
    EXPECT_EQ((*executor)->Run(stage), end);
    ends[static_cast<size_t>(rank.Rank())] = end;
  });
  EXPECT_EQ(ends[1], absl::DataLossError("a worn-out disk"));
  for (const int other : {0, 2}) {
    EXPECT_THAT(std::string(ends[static_cast<size_t>(other)].message()),
                testing::HasSubstr("a worn-out disk"));
  }
}

TEST(PipelineExecutor, RanksThatAreNotTheStages_AreRefused) {
  const auto alone = MakeSelfCommunicator();
  EXPECT_EQ(PipelineExecutor::Make({PipelineKind::k1F1B, 2, 2}, {}, 1, *alone).status().message(),
            "a pipeline of 2 stages needs as many ranks, not 1");
}

}  // namespace
}  // namespace geminid::collectives
