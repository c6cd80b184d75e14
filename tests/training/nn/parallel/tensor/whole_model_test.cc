// All layers together form a model of one transformer layer. In every mode each layer's output fits
// the next layer, and the loss and all gradients are those of one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/training/nn/parallel/tensor/blocks.h"
#include "tests/training/nn/parallel/tensor/grids.h"
#include "training/nn/parallel/tensor/parallel_attention.h"
#include "training/nn/parallel/tensor/parallel_cross_entropy.h"
#include "training/nn/parallel/tensor/parallel_embedding.h"
#include "training/nn/parallel/tensor/parallel_linear.h"
#include "training/nn/parallel/tensor/parallel_mlp.h"
#include "training/nn/parallel/tensor/parallel_norm.h"

namespace geminid::collectives {
namespace {

constexpr size_t kVocabulary = 37, kHidden = 36, kInner = 72;

// The options of GPT-2 or of LLaMA.
struct Config {
  NormKind norm;
  Activation activation;
  bool bias;
  double rotary_theta;

  AttentionOptions attention() const {
    return {.sequences = 36,
            .sequence_length = 5,
            .hidden = kHidden,
            .heads = 12,
            .kv_heads = 12,
            .head_dim = 6,
            .bias = bias,
            .rotary_theta = rotary_theta};
  }
  size_t tokens() const { return attention().tokens(); }
  MlpOptions mlp() const { return {activation, tokens(), kHidden, kInner, bias}; }
  NormOptions norms() const { return {.kind = norm, .tokens = tokens(), .hidden = kHidden}; }
};

constexpr Config kGpt = {NormKind::kLayer, Activation::kGelu, true, 0};
constexpr Config kLlama = {NormKind::kRms, Activation::kSwiglu, false, 10000};

enum Parameter {
  kTable,
  kGamma1,
  kBeta1,
  kWqkv,
  kBqkv,
  kWout,
  kBout,
  kGamma2,
  kBeta2,
  kW1,
  kB1,
  kW2,
  kB2,
  kGamma3,
  kBeta3,
  kWlogits,
  kParameters
};

// Whole matrices, one for each parameter, with sections one after another; empty if there is none.
std::vector<Matrix> DrawWeights(const Config& config) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal(0, 0.3F);
  const auto draw = [&] { return normal(random); };
  const size_t beta = config.norm == NormKind::kRms ? 0 : kHidden, qkv = 3 * 72;
  const size_t gates = config.activation == Activation::kSwiglu ? 2 * kInner : kInner;
  const auto bias = [&](size_t elements) { return Drawn(1, config.bias ? elements : 0, draw); };
  return {Drawn(kVocabulary, kHidden, draw),
          Drawn(1, kHidden, draw),
          Drawn(1, beta, draw),
          Drawn(qkv, kHidden, draw),
          bias(qkv),
          Drawn(kHidden, 72, draw),
          bias(kHidden),
          Drawn(1, kHidden, draw),
          Drawn(1, beta, draw),
          Drawn(gates, kHidden, draw),
          bias(gates),
          Drawn(kHidden, kInner, draw),
          bias(kHidden),
          Drawn(1, kHidden, draw),
          Drawn(1, beta, draw),
          Drawn(kVocabulary, kHidden, draw)};
}

// A parameter on a rank: its block of the matrix after `arrange`.
struct Kept {
  std::function<Matrix(const Matrix&)> arrange;
  Block block;
  std::vector<float> value, gradient;

  std::vector<float> Of(const Matrix& whole) const {
    return whole.elements.empty() ? std::vector<float>() : Cut(arrange(whole), block);
  }
};

class Model {
 public:
  Model(TensorGroups& groups, LinearScratch& scratch, const Config& config)
      : embedding_(
            *ParallelEmbedding::Make(groups, {config.tokens(), kVocabulary, kHidden}, scratch)),
        norm1_(*ParallelNorm::Make(groups, config.norms(), scratch)),
        norm2_(*ParallelNorm::Make(groups, config.norms(), scratch)),
        norm3_(*ParallelNorm::Make(groups, config.norms(), scratch)),
        attention_(*ParallelAttention<float>::Make(groups, config.attention(), scratch)),
        mlp_(*ParallelMlp<float>::Make(groups, config.mlp(), scratch)),
        logits_(*ParallelLinear<float>::Make(
            groups,
            {.shape = {config.tokens(), kHidden, PaddedVocabulary(groups.grid(), kVocabulary)}},
            scratch)),
        loss_(*ParallelCrossEntropy::Make(groups, {config.tokens(), kVocabulary}, scratch)),
        kept_(kParameters) {
    const size_t words = PaddedVocabulary(groups.grid(), kVocabulary);
    const auto as_it_is = [](const Matrix& whole) { return whole; };
    const auto padded = [words](const Matrix& whole) {
      Matrix more = whole;
      more.rows = words;
      more.elements.resize(words * whole.columns);
      return more;
    };
    const auto row = [](const Range& range) { return Block{{0, 1}, range}; };
    for (const auto& [gamma, beta] :
         {std::pair(kGamma1, kBeta1), std::pair(kGamma2, kBeta2), std::pair(kGamma3, kBeta3)}) {
      kept_[gamma] = kept_[beta] = {as_it_is, row(norm1_->blocks().parameter), {}, {}};
    }
    kept_[kTable] = {padded, embedding_->blocks().table, {}, {}};
    kept_[kWlogits] = {padded, logits_->blocks().w, {}, {}};
    KeepPair(kWqkv, attention_->outputs(), attention_->first(), attention_->second());
    KeepPair(kW1, mlp_->outputs(), mlp_->first(), mlp_->second());
  }

  // `parameter` is the first of four: W and bias of the first layer, then of the second layer.
  void KeepPair(size_t parameter, const FusedOutputs& outputs, const LinearBlocks& first,
                const LinearBlocks& second) {
    const auto as_it_is = [](const Matrix& whole) { return whole; };
    // Copies `outputs`, because these functions outlive the layers.
    const auto rows = [outputs](const Matrix& whole) { return FusedRows(outputs, whole); };
    const auto columns = [outputs](const Matrix& whole) { return FusedColumns(outputs, whole); };
    kept_[parameter] = {rows, first.w, {}, {}};
    kept_[parameter + 1] = {columns, {{0, 1}, first.bias}, {}, {}};
    kept_[parameter + 2] = {as_it_is, second.w, {}, {}};
    kept_[parameter + 3] = {as_it_is, {{0, 1}, second.bias}, {}, {}};
  }

  void Load(const std::vector<Matrix>& weights) {
    for (size_t i = 0; i < kept_.size(); ++i) {
      kept_[i].value = kept_[i].Of(weights[i]);
      kept_[i].gradient.assign(kept_[i].value.size(), NAN);
    }
  }

  // Returns the mean loss; kept() then has the gradients.
  double Step(const std::vector<int32_t>& all_ids, const std::vector<int32_t>& all_targets);

  const std::vector<Kept>& kept() const { return kept_; }

 private:
  using Floats = std::vector<float>;

  const Floats& W(size_t parameter) const { return kept_[parameter].value; }
  Floats& D(size_t parameter) { return kept_[parameter].gradient; }
  ParallelAttention<float>::Parameters AttentionWeights() const {
    return {W(kWqkv), W(kBqkv), W(kWout), W(kBout)};
  }
  ParallelMlp<float>::Parameters MlpWeights() const { return {W(kW1), W(kB1), W(kW2), W(kB2)}; }

  std::unique_ptr<ParallelEmbedding> embedding_;
  std::unique_ptr<ParallelNorm> norm1_, norm2_, norm3_;
  std::unique_ptr<ParallelAttention<float>> attention_;
  std::unique_ptr<ParallelMlp<float>> mlp_;
  std::unique_ptr<ParallelLinear<float>> logits_;
  std::unique_ptr<ParallelCrossEntropy> loss_;
  std::vector<Kept> kept_;
};

void Add(const std::vector<float>& from, std::vector<float>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

double Model::Step(const std::vector<int32_t>& all_ids, const std::vector<int32_t>& all_targets) {
  const auto ids = Cut(all_ids, embedding_->blocks().ids);
  const auto targets = Cut(all_targets, loss_->block().rows);
  Floats x0(embedding_->blocks().y.elements()), n1(x0), n2(x0), n3(x0), d(x0), dn(x0);
  Floats s1(norm1_->statistics()), s2(s1), s3(s1), s_loss(loss_->statistics());
  Floats kept_attention(attention_->kept()), kept_mlp(mlp_->kept());
  Floats logits(logits_->blocks().y.elements());
  const auto check = [](const absl::Status& status) { EXPECT_EQ(status, absl::OkStatus()); };
  check(embedding_->Forward(ids, W(kTable), x0));
  check(norm1_->Forward(x0, W(kGamma1), W(kBeta1), s1, n1));
  Floats x1(x0), x2(x0), half(x0);
  check(attention_->Forward(n1, AttentionWeights(), kept_attention, half));
  Add(half, x1);
  check(norm2_->Forward(x1, W(kGamma2), W(kBeta2), s2, n2));
  check(mlp_->Forward(n2, MlpWeights(), kept_mlp, half));
  x2 = x1;
  Add(half, x2);
  check(norm3_->Forward(x2, W(kGamma3), W(kBeta3), s3, n3));
  check(logits_->Forward(n3, W(kWlogits), {}, logits));
  const auto loss = loss_->Forward(logits, targets, s_loss);
  check(loss.status());
  const auto counted = static_cast<double>(loss->counted);

  check(loss_->Backward(logits, targets, s_loss, static_cast<float>(1 / counted), logits));
  check(logits_->Backward(n3, W(kWlogits), logits, {dn, D(kWlogits), {}}));
  check(norm3_->Backward(x2, W(kGamma3), s3, dn, {d, D(kGamma3), D(kBeta3)}));
  check(mlp_->Backward(n2, MlpWeights(), kept_mlp, d, {dn, D(kW1), D(kB1), D(kW2), D(kB2)}));
  check(norm2_->Backward(x1, W(kGamma2), s2, dn, {half, D(kGamma2), D(kBeta2)}));
  Add(half, d);
  check(attention_->Backward(n1, AttentionWeights(), kept_attention, d,
                             {dn, D(kWqkv), D(kBqkv), D(kWout), D(kBout)}));
  check(norm1_->Backward(x0, W(kGamma1), s1, dn, {half, D(kGamma1), D(kBeta1)}));
  Add(half, d);
  check(embedding_->Backward(ids, d, D(kTable)));
  return loss->sum / counted;
}

struct Outcome {
  double loss = 0;
  std::vector<Kept> kept;
};

std::vector<Outcome> RunAll(const GridCase& grid, const Config& config,
                            const std::vector<Matrix>& weights,
                            const Backend& backend = LocalBackend()) {
  std::mt19937 random(23);
  std::vector<int32_t> ids(config.tokens()), targets(config.tokens());
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocabulary);
  for (int32_t& target : targets) target = static_cast<int32_t>(random() % kVocabulary);
  std::vector<Outcome> outcomes(static_cast<size_t>(grid.ranks));
  const auto step = [&](TensorGroups& groups, LinearScratch& scratch) {
    Outcome& out = outcomes[static_cast<size_t>(groups.rank())];
    Model model(groups, scratch, config);
    model.Load(weights);
    out.loss = model.Step(ids, targets);
    out.kept = model.kept();
  };
  OnGrid(grid, step, backend);
  return outcomes;
}

class WholeModelOf : public testing::TestWithParam<GridCase> {};

TEST_P(WholeModelOf, LossAndGradients_AreThoseOfOneRank) {
  for (const Config& config : {kGpt, kLlama}) {
    const std::vector<Matrix> weights = DrawWeights(config);
    const Outcome alone = RunAll({TensorMode::k1DSequence, 1}, config, weights).front();
    EXPECT_GT(alone.loss, 3);  // about log(37)
    for (const Outcome& rank : RunAll(GetParam(), config, weights)) {
      EXPECT_NEAR(rank.loss, alone.loss, 1e-6 * alone.loss);
      for (size_t i = 0; i < kParameters; ++i) {
        Matrix whole = weights[i];
        whole.elements = alone.kept[i].gradient;
        const std::vector<float> want = rank.kept[i].Of(whole);
        float largest = 0;
        for (const float element : whole.elements) largest = std::max(largest, std::abs(element));
        ASSERT_EQ(rank.kept[i].gradient.size(), want.size()) << i;
        for (size_t k = 0; k < want.size(); ++k) {
          ASSERT_NEAR(rank.kept[i].gradient[k], want[k], 1e-5F * largest) << i << " " << k;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grids, WholeModelOf, testing::ValuesIn(AllGrids()),
                         [](const auto& parameter) { return parameter.param.name(); });

TEST(WholeModel, LossAndGradientsOverSharedMemory_HaveTheBitsOfThreads) {
  const std::vector<Matrix> weights = DrawWeights(kGpt);
  for (const GridCase& grid : {GridCase{TensorMode::k1DSequence, 2}, GridCase{TensorMode::k2D, 4},
                               GridCase{TensorMode::k25D, 2, 2}, GridCase{TensorMode::k3D, 8}}) {
    const std::vector<Outcome> threads = RunAll(grid, kGpt, weights);
    const std::vector<Outcome> shared = RunAll(grid, kGpt, weights, ShmBackend());
    for (size_t rank = 0; rank < threads.size(); ++rank) {
      EXPECT_EQ(shared[rank].loss, threads[rank].loss) << grid << rank;
      for (size_t i = 0; i < kParameters; ++i) {
        EXPECT_EQ(shared[rank].kept[i].gradient, threads[rank].kept[i].gradient) << grid << i;
      }
    }
  }
}

}  // namespace
}  // namespace geminid::collectives
